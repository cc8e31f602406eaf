"""Transforms that find functions which a framework spelled out."""

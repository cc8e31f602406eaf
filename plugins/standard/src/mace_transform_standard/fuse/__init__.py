"""Transforms that find functions which a framework spelled out, and bring nodes together that are one for a kernel."""

"""Transforms that make constants behind filters part of them."""

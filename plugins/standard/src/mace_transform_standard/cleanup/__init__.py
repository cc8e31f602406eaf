"""Transforms that remove the last moves of data."""

"""Transforms that drop what changes nothing, and write the rest in one way, in fewer or cheaper steps."""

"""Transforms that join neighbors once the filters hold what follows them."""

"""Executing what was built, and the graph itself: validation, benchmarks, profiles."""

"""Words that messages of several stages share."""

from __future__ import annotations


def format_count(number: int, thing: str) -> str:
    """Return a number of things: "1 pass", "2 passes"."""
    if number == 1:
        return f"1 {thing}"
    return f"{number} {thing}{'es' if thing.endswith('s') else 's'}"

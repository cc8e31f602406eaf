"""Makes text safe to print: names in models, file names and answers of servers may hold terminal commands."""

from __future__ import annotations

import unicodedata

HIDDEN = ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")
"""Unicode categories that a terminal executes or hides: controls, bidi overrides, line separators."""


def escape_controls(text: str, keep: str = "\n\t") -> str:
    """Replace every character that a terminal would obey or hide by its Python escape.

    Those in `keep` stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c in keep or not _is_hidden(c) else _escape(c) for c in text)


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) in HIDDEN


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")

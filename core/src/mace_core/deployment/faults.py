"""Collects the faults of one file, so that a user sees all of them at once."""

from __future__ import annotations

import sys
from pathlib import Path

from mace_core.errors import MaceError

BEHIND = sys.maxsize
"""The line of what belongs to no line: it comes after all that do."""
LONGEST = 60
"""Characters of a value that a message shows."""


def shorten(text: str, longest: int = LONGEST) -> str:
    """The text, or its beginning if it is long; on one line."""
    text = " ".join(text.split())
    return text if len(text) <= longest else f"{text[:longest]}..."


class Faults:
    """Collects the faults of a file, by line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._faults: dict[tuple[int, str], None] = {}

    def place(self, line: int) -> str:
        """The file and a line, as editors and compilers write it."""
        return f"{self.path}:{line}"

    def add(self, line: int, problem: str, remedy: str) -> None:
        """Note a fault; one that is known already is not repeated."""
        self._faults[line, str(MaceError(self.place(line), problem, remedy))] = None

    def add_error(self, error: MaceError) -> None:
        """Note an error about another file that this one names.

        It comes after the faults of this file's own lines.
        """
        self._faults[BEHIND, str(error)] = None

    @property
    def lines(self) -> frozenset[int]:
        """Lines that have a fault."""
        return frozenset(line for line, _ in self._faults)

    def __bool__(self) -> bool:
        """Tell whether there is any fault."""
        return bool(self._faults)

    def messages(self) -> list[str]:
        """Every fault in the shape of a message, by line."""
        return [text for _, text in sorted(self._faults)]

    def check(self) -> None:
        """Raise one MaceError with every fault, by line, if there is any."""
        if self._faults:
            raise MaceError.of(self.messages())

"""The two errors that people see; anything else is a bug, which `failure` turns into a report."""

from __future__ import annotations

from collections.abc import Iterable

from mace_core.terminal import escape_controls


class MaceError(Exception):
    """A user's mistake, told as `place: what is wrong; what to do`.

    One error may carry several faults of one file, so that all are shown together.
    """

    def __init__(self, place: object, problem: str, remedy: str = "") -> None:
        text = f"{problem}; {remedy}" if remedy else problem
        # A place is one line: a newline in a file's or a node's name must not look like another message.
        shown = escape_controls(str(place), keep="")
        super().__init__(f"{shown}: {text}" if shown else text)
        self._place, self._text = shown, text

    @classmethod
    def of(cls, faults: Iterable[str]) -> MaceError:
        """Join faults that already have the shape `place: problem; remedy`, one a line."""
        return cls("", "\n".join(faults))

    def at(self, place: object) -> str:
        """The same told of a place that the user knows better.

        Several faults, which have their places, stay as they are.
        """
        return f"{place}: {self._text}" if self._place else str(self)


class PluginError(MaceError):
    """A plugin that cannot be loaded or breaks its contract.

    The place is the distribution with its version.
    """


class PluginWarning(UserWarning):
    """A plugin that does not work while the others do; the commands print it and go on."""

"""The two errors that people see; everything else is a bug and shows its traceback."""

from __future__ import annotations

from collections.abc import Iterable


class MaceError(Exception):
    """A user's mistake, told as `place: what is wrong; what to do`.

    One error may carry several faults of one file, so that all are shown together.
    """

    def __init__(self, place: object, problem: str, remedy: str = "") -> None:
        text = f"{problem}; {remedy}" if remedy else problem
        super().__init__(f"{place}: {text}" if str(place) else text)
        self._place, self._text = str(place), text

    @classmethod
    def of(cls, faults: Iterable[str]) -> MaceError:
        """Join faults that already have the shape `place: problem; remedy`, one a line."""
        return cls("", "\n".join(faults))

    def at(self, place: object) -> str:
        """The same told of a place that the user knows better; several faults, which have their places, stay as they are."""
        return f"{place}: {self._text}" if self._place else str(self)


class PluginError(MaceError):
    """A plugin that cannot be loaded or breaks its contract; the place is the distribution with its version."""

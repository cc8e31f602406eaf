"""Defines the errors that users see. Any other exception is a bug, which `failure` turns into a report."""

from __future__ import annotations

from collections.abc import Iterable

from mace_core.terminal import escape_controls


class MaceError(Exception):
    """A user error, formatted as `place: what is wrong; what to do`.

    One error may hold several faults, so that a user sees all of them at once.
    """

    def __init__(self, place: object, problem: str, remedy: str = "") -> None:
        text = f"{problem}; {remedy}" if remedy else problem
        # A place is one line: a newline in a file's or a node's name must not look like another message.
        location = escape_controls(str(place), keep="")
        super().__init__(f"{location}: {text}" if location else text)
        self._place, self._text = location, text

    def __reduce__(self) -> tuple[type[MaceError], tuple[str, str]]:
        """Return what pickles keep, so that an error can come from another process."""
        return type(self), (self._place, self._text)

    @classmethod
    def of(cls, faults: Iterable[str]) -> MaceError:
        """Join faults that already have the form `place: problem; remedy`, one per line."""
        return cls("", "\n".join(faults))

    def relocate(self, place: object) -> str:
        """Return the message with another place, one that the user knows better.

        An error of several faults, which have places of their own, stays as it is.
        """
        return f"{place}: {self._text}" if self._place else str(self)


class PluginError(MaceError):
    """A plugin that cannot be loaded or breaks its contract.

    The place is the distribution with its version.
    """


class PluginWarning(UserWarning):
    """A plugin that does not work while the others do; the commands print it and go on."""

"""Defines the options that say which network a description is, whatever target runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from mace_core.emit.text import quote_name
from mace_core.errors import MaceError

FILE_OPTIONS = ("skip_yaml_layers", "skip_checkpoint_layers", "ignore_bn")
"""Options that say which layers of the files are the network."""
MAX_SHOWN = 60
"""Characters of a value that a message shows."""


@dataclass(frozen=True, kw_only=True)
class NetworkOptions:
    """Options of the vendor's tool that change the network itself, not the program that runs it.

    documented: where the vendor's tool contradicts its documentation, follow the document; the default
    follows the tool.  The names and meanings of the others are the tool's.
    """

    # Which layers of the files are the network.
    skip_yaml_layers: int = 0
    skip_checkpoint_layers: int = 0
    ignore_bn: bool = False
    stop_after: str | None = None
    # What layers compute.
    no_bias: frozenset[int] | None = None
    ignore_activation: bool = False
    output_width: int | None = None
    avg_pool_rounding: bool = False
    documented: bool = False
    # Where layers lie, and how they read.
    input_offset: int | None = None
    ignore_streaming: bool = False
    streaming_layers: frozenset[int] = frozenset()
    read_ahead: bool = False
    calcx4: bool = False

    @classmethod
    def of_files(cls, stated: Mapping[str, object], place: str) -> NetworkOptions:
        """Return those of the stated options that say which layers of the files are the network.

        stated: by the names of the vendor's command line, with - or _; other names are checked by the target.
        place: where they stand, for messages.  MaceError with all faults.
        """
        options, faults = cls(), []
        for written, value in stated.items():
            name = written.replace("-", "_")
            if name not in FILE_OPTIONS:
                continue
            try:
                if name == "ignore_bn":
                    options = replace(options, ignore_bn=_read_flag(value))
                elif name == "skip_yaml_layers":
                    options = replace(options, skip_yaml_layers=_read_count(value))
                else:
                    options = replace(options, skip_checkpoint_layers=_read_count(value))
            except ValueError:
                expected = "true or false" if name == "ignore_bn" else "an integer"
                text = quote_name(value) if isinstance(value, str) else repr(value)[:MAX_SHOWN]
                faults.append(f"{place}: {written}: {text} is not allowed; write {expected}")
        if faults:
            raise MaceError.of(faults)
        return options


def names_files(stated: object) -> bool:
    """Return whether one of the stated options says which layers of the files are the network."""
    return isinstance(stated, Mapping) and any(str(name).replace("-", "_") in FILE_OPTIONS for name in stated)


def _read_flag(value: object) -> bool:
    if value not in (True, False, 0, 1):
        raise ValueError
    return bool(value)


def _read_count(value: object) -> int:
    if isinstance(value, bool):
        raise ValueError  # noqa: TRY004  # the caller reports both in one way
    number = int(str(value))
    if number < 0:
        raise ValueError
    return number

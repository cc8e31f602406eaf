"""Writes the lines of a deployment file that a message advises, ready to be copied."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from mace_core.errors import MaceError

Dim = int | str | None
"""A dimension of a model's file: a number, a symbol, or nothing."""

YAML_WORDS = ("true", "false", "yes", "no", "on", "off", "null", "y", "n")
"""Names that YAML would not read as text."""


def lines(kind: str, names: Iterable[str], **keys: Iterable[str]) -> str:
    """Return the lines that name inputs or outputs (kind "input" or "output") and state something of each."""
    rows = {"tensors": map(_quote, names), **keys}
    return "".join(f"\n  {kind}_{key}: [{', '.join(values)}]" for key, values in rows.items())


def shape_lines(shapes: Mapping[str, Sequence[Dim] | None]) -> str:
    """The lines that state the shapes of inputs; what is unknown stands as its symbol, or as ?."""
    return lines("input", shapes, shapes=(f'"{_row(dims)}"' for dims in shapes.values()))


def is_complete(dims: Sequence[Dim] | None) -> bool:
    """Tell whether every dimension is known."""
    return dims is not None and all(isinstance(d, int) for d in dims)


def refuse_shapes(place: str, faults: Iterable[str], shapes: Mapping[str, Sequence[Dim] | None]) -> None:
    """Raise one MaceError for all faults of a model's inputs; none are no error.

    shapes: of all inputs, as far as they are known. Where one is not complete, the message ends with the
    lines that state them all.
    """
    text = [f"{place}: {fault}" for fault in faults]
    if text and not all(map(is_complete, shapes.values())):
        text[-1] += (
            f"; write in the deployment file, each name and ? replaced by a number:{shape_lines(shapes)}"
        )
    if text:
        raise MaceError.of(text)


def _quote(name: str) -> str:
    """A name as YAML takes it inside a list."""
    plain = name.replace("_", "a").isalnum() and not name[0].isdigit() and name.lower() not in YAML_WORDS
    return name if plain else json.dumps(name)


def _row(dims: Sequence[Dim] | None) -> str:
    if dims is None:
        return "?"
    return ",".join("?" if dim is None else str(dim) for dim in dims)

"""Cuts a model at the inputs and outputs that its deployment file names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from math import prod
from typing import TypeVar

from mace_core.hints import Dim
from mace_core.ir import MAX_ELEMENTS, Shape

Item = TypeVar("Item")
Name = TypeVar("Name", bound=Hashable)

LAYOUT_REMEDY = "state that shape, or the order of its axes: input_data_formats: NHWC, NCHW or NONE"


def needed_nodes(
    nodes: Sequence[Item],
    outputs: Iterable[Name],
    inputs: Collection[Name],
    ports: tuple[Callable[[Item], Iterable[Name]], Callable[[Item], Iterable[Name]]],
) -> list[Item]:
    """Return the nodes that compute the outputs, in the order of the file.

    nodes: each reads only what nodes before it write.
    inputs: tensors at which the graph is cut; the nodes that compute only them are left out.
    ports: two functions that return the names which a node reads, and those which it writes.
    """
    reads, writes = ports
    needed: list[Item] = []
    names = set(outputs)
    cuts = set(inputs)
    # Backwards, because formats with in-place operators write a name several times: of the nodes that write
    # it those before its readers are needed, and a name stays needed for earlier writers.
    for node in reversed(nodes):
        if names.intersection(writes(node)) - cuts:
            needed.append(node)
            names.update(reads(node))
    return needed[::-1]


def shape_fault(
    name: str, known: Sequence[Dim] | None, stated: Shape | None, free: Sequence[int] = ()
) -> str | None:
    """Return what is wrong with the shape of an input, with the remedy; None if it is complete.

    known: the dimensions in the model file, None if even the rank is unknown; an open dimension is a symbol
    or None.
    stated: the shape in the deployment file.  free: axes whose dimension it may change, such as a batch.
    """
    if stated is not None:
        return None if known is None or _agree(known, stated, free) else _contradiction(name, known, stated)
    if known is None:
        return f"input {name!r} has an unknown rank"
    unknown = [f"{i} ({d!r})" if d else str(i) for i, d in enumerate(known) if not isinstance(d, int)]
    return f"input {name!r} leaves dimension {', '.join(unknown)} open" if unknown else None


def size_fault(name: str, shape: Shape) -> str | None:
    """Return what is wrong with the size of an input whose shape is complete."""
    if min(shape, default=1) < 1 or prod(shape) > MAX_ELEMENTS:
        return f"input {name!r} has a shape of {list(shape)}; state another under input_shapes"
    return None


def _agree(known: Sequence[Dim], stated: Shape, free: Sequence[int]) -> bool:
    pairs = enumerate(zip(known, stated, strict=False))
    same = all(i in free or not isinstance(d, int) or d == n for i, (d, n) in pairs)
    return len(known) == len(stated) and same


def _contradiction(name: str, known: Sequence[Dim], stated: Shape) -> str:
    text = ",".join("?" if d is None else str(d) for d in known)
    pair = f"[{text}] in the model, {list(stated)} in the deployment file"
    return f"input {name!r} has shape {pair}; {LAYOUT_REMEDY}"

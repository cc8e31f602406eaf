"""The inputs and outputs between which a model is read: what its file states, completed by the deployment file."""

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
    given: Collection[Name],
    ports: tuple[Callable[[Item], Iterable[Name]], Callable[[Item], Iterable[Name]]],
) -> list[Item]:
    """Return the nodes that compute the outputs, in the order of the file, where each reads what stands before it.

    given: tensors at which the graph is cut: what computes them is left out.
    ports: return the names that a node reads, and those that it writes. A name may be written several times; the
    last node before the reader counts, and those before it are kept if they are read in between.
    """
    reads, writes = ports
    kept: list[Item] = []
    wanted = set(outputs)
    cuts = set(given)
    for node in reversed(nodes):
        if wanted.intersection(writes(node)) - cuts:
            kept.append(node)
            wanted.update(reads(node))
    return kept[::-1]


def shape_fault(
    name: str, known: Sequence[Dim] | None, stated: Shape | None, free: Sequence[int] = ()
) -> str | None:
    """Return what is wrong with an input's shape, with the remedy; None if it is complete and agrees with the file.

    known: the dimensions by the file; None for an unknown rank; a symbol or None for a dimension that it leaves open.
    stated: the shape in the deployment file.  free: axes whose number in the file may be replaced, as a batch.
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
    return f"input {name!r} has shape [{text}] in the model, {list(stated)} in the deployment file; {LAYOUT_REMEDY}"

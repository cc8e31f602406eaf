"""Parts of rows and columns: dropped where nothing reads the rest, otherwise cut by kernels that move data out of reach."""

from __future__ import annotations

from collections.abc import Sequence

from mace_core.ir import Array
from mace_core.ops.arguments import integers
from mace_core.ops.windows import Windows
from mace_core.rewrite import Match
from mace_target_max78000.automatic.forming.convolutions import (
    UNIT,
    lengths,
    native,
    plain,
    subsampled,
    unit_filters,
)
from mace_target_max78000.automatic.forming.refusal import RefusedError


def sunk(match: Match) -> Sequence[str] | None:
    """A pool over the beginning of data reads all of it, where its windows stay the same."""
    node = match.node
    cut = match.feeder(0, "Slice") if node.inputs else None
    maker = match.new.producer(node.inputs[0]) if node.inputs and node.inputs[0] else None
    cut = cut or (
        maker if maker and maker.op.name == "Slice" and match.uses.get(node.inputs[0], 1) == 1 else None
    )
    if node.op.name not in ("MaxPool", "AveragePool") or cut is None or not _beginning(cut.attrs):
        return None
    windows = Windows.of(integers(node.attrs, "kernel"), node.attrs)
    whole, part = match.new.shape(cut.inputs[0]), match.shape(0)
    same = windows.count(whole[1:-1]) == windows.count(part[1:-1]) and whole[-1] == part[-1]
    return match.emit(node.op, [cut.inputs[0]], node.attrs) if same else None


def _beginning(attrs: object) -> bool:
    assert hasattr(attrs, "__getitem__")
    return not any(attrs["starts"]) and set(attrs["steps"]) == {1}


def crops(match: Match) -> Sequence[str] | None:
    """Rows and columns cut off by convolutions that copy."""
    node = match.node
    if node.op.name != "Slice":
        return None
    shape, starts, sizes, steps = (
        match.shape(0),
        *(integers(node.attrs, key) for key in ("starts", "sizes", "steps")),
    )
    if starts[0] or starts[-1] or sizes[-1] != shape[-1] or set(steps) != {1} or len(shape) == 2:
        raise RefusedError(
            "it takes a part that the hardware cannot; take rows and columns only, each next to the other"
        )
    cuts = [(b, n - b - m) for n, b, m in zip(shape[1:-1], starts[1:-1], sizes[1:-1], strict=True)]
    x = node.inputs[0]
    native(match.new.tensors[x].storage, x)
    while any(b + a for b, a in cuts):
        odd = any((b + a) % 2 for b, a in cuts)
        if odd and len(cuts) == 2:
            x, cuts = _odd(match, x, cuts)
        else:
            x, cuts = _even(match, x, cuts)
    return [x] if x != node.inputs[0] else None


def _even(match: Match, x: str, cuts: Sequence[tuple[int, int]]) -> tuple[str, list[tuple[int, int]]]:
    """Up to as many as a kernel without padding leaves out, cut at once."""
    rank = len(cuts)
    length = 3 if rank == 2 else min(lengths(3)[-1], 1 + sum(cuts[0]))
    pads = [0 if b + a else length // 2 for b, a in cuts]
    places = [min(b, length - 1) if b + a else length // 2 for b, a in cuts]
    left = [
        (b - p, a - (length - 1 - p)) if b + a else (0, 0) for (b, a), p in zip(cuts, places, strict=True)
    ]
    if min(a for _, a in left) < 0:  # the kernel leaves out more behind than wanted: take more in front
        raise RefusedError("it cuts off a single row or column in front of two; cut an even number")
    return _copied(
        match, x, "Conv", unit_filters(match.new.shape(x)[-1], [[p] for p in places], length), plain(pads)
    ), left


def _odd(match: Match, x: str, cuts: Sequence[tuple[int, int]]) -> tuple[str, list[tuple[int, int]]]:
    """One row or column: doubled by a transposed convolution whose padding cuts off two, then every second taken."""
    pads, places, left = [], [], []
    for before, after in cuts:
        odd = (before + after) % 2
        front = odd and not after
        pads.append(2 if odd else 1)
        places.append(0 if front else 2 if odd else 1)
        left.append((before - 1, after) if front else (before, after - odd))
    filters = unit_filters(match.new.shape(x)[-1], [[p] for p in places], 3)
    attrs = {**plain(pads), "strides": (2, 2), "output_padding": (1, 1)}
    return subsampled(match.new, _copied(match, x, "ConvTranspose", filters, attrs), 2), left


def _copied(match: Match, x: str, op: str, filters: Array, attrs: object) -> str:
    new = match.new
    assert isinstance(attrs, dict)
    weight = new.weight(f"{match.node.name}.unit", filters, UNIT)
    return new.one(
        op, [x, weight], attrs, outputs=[new.stored(f"{match.node.name}.cut", new.tensors[x].storage)]
    )

"""Results that take elements from positions known at build time: Pad, Resize to the nearest.

Positions that a formula gives are computed by the kernel; only those of a Resize are a table, as long as the
axis. A table of merged axes or of a long signal would be larger than the rest of a library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from mace_core.ir import Array, Node, Tensor
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.ops.pad import PadAttributes
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.strided import MOVE, chunks
from mace_target_cpu.lower.types import MERGE_AXES, unsigned_type
from mace_target_cpu.lower.view import view

RANK = 7
"""Axes that the kernel decodes from the number of a row."""

FIELDS = (
    ("count", "i64[7]"),
    ("step", "i64[7]"),
    ("size", "i64[8]"),
    ("shift", "i64[8]"),
    ("begin", "i64[8]"),
    ("mode", "i32[8]"),
    ("lead", "i32"),
    ("n", "i64"),
    ("unit", "i64"),
    ("first", "i64"),
    ("run", "i64"),
    ("value", "i64"),
    ("rows", "i64"),
    ("grain", "i64"),
)


MODES = ("table", "constant", "edge", "reflect", "wrap")
"""How the kernel finds a position, by number; all but the first as in numpy.pad."""


@dataclass(frozen=True)
class LookupAxis:
    """An axis of x, `size` elements long, and of y, `count` long.

    mode, shift: element i of y is element i - shift of x, or outside of x what the mode says: nothing for
    "constant".
    positions: for mode "table", the position in x for each element of y, or -1 for none.
    """

    size: int
    count: int
    shift: int = 0
    mode: str = "constant"
    positions: Array | None = None

    @classmethod
    def from_table(cls, size: int, positions: Array) -> LookupAxis:
        """An axis whose positions are listed; a plain one where the list says so."""
        # A list that says what a plain axis says would keep neighbors from merging.
        if len(positions) == size and bool((positions == np.arange(size)).all()):
            return cls(size, size)
        return cls(size, len(positions), mode="table", positions=positions)

    @property
    def plain(self) -> bool:
        """Whether the axis stays as it is."""
        return self.positions is None and self.count == self.size and not self.shift

    def find_longest_run(self) -> tuple[int, int]:
        """The longest stretch of positions that follow each other: where it begins, and its length."""
        if self.positions is None:
            return self.shift, min(self.size, self.count - self.shift)
        # A stretch ends where the next position is not the next element, or none.
        breaks = np.flatnonzero((np.diff(self.positions) != 1) | (self.positions[:-1] < 0)) + 1
        starts, stops = np.array([0, *breaks]), np.array([*breaks, self.count])
        best = int(np.argmax(stops - starts))
        first, run = int(starts[best]), int(stops[best] - starts[best])
        return (first, run) if self.positions[first] >= 0 else (0, 0)


def lookup(node: Node, lowering: Lowering, axes: Sequence[LookupAxis], value: float = 0) -> None:
    """Fill the node's result from its input; `value` where a position is -1."""
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    if y.elements == 0:
        return
    *outer, inner, unit = _merge_axes(axes)
    if not outer and inner.plain:
        view(node, lowering)
        return
    if len(outer) > RANK:
        reason = f"{len(outer) + 1} axes look up their elements; the kernel knows {RANK + 1}"
        raise Refused(reason, code="shape", remedy=MERGE_AXES)
    lead = RANK - len(outer)
    axes = [*([LookupAxis(1, 1)] * lead), *outer, inner]
    sizes, counts = [a.size for a in axes], [a.count for a in axes]
    tables = [np.zeros(0, np.int32) if a.positions is None else a.positions for a in axes]
    first, run = inner.find_longest_run()
    args = {
        "count": tuple(counts[:-1]),
        "step": tuple(prod(sizes[i + 1 :]) * unit.size for i in range(RANK)),
        "size": tuple(sizes),
        "shift": tuple(a.shift for a in axes),
        "begin": tuple(sum(len(t) for t in tables[:i]) for i in range(RANK + 1)),
        "mode": tuple(MODES.index(a.mode) for a in axes),
        "lead": lead,
        "n": inner.count,
        "unit": unit.size,
        "first": first,
        "run": run,
        "value": _to_bits(value, x),
        **chunks(prod(counts[:-1]), inner.count * unit.size * x.dtype.size),
    }
    lowering.call(
        node, Call(_make_kernel(x.dtype.size), args, [x.name, _make_table(lowering, y, tables)], [y.name])
    )


def _make_table(lowering: Lowering, y: Tensor, tables: Sequence[Array]) -> str:
    """The positions that no formula gives, of all axes; "" if there are none."""
    table = np.concatenate(tables).astype(np.int32)
    return lowering.weight(f"{y.name}.positions", table.shape, "i4", lambda: table) if table.size else ""


def _merge_axes(axes: Sequence[LookupAxis]) -> list[LookupAxis]:
    """Merge neighbors that stay as they are; last the cell, then at least one axis before it."""
    merged_axes: list[LookupAxis] = []
    for axis in axes:
        if axis.size == 1 and axis.plain:
            continue
        # The elements of two plain axes lie as those of one.
        if merged_axes and merged_axes[-1].plain and axis.plain:
            size = merged_axes[-1].size * axis.size
            merged_axes[-1] = LookupAxis(size, size)
        else:
            merged_axes.append(axis)
    if not merged_axes or not merged_axes[-1].plain:
        merged_axes.append(LookupAxis(1, 1))
    return merged_axes if len(merged_axes) > 1 else [LookupAxis(1, 1), *merged_axes]


def _to_bits(value: float, tensor: Tensor) -> int:
    """A value as its element's bits, in a signed number."""
    # The kernel moves bits: it has one type for each size of element.
    element = np.asarray(int(value) if tensor.dtype.value[0] in "iu" else value).astype(tensor.dtype.numpy)
    return int(element.view(f"i{tensor.dtype.size}"))


def _make_kernel(size: int) -> Kernel:
    params = {"ctype": unsigned_type(size), "size": size}
    return Kernel(f"lookup_{8 * size}", KERNELS / "lookup.c.in", FIELDS, params, (MOVE,))


def pad(node: Node, lowering: Lowering) -> None:
    """Take the new elements from where the mode says, from nowhere if they are constant."""
    attrs = node.attributes(PadAttributes)
    mode = attrs.mode
    shape = lowering.shape(node.inputs[0])
    axes = [
        LookupAxis(size, low + size + high, low, mode)
        for size, low, high in zip(shape, attrs.before, attrs.after, strict=True)
    ]
    lookup(node, lowering, axes, attrs.value if mode == "constant" else 0)


LOWERINGS: Mapping[str, Lower] = {"Pad": pad}

"""Results whose every axis takes its elements from positions known when the library is built: Pad, Resize to the nearest.

Positions that a formula gives are computed by the kernel; only those of a Resize are a table, as long as the
axis. A table of merged axes or of a long signal would be larger than the rest of a library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from mace_core.ir import Array, Node, Tensor
from mace_core.kernel_target import Lower
from mace_core.lowering import Lowering, Refused
from mace_core.ops.pad import PadAttributes
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.strided import MOVE, chunks
from mace_target_cpu.lower.types import MERGE_AXES, unsigned
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
class Axis:
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
    def of_table(cls, size: int, positions: Array) -> Axis:
        """An axis whose positions are listed; a plain one where the list says so."""
        if len(positions) == size and bool((positions == np.arange(size)).all()):
            return cls(size, size)
        return cls(size, len(positions), mode="table", positions=positions)

    @property
    def plain(self) -> bool:
        """Whether the axis stays as it is."""
        return self.positions is None and self.count == self.size and not self.shift

    def neighbours(self) -> tuple[int, int]:
        """The longest stretch in which each position is that before it and one: where it begins, and its length."""
        if self.positions is None:
            return self.shift, min(self.size, self.count - self.shift)
        breaks = np.flatnonzero((np.diff(self.positions) != 1) | (self.positions[:-1] < 0)) + 1
        starts, ends = np.array([0, *breaks]), np.array([*breaks, self.count])
        best = int(np.argmax(ends - starts))
        first, run = int(starts[best]), int(ends[best] - starts[best])
        return (first, run) if self.positions[first] >= 0 else (0, 0)


def lookup(node: Node, to: Lowering, axes: Sequence[Axis], value: float = 0.0) -> None:
    """Fill the node's result from its input; `value` where a position is -1."""
    x, y = to.tensors[node.inputs[0]], to.tensors[node.outputs[0]]
    if y.elements == 0:
        return
    *outer, inner, unit = _merged(axes)
    if not outer and inner.plain:
        view(node, to)
        return
    if len(outer) > RANK:
        reason = f"{len(outer) + 1} axes look up their elements; the kernel knows {RANK + 1}"
        raise Refused(reason, code="shape", remedy=MERGE_AXES)
    lead = RANK - len(outer)
    axes = [*([Axis(1, 1)] * lead), *outer, inner]
    sizes, counts = [a.size for a in axes], [a.count for a in axes]
    tables = [np.zeros(0, np.int32) if a.positions is None else a.positions for a in axes]
    first, run = inner.neighbours()
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
        "value": _bits(value, x),
        **chunks(prod(counts[:-1]), inner.count * unit.size * x.dtype.size),
    }
    to.call(node, Call(_kernel(x.dtype.size), args, [x.name, _table(to, y, tables)], [y.name]))


def _table(to: Lowering, y: Tensor, tables: Sequence[Array]) -> str:
    """The positions that no formula gives, of all axes; "" if there are none."""
    table = np.concatenate(tables).astype(np.int32)
    return to.weight(f"{y.name}.positions", table.shape, "i4", lambda: table) if table.size else ""


def _merged(axes: Sequence[Axis]) -> list[Axis]:
    """Neighbours that stay as they are as one; last the cell, then at least one axis before it."""
    merged: list[Axis] = []
    for axis in axes:
        if axis.size == 1 and axis.plain:
            continue
        if merged and merged[-1].plain and axis.plain:
            size = merged[-1].size * axis.size
            merged[-1] = Axis(size, size)
        else:
            merged.append(axis)
    if not merged or not merged[-1].plain:
        merged.append(Axis(1, 1))
    return merged if len(merged) > 1 else [Axis(1, 1), *merged]


def _bits(value: float, tensor: Tensor) -> int:
    """A value as its element's bits, in a signed number."""
    element = np.asarray(int(value) if tensor.dtype.value[0] in "iu" else value).astype(tensor.dtype.numpy)
    return int(element.view(f"i{tensor.dtype.size}"))


def _kernel(size: int) -> Kernel:
    params = {"ctype": unsigned(size), "size": size}
    return Kernel(f"lookup_{8 * size}", KERNELS / "lookup.c.in", FIELDS, params, (MOVE,))


def pad(node: Node, to: Lowering) -> None:
    """Take the new elements from where the mode says, from nowhere if they are constant."""
    attrs = node.attributes(PadAttributes)
    mode = attrs.mode
    shape = to.shape(node.inputs[0])
    axes = [
        Axis(size, low + size + high, low, mode) for size, low, high in zip(shape, attrs.before, attrs.after, strict=True)
    ]
    lookup(node, to, axes, float(attrs.value) if mode == "constant" else 0.0)


LOWERINGS: Mapping[str, Lower] = {"Pad": pad}

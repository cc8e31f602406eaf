"""Results whose every axis looks up its elements at positions known when the library is built: Pad, Resize to the nearest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from mace_core.ir import Array, Node, Tensor
from mace_core.kernel_target import Lower
from mace_core.ops.arguments import integers, real
from mace_core.program import Call, Kernel, Lowering, Refused
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.strided import MOVE, chunks
from mace_target_cpu.lower.types import unsigned
from mace_target_cpu.lower.view import view

RANK = 7
"""Axes that the kernel decodes from the number of a row."""

FIELDS = (
    ("count", "i64[7]"),
    ("step", "i64[7]"),
    ("begin", "i64[7]"),
    ("lead", "i32"),
    ("inner", "i64"),
    ("n", "i64"),
    ("unit", "i64"),
    ("first", "i64"),
    ("run", "i64"),
    ("value", "i64"),
    ("rows", "i64"),
    ("grain", "i64"),
)


@dataclass(frozen=True)
class Axis:
    """An axis of x, `size` elements long, and for each element of y's the position in it, or -1 for none."""

    size: int
    positions: Array

    @property
    def plain(self) -> bool:
        """Whether the axis stays as it is."""
        return len(self.positions) == self.size and bool((self.positions == np.arange(self.size)).all())


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
        raise Refused(f"{len(outer) + 1} axes look up their elements; the kernel knows {RANK + 1}")
    lead = RANK - len(outer)
    outer = [Axis(1, np.zeros(1, np.int32))] * lead + outer
    sizes = [a.size for a in (*outer, inner)]
    lengths = [len(a.positions) for a in outer]
    table = np.concatenate([a.positions for a in (*outer, inner)]).astype(np.int32)
    name = to.weight(f"{y.name}.positions", table.shape, "i4", lambda: table)
    first, run = _neighbours(inner.positions)
    args = {
        "count": tuple(lengths),
        "step": tuple(prod(sizes[i + 1 :]) * unit.size for i in range(RANK)),
        "begin": tuple(sum(lengths[:i]) for i in range(RANK)),
        "lead": lead,
        "inner": sum(lengths),
        "n": len(inner.positions),
        "unit": unit.size,
        "first": first,
        "run": run,
        "value": _bits(value, x),
        **chunks(prod(lengths), len(inner.positions) * unit.size * x.dtype.size),
    }
    to.call(node, Call(_kernel(x.dtype.size), args, [x.name, name], [y.name]))


def _merged(axes: Sequence[Axis]) -> list[Axis]:
    """Neighbours that stay as they are as one; last the cell, then at least one axis before it."""
    merged: list[Axis] = []
    for axis in axes:
        if axis.size == 1 and axis.plain:
            continue
        if merged and merged[-1].plain and axis.plain:
            size = merged[-1].size * axis.size
            merged[-1] = Axis(size, np.arange(size))
        else:
            merged.append(axis)
    one = Axis(1, np.zeros(1, np.int32))
    if not merged or not merged[-1].plain:
        merged.append(one)
    return merged if len(merged) > 1 else [one, *merged]


def _neighbours(positions: Array) -> tuple[int, int]:
    """The longest stretch in which each position is that before it and one: where it begins, and its length."""
    breaks = np.flatnonzero((np.diff(positions) != 1) | (positions[:-1] < 0)) + 1
    starts, ends = np.array([0, *breaks]), np.array([*breaks, len(positions)])
    best = int(np.argmax(ends - starts))
    first, run = int(starts[best]), int(ends[best] - starts[best])
    return (first, run) if positions[first] >= 0 else (0, 0)


def _bits(value: float, tensor: Tensor) -> int:
    """A value as its element's bits, in a signed number."""
    element = np.asarray(int(value) if tensor.dtype.value[0] in "iu" else value).astype(tensor.dtype.numpy)
    return int(element.view(f"i{tensor.dtype.size}"))


def _kernel(size: int) -> Kernel:
    params = {"ctype": unsigned(size), "size": size}
    return Kernel(f"lookup_{8 * size}", KERNELS / "lookup.c.in", FIELDS, params, (MOVE,))


def pad(node: Node, to: Lowering) -> None:
    """Look the new elements up where the mode says, nowhere if they are constant."""
    before, after = integers(node.attrs, "before"), integers(node.attrs, "after")
    mode, value = str(node.attrs["mode"]), real(node.attrs, "value")
    axes = []
    for size, low, high in zip(to.shape(node.inputs[0]), before, after, strict=True):
        here = np.arange(size)
        how = {"constant_values": -1} if mode == "constant" else {}
        axes.append(Axis(size, np.pad(here, (low, high), mode=mode, **how) if low or high else here))  # type: ignore[call-overload]
    lookup(node, to, axes, value if mode == "constant" else 0.0)


LOWERINGS: Mapping[str, Lower] = {"Pad": pad}

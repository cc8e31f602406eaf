"""Copies between two arrangements of the same elements: a nest of loops, as few and as long as possible."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from mace_core.ir import Node
from mace_core.lowering import Lowering, Refused
from mace_core.program import Arg, Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.types import MERGE_AXES, unsigned_type
from mace_target_cpu.lower.view import view

MOVE = KERNELS / "move.h.in"
RANK = 8
"""Loops that the kernels nest, not counting the inner one or two."""

TASK_BYTES = 1 << 15
"""What one worker moves at least; less is not worth handing out."""

TILE = 32
"""Rows of a band that copy_tiles.c.in works on at a time."""

WALK = (
    ("offset", "i64"),
    ("count", "i64[8]"),
    ("read", "i64[8]"),
    ("write", "i64[8]"),
    ("rows", "i64"),
    ("grain", "i64"),
)


@dataclass(frozen=True)
class CopyLoop:
    """A loop over the elements of y: how many, and from one to the next so many elements of x and of y."""

    count: int
    read: int
    write: int = 0


@dataclass(frozen=True)
class Nest:
    """The loops of a copy, outermost first.

    `size` bytes an element, `offset` elements of x before the first.
    """

    axes: tuple[CopyLoop, ...]
    size: int
    offset: int = 0

    def widen(self) -> Nest:
        """Return the same copy with an innermost run of 2, 4 or 8 bytes as one element."""
        inner, outer = self.axes[-1], self.axes[:-1]
        n = inner.count
        steps = (self.offset, *(a.read for a in outer), *(a.write for a in outer))
        # Offsets and steps must be whole elements of the wider type.
        if inner.read != 1 or not outer or n * self.size not in (2, 4, 8) or any(s % n for s in steps):
            return self
        return Nest(
            tuple(CopyLoop(a.count, a.read // n, a.write // n) for a in outer),
            self.size * n,
            self.offset // n,
        )


def dense(shape: Sequence[int]) -> tuple[int, ...]:
    """Elements from one index of each axis to the next where they lie without gaps."""
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


def nest(loops: Iterable[CopyLoop], size: int, offset: int = 0) -> Nest:
    """Loops over a dense y in its order, neighbors merged where x allows it; at least one is left."""
    merged: list[CopyLoop] = []
    for loop in loops:
        if loop.count == 1:
            continue
        # The next loop begins where this one ends in x, as it does in the dense y.
        if merged and merged[-1].read == loop.read * loop.count:
            merged[-1] = CopyLoop(merged[-1].count * loop.count, loop.read)
        else:
            merged.append(loop)
    writes = dense([a.count for a in merged])
    axes = tuple(CopyLoop(a.count, a.read, w) for a, w in zip(merged, writes, strict=True))
    return Nest(axes or (CopyLoop(1, 1, 1),), size, offset)


def chunks(rows: int, row_bytes: int) -> dict[str, Arg]:
    """How many rows a task takes, so that it is worth handing out."""
    # Less than 32 KiB is moved faster than another worker wakes up.
    return {"rows": rows, "grain": max(1, min(rows, TASK_BYTES // max(1, row_bytes)))}


def copy(node: Node, lowering: Lowering, loops: Iterable[CopyLoop], offset: int = 0) -> None:
    """Fill the node's dense result, loop by loop in its order, from its first input.

    Share bytes where nothing moves.
    """
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    if y.elements == 0:
        return
    plan = nest(loops, x.dtype.size, offset)
    # All elements in their order: the same bytes under another name.
    if len(plan.axes) == 1 and plan.axes[0].read == 1 and x.elements == y.elements:
        view(node, lowering)
        return
    plan = plan.widen()
    *outer, inner = plan.axes
    # A loop that walks x element by element, outside of one that does not: a transposed matrix.
    across = next((a for a in outer if a.read == 1), None)
    if inner.read == 1:
        _copy_runs(node, lowering, plan)
    elif across is not None:
        _copy_tiles(node, lowering, plan, across)
    else:
        n, step = inner.count, inner.read
        kernel = _make_kernel("elements", plan, x.dtype.size, (("n", "i64"), ("step", "i64")))
        rows = _walk_args(outer, plan.offset, n * plan.size)
        lowering.call(node, Call(kernel, {**rows, "n": n, "step": step}, [x.name], [y.name]))


def _copy_runs(node: Node, lowering: Lowering, plan: Nest) -> None:
    *outer, inner = plan.axes
    loops = [CopyLoop(a.count, a.read * plan.size, a.write * plan.size) for a in outer]
    n = inner.count * plan.size
    kernel = Kernel("copy_runs", KERNELS / "copy_runs.c.in", (*WALK, ("n", "i64")), helpers=(MOVE,))
    args = {**_walk_args(loops, plan.offset * plan.size, n), "n": n}
    lowering.call(node, Call(kernel, args, node.inputs[:1], node.outputs))


def _copy_tiles(node: Node, lowering: Lowering, plan: Nest, across: CopyLoop) -> None:
    inner = plan.axes[-1]
    outer = [a for a in plan.axes[:-1] if a is not across]
    shape = {"n": inner.count, "m": across.count, "step": inner.read, "down": across.write}
    size = lowering.tensors[node.inputs[0]].dtype.size
    kernel = _make_kernel("tiles", plan, size, tuple((name, "i64") for name in shape))
    rows = _walk_args(outer, plan.offset, inner.count * TILE * plan.size)
    bands = prod(a.count for a in outer) * -(-across.count // TILE)
    args = {**rows, **chunks(bands, inner.count * min(TILE, across.count) * plan.size), **shape}
    lowering.call(node, Call(kernel, args, node.inputs[:1], node.outputs))


def _walk_args(outer: Sequence[CopyLoop], offset: int, row_bytes: int) -> dict[str, Arg]:
    """The arguments of WALK."""
    if len(outer) > RANK:
        reason = f"copies over {len(outer) + 1} axes; the kernels loop over {RANK + 1}"
        raise Refused(reason, code="shape", remedy=MERGE_AXES)
    lead = [CopyLoop(1, 0)] * (RANK - len(outer))
    loops = [*lead, *outer]
    strides: dict[str, Arg] = {
        "count": tuple(a.count for a in loops),
        "read": tuple(a.read for a in loops),
        "write": tuple(a.write for a in loops),
    }
    return {"offset": offset, **strides, **chunks(prod(a.count for a in outer), row_bytes)}


def _make_kernel(variant: str, plan: Nest, align: int, fields: tuple[tuple[str, str], ...]) -> Kernel:
    """A kernel for elements of the plan's size that are aligned as those of the tensor are."""
    bits = 8 * plan.size
    name = f"copy_{variant}_{bits}" + (f"_of_{8 * align}" if align != plan.size else "")
    params = {"ctype": unsigned_type(plan.size), "align": align}
    return Kernel(name, KERNELS / f"copy_{variant}.c.in", (*WALK, *fields), params, (MOVE,))

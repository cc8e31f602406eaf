"""Ops that only copy: each is one or more copies between strided views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from mace_core.ir import Node, Shape
from mace_core.kernel_target import Lower
from mace_core.program import Kernel, Lowering, Refused
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.view import view

RANK = 8
"""Axes that the kernel loops over."""

FIELDS = (("from_start", "i64"), ("to_start", "i64"), ("dims", "i32[8]"), ("from", "i32[8]"), ("to", "i32[8]"))


def dense(shape: Shape) -> tuple[int, ...]:
    """Elements from one index to the next along each axis."""
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


@dataclass(frozen=True)
class Copy:
    """dims, and the strides of both sides in elements, with the element that each starts at."""

    dims: Shape
    source: tuple[int, ...]
    result: tuple[int, ...]
    source_start: int = 0
    result_start: int = 0

    def loops(self) -> list[tuple[int, int, int]]:
        """(elements, source stride, result stride) with neighbours merged, in the order of the result."""
        order = sorted(zip(self.dims, self.source, self.result, strict=True), key=lambda a: -a[2])
        merged: list[tuple[int, int, int]] = []
        for dim, source, result in order:
            if dim == 1:
                continue
            if merged and merged[-1][1] == source * dim and merged[-1][2] == result * dim:
                merged[-1] = (merged[-1][0] * dim, source, result)
            else:
                merged.append((dim, source, result))
        if len(merged) > RANK:
            raise Refused(f"copying along {len(merged)} separate axes; the kernel loops over {RANK}")
        near = next((i for i, loop in enumerate(merged) if loop[1] == 1), None)
        if near is not None and len(merged) > 1 and near != len(merged) - 1:  # squares of the two contiguous axes
            merged.insert(-1, merged.pop(near))
        return merged or [(1, 1, 1)]


def copy(node: Node, to: Lowering, plan: Copy, read: str, write: str) -> None:
    """Append one strided copy."""
    size = to.tensors[write].dtype.size
    kernel = Kernel(f"move_{8 * size}", KERNELS / "move.c.in", FIELDS, {"bits": 8 * size})
    loops = plan.loops()
    lead = RANK - len(loops)
    dims, sources, results = zip(*loops, strict=True)
    if 0 in plan.dims:
        dims = (0,) * len(dims)
    args = {"from_start": plan.source_start, "to_start": plan.result_start, "dims": (1,) * lead + dims}
    to.call(node, kernel, {**args, "from": (0,) * lead + sources, "to": (0,) * lead + results}, [read], [write])


def _tuple(node: Node, key: str) -> tuple[int, ...]:
    value = node.attrs[key]
    assert isinstance(value, tuple)
    return value


def transpose(node: Node, to: Lowering) -> None:
    """A view where only axes of 1 move."""
    (x,), (y,) = node.inputs, node.outputs
    perm, shape = _tuple(node, "perm"), to.shape(x)
    moving = [p for p in perm if shape[p] != 1]
    if moving == sorted(moving):
        view(node, to)
        return
    steps = dense(shape)
    copy(node, to, Copy(to.shape(y), tuple(steps[p] for p in perm), dense(to.shape(y))), x, y)


def cut(node: Node, to: Lowering) -> None:
    """Slice."""
    (x,), (y,) = node.inputs, node.outputs
    steps = dense(to.shape(x))
    start = sum(at * step for at, step in zip(_tuple(node, "starts"), steps, strict=True))
    strides = tuple(s * step for s, step in zip(_tuple(node, "steps"), steps, strict=True))
    copy(node, to, Copy(to.shape(y), strides, dense(to.shape(y)), start), x, y)


def split(node: Node, to: Lowering) -> None:
    """A copy for each part."""
    (x,) = node.inputs
    axis = node.attrs["axis"]
    assert isinstance(axis, int)
    steps, at = dense(to.shape(x)), 0
    for y in node.outputs:
        shape = to.shape(y)
        copy(node, to, Copy(shape, steps, dense(shape), at * steps[axis]), x, y)
        at += shape[axis]


def concat(node: Node, to: Lowering) -> None:
    """A copy for each part."""
    (y,) = node.outputs
    axis = node.attrs["axis"]
    assert isinstance(axis, int)
    steps, at = dense(to.shape(y)), 0
    for x in node.inputs:
        shape = to.shape(x)
        copy(node, to, Copy(shape, dense(shape), steps, 0, at * steps[axis]), x, y)
        at += shape[axis]


def repeated(shape: Shape, repeats: Sequence[int]) -> tuple[Shape, tuple[int, ...]]:
    """Dimensions (repeat, size) of each axis in turn, and the source's strides."""
    steps = dense(shape)
    pairs = [pair for r, d, s in zip(repeats, shape, steps, strict=True) for pair in ((r, 0), (d, s))]
    return tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)


def tile(node: Node, to: Lowering) -> None:
    """Tile, and Expand as the tiling of axes of 1."""
    (x,), (y,) = node.inputs, node.outputs
    out = to.shape(y)
    shape = (1,) * (len(out) - len(to.shape(x))) + to.shape(x)
    dims, strides = repeated(shape, [o // d if d else 1 for o, d in zip(out, shape, strict=True)])
    copy(node, to, Copy(dims, strides, dense(dims)), x, y)


LOWERINGS: Mapping[str, Lower] = {
    "Transpose": transpose,
    "Slice": cut,
    "Split": split,
    "Concat": concat,
    "Tile": tile,
    "Expand": tile,
}

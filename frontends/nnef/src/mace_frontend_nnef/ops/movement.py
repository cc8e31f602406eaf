"""Operations that move elements, and those that hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

import numpy as np

from mace_core.ir import Array, Shape
from mace_frontend_nnef.node import NnefNode
from mace_frontend_nnef.ops import Handler
from mace_frontend_nnef.source import DTYPES

MODES: Mapping[str, str] = MappingProxyType(
    {"constant": "constant", "replicate": "edge", "reflect": "reflect", "reflect-even": ""}
)
"""The IR's modes of Pad for NNEF's borders; none repeats the elements at the edge themselves."""

MAX_ELEMENTS = 1 << 28
"""Of a constant that the text spells out as one number."""


def _variable(node: NnefNode) -> Sequence[str]:
    """A variable keeps the value of its file: `update` is not supported."""
    label, kind = str(node.attribute("label")), node.operation.dtype
    array = node.importer.source.variable(label, node.integers("shape"), kind)
    return [node.builder.weight(node.name, array)]


def _constant(node: NnefNode) -> Sequence[str]:
    """All elements, or one for all of them."""
    shape, values = node.integers("shape"), list(node.attribute("value"))
    count, kind = prod(shape), node.operation.dtype
    node.refuse_unless(
        0 < count <= MAX_ELEMENTS and len(values) in (1, count), f"{len(values)} values for {list(shape)}"
    )
    if len(values) == 1 and count > 1:
        one = node.constant_of(kind, values, (1,) * len(shape), "element")
        return node.done("Expand", [one], {"shape": shape})
    return [node.builder.weight(node.name, _array(kind, values, shape))]


def _array(kind: str, values: Sequence[object], shape: Sequence[int]) -> Array:
    return np.asarray(values, DTYPES[kind]).reshape(shape)


def _reshape(node: NnefNode) -> Sequence[str]:
    """`axis_count` axes from `axis_start` on; 0 keeps the axis at its place, -1 is what is left."""
    shape = node.shape("input")
    start, count = node.integer("axis_start"), node.integer("axis_count")
    stop = len(shape) if count == -1 else start + count
    node.refuse_unless(0 <= start <= stop <= len(shape), f"axes {start} to {stop} of a rank of {len(shape)}")
    wanted = node.integers("shape")
    copied = [start + i for i, d in enumerate(wanted) if d == 0]
    node.refuse_unless(
        all(i < len(shape) for i in copied), f"its shape {list(wanted)} of a rank of {len(shape)}"
    )
    middle = [shape[start + i] if d == 0 else d for i, d in enumerate(wanted)]
    whole, known = prod(shape[start:stop]), prod(d for d in middle if d != -1)
    node.refuse_unless(
        middle.count(-1) <= 1 and min(middle, default=1) >= -1 and known > 0,
        f"its shape is {list(wanted)}",
    )
    sizes = [whole // known if d == -1 else d for d in middle]
    node.refuse_unless(prod(sizes) == whole, f"its shape {list(wanted)} for {list(shape[start:stop])}")
    return node.done("Reshape", [node.input("input")], {"shape": (*shape[:start], *sizes, *shape[stop:])})


def _transpose(node: NnefNode) -> Sequence[str]:
    """Axes that are not listed stay behind."""
    rank = len(node.shape("input"))
    axes = node.axes("axes", rank)
    node.refuse_unless(sorted(axes) == list(range(len(axes))), f"its axes {list(axes)} leave out one")
    return node.done("Transpose", [node.input("input")], {"perm": (*axes, *range(len(axes), rank))})


def _squeeze(node: NnefNode) -> Sequence[str]:
    shape = node.shape("input")
    axes = node.axes("axes", len(shape))
    node.refuse_unless(all(shape[a] == 1 for a in axes), f"axes {list(axes)} of {list(shape)} are not all 1")
    kept = tuple(d for i, d in enumerate(shape) if i not in axes)
    return node.done("Reshape", [node.input("input")], {"shape": kept})


def _unsqueeze(node: NnefNode) -> Sequence[str]:
    """The axes are those of the result."""
    shape = node.shape("input")
    axes = node.axes("axes", len(shape) + len(node.integers("axes")))
    rest = iter(shape)
    wide = tuple(1 if i in axes else next(rest) for i in range(len(shape) + len(axes)))
    return node.done("Reshape", [node.input("input")], {"shape": wide})


def _concat(node: NnefNode) -> Sequence[str]:
    values = node.listed("values")
    axis = _axis(node, len(node.builder.shape(values[0])))
    return node.done("Concat", values, {"axis": axis})


def _axis(node: NnefNode, rank: int) -> int:
    axis = node.integer("axis")
    node.refuse_unless(0 <= axis < rank, f"axis {axis} of a tensor of rank {rank}")
    return axis


def _split(node: NnefNode) -> Sequence[str]:
    shape, ratios = node.shape("value"), node.integers("ratios")
    axis = _axis(node, len(shape))
    total = sum(ratios)
    node.refuse_unless(
        min(ratios, default=0) > 0 and shape[axis] % total == 0,
        f"{shape[axis]} elements in the ratios {list(ratios)}",
    )
    sizes = tuple(r * (shape[axis] // total) for r in ratios)
    return node.done("Split", [node.input("value")], {"axis": axis, "sizes": sizes})


def _stack(node: NnefNode) -> Sequence[str]:
    values = node.listed("values")
    shape = node.builder.shape(values[0])
    axis = _axis(node, len(shape) + 1)
    wide = (*shape[:axis], 1, *shape[axis:])
    parts = [node.emit("Reshape", [value], {"shape": wide}, tag="part") for value in values]
    return node.done("Concat", parts, {"axis": axis})


def _unstack(node: NnefNode) -> Sequence[str]:
    shape, results = node.shape("value"), node.results()
    axis = _axis(node, len(shape))
    node.refuse_unless(len(results) == shape[axis], f"{len(results)} results of {shape[axis]} elements")
    attrs = {"axis": axis, "sizes": (1,) * shape[axis]}
    parts = node.emit_all("Split", [node.input("value")], attrs, tag="part", count=shape[axis])
    flat = {"shape": (*shape[:axis], *shape[axis + 1 :])}
    names = node.output_names(node.builder.ops["Reshape"], None)
    return [
        node.add("Reshape", [part], flat, [name], node.origin)[0]
        for part, name in zip(parts, names, strict=True)
    ]


def _slice(node: NnefNode) -> Sequence[str]:
    """From `begin` to `end`, counted from the back where negative; an end of 0 is the end of the axis.

    With a negative stride the elements come in reverse, and an end of 0 is the first element's front.
    """
    shape = node.shape("input")
    axes = node.axes("axes", len(shape))
    begins, ends = node.integers("begin"), node.integers("end")
    strides = node.integers("stride") or (1,) * len(axes)
    same = len(begins) == len(ends) == len(strides) == len(axes)
    node.refuse_unless(same and all(strides), f"{len(axes)} axes, strides {list(strides)}")
    taken = [range(d) for d in shape]
    for axis, begin, end, stride in zip(axes, begins, ends, strides, strict=True):
        size = shape[axis]
        node.refuse_unless(
            -size <= begin <= size and -size <= end <= size, f"{begin} to {end} of {size} elements"
        )
        first = begin + size if begin < 0 else begin
        last = end + size if end < 0 or (end == 0 and stride > 0) else end
        stop = None if end == 0 and stride < 0 else last
        taken[axis] = range(*slice(first, stop, stride).indices(size))
        node.refuse_unless(len(taken[axis]) > 0, f"{begin} to {end} of {size} elements are none")
    attrs = {
        "starts": tuple(r.start for r in taken),
        "sizes": tuple(len(r) for r in taken),
        "steps": tuple(r.step for r in taken),
    }
    return node.done("Slice", [node.input("input")], attrs)


def _tile(node: NnefNode) -> Sequence[str]:
    repeats, rank = node.integers("repeats"), len(node.shape("input"))
    node.refuse_unless(
        len(repeats) == rank and min(repeats, default=1) > 0, f"its repeats are {list(repeats)}"
    )
    return node.done("Tile", [node.input("input")], {"repeats": repeats})


def _pad(node: NnefNode) -> Sequence[str]:
    pairs, rank = node.attribute("padding"), len(node.shape("input"))
    node.refuse_unless(len(pairs) == rank, f"{len(pairs)} paddings of a tensor of rank {rank}")
    border = str(node.attribute("border"))
    node.refuse_unless(border in MODES, f"border {border!r}; known are {', '.join(MODES)}")
    before, after = (tuple(int(pair[i]) for pair in pairs) for i in range(2))
    value = node.number("value") if border == "constant" else 0.0
    return node.done("Identity", [padded(node, node.input("input"), (before, after), (border, value))])


def padded(node: NnefNode, x: str, widths: tuple[Shape, Shape], fill: tuple[str, float]) -> str:
    """Return a tensor with a border.

    widths: before and after each axis.  fill: the name of the border, and the value of a constant one.
    """
    (before, after), (border, value) = widths, fill
    node.refuse_unless(min((*before, *after), default=0) >= 0, "a negative padding; slice its input")
    if border != "reflect-even":
        attrs: dict[str, object] = {"before": before, "after": after, "mode": MODES[border]}
        if border == "constant":
            attrs["value"] = value
        return node.emit("Pad", [x], attrs, tag="padded")
    for axis, (low, high) in enumerate(zip(before, after, strict=True)):
        size = node.builder.shape(x)[axis]
        node.refuse_unless(max(low, high) <= size, f"a border of {max(low, high)} of {size} elements")
        if low or high:
            places = np.pad(np.arange(size), (low, high), mode="symmetric")
            x = node.emit(
                "Gather", [x, node.add_constant(places, tag="places")], {"axis": axis}, tag="padded"
            )
    return x


def _gather(node: NnefNode) -> Sequence[str]:
    axis = _axis(node, len(node.shape("input")))
    return node.done("Gather", [node.input("input"), node.input("indices")], {"axis": axis})


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "variable": _variable,
        "constant": _constant,
        "reshape": _reshape,
        "transpose": _transpose,
        "squeeze": _squeeze,
        "unsqueeze": _unsqueeze,
        "concat": _concat,
        "split": _split,
        "stack": _stack,
        "unstack": _unstack,
        "slice": _slice,
        "tile": _tile,
        "pad": _pad,
        "gather": _gather,
    }
)

"""Converts operations that move elements, and those that state them: variables and constants."""

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
"""NNEF's borders -> modes of the IR's Pad; "" for the one that it does not have.

reflect-even mirrors the element at the edge too, as numpy's "symmetric" does.
"""

MAX_ELEMENTS = 1 << 28
"""Of a constant: one number may stand for all, so a few bytes of a description can ask for any size."""


def _variable(node: NnefNode) -> Sequence[str]:
    """Read a variable. Its file makes it a constant: `update`, which would change it, is not supported."""
    label = str(node.attribute("label"))
    array = node.importer.source.variable(label, node.integers("shape"), node.operation.dtype)
    return [node.builder.weight(node.name, array)]


def _constant(node: NnefNode) -> Sequence[str]:
    """Add a constant; the description states all elements, or one for all of them."""
    shape, values = node.integers("shape"), list(node.attribute("value"))
    count, kind = prod(shape), node.operation.dtype
    node.refuse_unless(
        0 < count <= MAX_ELEMENTS and len(values) in (1, count), f"{len(values)} values for {list(shape)}"
    )
    if len(values) == 1 and count > 1:
        # Expand, so that the graph does not store equal elements.
        one = node.constant_of(kind, values, (1,) * len(shape), "element")
        return node.done("Expand", [one], {"shape": shape})
    return [node.builder.weight(node.name, _array(kind, values, shape))]


def _array(kind: str, values: Sequence[object], shape: Sequence[int]) -> Array:
    return np.asarray(values, DTYPES[kind]).reshape(shape)


def _reshape(node: NnefNode) -> Sequence[str]:
    """Give the `axis_count` axes from `axis_start` on another shape.

    A size of 0 keeps the size of the axis at that place, -1 stands for what is left of the elements.
    """
    shape = node.shape("input")
    start, count = node.integer("axis_start"), node.integer("axis_count")
    stop = len(shape) if count == -1 else start + count
    node.refuse_unless(0 <= start <= stop <= len(shape), f"axes {start} to {stop} of a rank of {len(shape)}")
    sizes = node.integers("shape")
    copied_axes = [start + i for i, size in enumerate(sizes) if size == 0]
    node.refuse_unless(
        all(axis < len(shape) for axis in copied_axes),
        f"its shape {list(sizes)} of a rank of {len(shape)}",
    )
    middle = [shape[start + i] if size == 0 else size for i, size in enumerate(sizes)]
    elements, stated_elements = prod(shape[start:stop]), prod(size for size in middle if size != -1)
    node.refuse_unless(
        middle.count(-1) <= 1 and min(middle, default=1) >= -1 and stated_elements > 0,
        f"its shape is {list(sizes)}",
    )
    complete = [elements // stated_elements if size == -1 else size for size in middle]
    node.refuse_unless(prod(complete) == elements, f"its shape {list(sizes)} for {list(shape[start:stop])}")
    return node.done("Reshape", [node.input("input")], {"shape": (*shape[:start], *complete, *shape[stop:])})


def _transpose(node: NnefNode) -> Sequence[str]:
    """Permute the first axes; those that are not listed keep their place behind them."""
    rank = len(node.shape("input"))
    axes = node.axes("axes", rank)
    node.refuse_unless(sorted(axes) == list(range(len(axes))), f"its axes {list(axes)} leave out one")
    return node.done("Transpose", [node.input("input")], {"perm": (*axes, *range(len(axes), rank))})


def _squeeze(node: NnefNode) -> Sequence[str]:
    shape = node.shape("input")
    axes = node.axes("axes", len(shape))
    node.refuse_unless(
        all(shape[axis] == 1 for axis in axes), f"axes {list(axes)} of {list(shape)} are not all 1"
    )
    narrow = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    return node.done("Reshape", [node.input("input")], {"shape": narrow})


def _unsqueeze(node: NnefNode) -> Sequence[str]:
    """Insert axes of 1; `axes` counts those of the result."""
    shape = node.shape("input")
    axes = node.axes("axes", len(shape) + len(node.integers("axes")))
    sizes = iter(shape)
    wide = tuple(1 if axis in axes else next(sizes) for axis in range(len(shape) + len(axes)))
    return node.done("Reshape", [node.input("input")], {"shape": wide})


def _concat(node: NnefNode) -> Sequence[str]:
    values = node.tensor_list("values")
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
    values = node.tensor_list("values")
    shape = node.builder.shape(values[0])
    axis = _axis(node, len(shape) + 1)
    # The IR has no Stack: each value gets the new axis, along which they are concatenated.
    wide = (*shape[:axis], 1, *shape[axis:])
    parts = [node.emit("Reshape", [value], {"shape": wide}, tag="part") for value in values]
    return node.done("Concat", parts, {"axis": axis})


def _unstack(node: NnefNode) -> Sequence[str]:
    shape, count = node.shape("value"), len(node.results())
    axis = _axis(node, len(shape))
    node.refuse_unless(count == shape[axis], f"{count} results of {shape[axis]} elements")
    # Split keeps the axis with size 1; the Reshape after it drops that.
    attrs = {"axis": axis, "sizes": (1,) * shape[axis]}
    parts = node.emit_all("Split", [node.input("value")], attrs, tag="part", count=shape[axis])
    flat = {"shape": (*shape[:axis], *shape[axis + 1 :])}
    names = node.output_names(node.builder.ops["Reshape"], None)
    results: list[str] = []
    for part, name in zip(parts, names, strict=True):
        results += node.add("Reshape", [part], flat, [name], node.origin)
    return results


def _slice(node: NnefNode) -> Sequence[str]:
    """Take the elements from `begin` to `end`; negative numbers count from the back.

    NNEF has no other word for "up to the last": an `end` of 0 means that. With a negative stride the elements
    come in reverse, and an `end` of 0 includes the first element.
    """
    shape = node.shape("input")
    axes = node.axes("axes", len(shape))
    begins, stops = node.integers("begin"), node.integers("end")
    strides = node.integers("stride") or (1,) * len(axes)
    has_all = len(begins) == len(stops) == len(strides) == len(axes)
    node.refuse_unless(has_all and all(strides), f"{len(axes)} axes, strides {list(strides)}")
    ranges = [range(size) for size in shape]
    for axis, begin, end, stride in zip(axes, begins, stops, strides, strict=True):
        size = shape[axis]
        node.refuse_unless(
            -size <= begin <= size and -size <= end <= size, f"{begin} to {end} of {size} elements"
        )
        first = begin + size if begin < 0 else begin
        last = end + size if end < 0 or (end == 0 and stride > 0) else end
        stop = None if end == 0 and stride < 0 else last
        ranges[axis] = range(*slice(first, stop, stride).indices(size))
        node.refuse_unless(len(ranges[axis]) > 0, f"{begin} to {end} of {size} elements are none")
    attrs = {
        "starts": tuple(r.start for r in ranges),
        "sizes": tuple(len(r) for r in ranges),
        "steps": tuple(r.step for r in ranges),
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
    return node.done("Identity", [add_border(node, node.input("input"), (before, after), (border, value))])


def add_border(node: NnefNode, x: str, widths: tuple[Shape, Shape], fill: tuple[str, float]) -> str:
    """Return a tensor with a border around it.

    widths: before and after each axis.  fill: the name of the border, and the value of a constant one.
    """
    (before, after), (border, value) = widths, fill
    node.refuse_unless(min((*before, *after), default=0) >= 0, "a negative padding; slice its input")
    if border != "reflect-even":
        attrs: dict[str, object] = {"before": before, "after": after, "mode": MODES[border]}
        if border == "constant":
            attrs["value"] = value
        return node.emit("Pad", [x], attrs, tag="padded")
    # Pad of the IR has no such mode; the border is gathered, one axis after another, from the elements that
    # numpy's "symmetric" mode would copy.
    for axis, (low, high) in enumerate(zip(before, after, strict=True)):
        size = node.builder.shape(x)[axis]
        node.refuse_unless(max(low, high) <= size, f"a border of {max(low, high)} of {size} elements")
        if low or high:
            indices = node.add_constant(np.pad(np.arange(size), (low, high), mode="symmetric"), tag="places")
            x = node.emit("Gather", [x, indices], {"axis": axis}, tag="padded")
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

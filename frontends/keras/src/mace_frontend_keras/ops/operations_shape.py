"""Operations of keras.ops that move elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.ir import DType, Shape
from mace_frontend_keras.network import Ref, refs
from mace_frontend_keras.node import KerasNode
from mace_frontend_keras.ops import Handler
from mace_frontend_keras.ops.operations import first_operand, unify_types
from mace_frontend_keras.ops.pool import HANDLERS as POOLS
from mace_frontend_keras.ops.shape import done_resize, resolve_shape


def _identity(node: KerasNode) -> Sequence[str]:
    return node.done("Identity", [first_operand(node)])


def _reshape(node: KerasNode) -> Sequence[str]:
    x = first_operand(node)
    # A batch of unknown size is -1 in the file, or null.
    dims = [-1 if dim is None else dim for dim in _as_list(node, node.argument(1, "newshape", "shape"))]
    return node.done("Reshape", [x], {"shape": resolve_shape(node, dims, node.shape(x))})


def _as_list(node: KerasNode, value: Any) -> list[Any]:
    """Return a setting as a list; RefusedError where it is computed at run time."""
    node.refuse_unless(
        not list(refs(value)), "a shape or place that is computed at run time; write it as numbers"
    )
    return list(value) if isinstance(value, list | tuple | np.ndarray) else [value]


def _transpose(node: KerasNode) -> Sequence[str]:
    x = first_operand(node)
    rank, axes = len(node.shape(x)), node.argument(1, "axes", "perm")
    perm = tuple(reversed(range(rank)))  # without axes, as numpy
    if axes is not None:
        perm = tuple(node.axis(axis, rank) for axis in _as_list(node, axes))
    return node.done("Transpose", [x], {"perm": perm})


def _ravel(node: KerasNode) -> Sequence[str]:
    x = first_operand(node)
    return node.done("Reshape", [x], {"shape": (prod(node.shape(x)),)})


def _swap(node: KerasNode) -> Sequence[str]:
    x = first_operand(node)
    perm = list(range(len(node.shape(x))))
    a, b = (node.axis(node.argument(i, f"axis{i}"), len(perm)) for i in (1, 2))
    perm[a], perm[b] = b, a
    return node.done("Transpose", [x], {"perm": tuple(perm)})


def _move(node: KerasNode) -> Sequence[str]:
    x = first_operand(node)
    rank = len(node.shape(x))
    sources = [node.axis(axis, rank) for axis in _as_list(node, node.argument(1, "source"))]
    destinations = [node.axis(axis, rank) for axis in _as_list(node, node.argument(2, "destination"))]
    perm = [axis for axis in range(rank) if axis not in sources]
    # In ascending order of destinations, so that a later insertion does not shift an earlier one.
    for destination, source in sorted(zip(destinations, sources, strict=True)):
        perm.insert(destination, source)
    return node.done("Transpose", [x], {"perm": tuple(perm)})


def _expand(node: KerasNode) -> Sequence[str]:
    x = first_operand(node)
    shape, axes = list(node.shape(x)), _as_list(node, node.argument(1, "axis", default=0))
    for axis in sorted(node.axis(a, len(shape) + len(axes)) for a in axes):
        shape.insert(axis, 1)
    return node.done("Reshape", [x], {"shape": tuple(shape)})


def _squeeze(node: KerasNode) -> Sequence[str]:
    x = first_operand(node)
    shape, axis = node.shape(x), node.argument(1, "axis")
    axes = [i for i, d in enumerate(shape) if d == 1] if axis in (None, []) else node.axes(axis, len(shape))
    node.require_consistent(
        all(shape[a] == 1 for a in axes), f"its axes {list(axes)} of {list(shape)} are not 1"
    )
    return node.done("Reshape", [x], {"shape": tuple(d for i, d in enumerate(shape) if i not in axes)})


def _terms(node: KerasNode) -> list[str]:
    values = node.first_argument([])
    return unify_types(node, values if isinstance(values, list | tuple) else [values])


def _concatenate(node: KerasNode) -> Sequence[str]:
    terms = _terms(node)
    axis = node.axis(node.argument(1, "axis", default=0), len(node.shape(terms[0])))
    return node.done("Concat", terms, {"axis": axis})


def _stack(node: KerasNode) -> Sequence[str]:
    terms = _terms(node)
    shape = node.shape(terms[0])
    axis = node.axis(node.argument(1, "axis", default=0), len(shape) + 1)
    rows = [node.emit("Reshape", [t], {"shape": (*shape[:axis], 1, *shape[axis:])}, tag="row") for t in terms]
    return node.done("Concat", rows, {"axis": axis})


def _split(node: KerasNode) -> Sequence[str]:
    """Add a split in equal parts, or at these places."""
    x = first_operand(node)
    shape, sections = node.shape(x), node.argument(1, "indices_or_sections")
    axis = node.axis(node.argument(2, "axis", default=0), len(shape))
    if type(sections) is int:
        fits = sections > 0 and shape[axis] % sections == 0
        node.require_consistent(fits, f"it splits {shape[axis]} elements in {sections} parts")
        return _done_parts(node, x, axis, (shape[axis] // sections,) * sections)
    bounds = [0, *_as_list(node, sections), shape[axis]]
    return _done_parts(node, x, axis, tuple(end - start for start, end in pairwise(bounds)))


def _done_parts(node: KerasNode, x: str, axis: int, sizes: Shape) -> Sequence[str]:
    return node.done("Split", [x], {"axis": axis, "sizes": sizes}, count=len(sizes))


def _split_sizes(node: KerasNode) -> Sequence[str]:
    """Add TensorFlow's split: in equal parts, or in parts of these sizes."""
    x = first_operand(node)
    shape, sizes = node.shape(x), node.argument(1, "num_or_size_splits")
    if type(sizes) is int:
        return _split(node)
    axis = node.axis(node.argument(2, "axis", default=0), len(shape))
    if len(sizes) == 1:  # the one part may be -1
        return _done_parts(node, x, axis, (shape[axis],))
    parts = [int(size) for size in sizes]
    # One size may be -1: what the others leave.
    if parts.count(-1) == 1:
        parts[parts.index(-1)] = shape[axis] - sum(parts) - 1
    return _done_parts(node, x, axis, tuple(parts))


def _unstack(node: KerasNode) -> Sequence[str]:
    x = first_operand(node)
    shape = node.shape(x)
    axis = node.axis(node.setting("axis", default=0), len(shape))
    names = [node.builder.fresh(f"{node.name}/part{i}") for i in range(shape[axis])]
    attrs = {"axis": axis, "sizes": (1,) * shape[axis]}
    parts = node.builder.add("Split", [x], attrs, outputs=names, like=node.origin)
    rest = (*shape[:axis], *shape[axis + 1 :])
    return node.done_all([node.emit("Reshape", [p], {"shape": rest}) for p in parts])


def _get_item(node: KerasNode) -> Sequence[str]:
    """Add x[key]: a Slice of every axis, then a Reshape for axes that numbers drop and None adds."""
    x = first_operand(node)
    shape = node.shape(x)
    ranges: list[range] = []
    sizes: list[int] = []
    for item in _read_key(node, len(shape)):
        if item is None:
            sizes.append(1)
            continue
        size = shape[len(ranges)]
        if isinstance(item, slice):
            ranges.append(range(*item.indices(size)))
            sizes.append(len(ranges[-1]))
        else:
            node.require_supported(
                type(item) is int and -size <= item < size, f"it reads place {item!r} of {size}"
            )
            ranges.append(range(item % size, item % size + 1))
    attrs = {
        "starts": tuple(r.start if len(r) else 0 for r in ranges),
        "sizes": tuple(len(r) for r in ranges),
        "steps": tuple(r.step for r in ranges),
    }
    part = node.emit("Slice", [x], attrs, tag="slice")
    return node.done("Reshape", [part], {"shape": tuple(sizes)})


def _read_key(node: KerasNode, rank: int) -> list[Any]:
    """Return the items of a key: one for each axis, None for each new one, and no ellipsis."""
    key = node.argument(1, "key", "slice_spec")
    items = list(key) if isinstance(key, list | tuple) else [key]
    # Keras 2 writes a slice as a plain dictionary.
    items = [
        slice(item.get("start"), item.get("stop"), item.get("step"))
        if isinstance(item, dict) and "start" in item
        else item
        for item in items
    ]
    node.refuse_unless(not list(refs(items)), "places that are computed at run time; use take()")
    taken = sum(item is not None and item is not ... for item in items)
    node.require_consistent(
        items.count(...) <= 1 and taken <= rank, f"it reads {taken} places of a tensor of rank {rank}"
    )
    # Axes that the key does not name are whole, at the ellipsis or at the end.
    position = items.index(...) if ... in items else len(items)
    return [*items[:position], *[slice(None)] * (rank - taken), *items[position + (... in items) :]]


def _flip(node: KerasNode) -> Sequence[str]:
    x = first_operand(node)
    shape = node.shape(x)
    axes = node.axes(node.argument(1, "axis"), len(shape))
    starts = tuple(size - 1 if axis in axes else 0 for axis, size in enumerate(shape))
    steps = tuple(-1 if axis in axes else 1 for axis in range(len(shape)))
    return node.done("Slice", [x], {"starts": starts, "sizes": shape, "steps": steps})


def _roll(node: KerasNode) -> Sequence[str]:
    x = first_operand(node)
    shift, axis = node.argument(1, "shift"), node.argument(2, "axis")
    node.refuse_unless(
        type(shift) is int and type(axis) is int, f"a roll by {shift!r} along {axis!r}; roll along one axis"
    )
    shape = node.shape(x)
    axis = node.axis(axis, len(shape))
    size = shape[axis]
    cut = (-shift) % size if size else 0
    sizes = (cut, size - cut)
    names = [node.builder.fresh(f"{node.name}/part{i}") for i in range(2)]
    attrs = {"axis": axis, "sizes": sizes}
    low, high = node.builder.add("Split", [x], attrs, outputs=names, like=node.origin)
    return node.done("Concat", [high, low], {"axis": axis})


def _repeat(node: KerasNode) -> Sequence[str]:
    x = first_operand(node)
    times, axis = node.argument(1, "repeats"), node.argument(2, "axis")
    node.refuse_unless(
        type(times) is int and axis is not None,
        f"repeats {times!r} along axis {axis!r}; repeat along one axis",
    )
    shape = node.shape(x)
    axis = node.axis(axis, len(shape))
    wide = node.emit("Reshape", [x], {"shape": (*shape[: axis + 1], 1, *shape[axis + 1 :])})
    # Each element is repeated before the next one comes: copies on an axis of their own, behind the
    # element's.
    repeats = tuple(times if i == axis + 1 else 1 for i in range(len(shape) + 1))
    tiled = node.emit("Tile", [wide], {"repeats": repeats})
    return node.done("Reshape", [tiled], {"shape": (*shape[:axis], shape[axis] * times, *shape[axis + 1 :])})


def _tile(node: KerasNode) -> Sequence[str]:
    x = first_operand(node)
    times, shape = _as_list(node, node.argument(1, "repeats", "multiples")), node.shape(x)
    rank = max(len(times), len(shape))
    wide = (*(1,) * (rank - len(shape)), *shape)
    x = x if wide == shape else node.emit("Reshape", [x], {"shape": wide})
    return node.done("Tile", [x], {"repeats": (*(1,) * (rank - len(times)), *times)})


def _pad(node: KerasNode) -> Sequence[str]:
    x = first_operand(node)
    rank = len(node.shape(x))
    width = _as_list(node, node.argument(1, "pad_width", "paddings"))
    pairs = [[w, w] if type(w) is int else list(w) for w in (width * rank if len(width) == 1 else width)]
    mode = str(node.argument(2, "mode", default="constant")).lower()
    node.require_supported(
        len(pairs) == rank and mode in ("constant", "reflect", "edge", "wrap"),
        f"it has padding {width!r} of mode {mode!r}",
    )
    value = node.argument(3, "constant_values", default=0)
    attrs = {"before": tuple(p[0] for p in pairs), "after": tuple(p[-1] for p in pairs), "mode": mode}
    return node.done("Pad", [x], {**attrs, "value": float(value or 0)})


def _broadcast(node: KerasNode) -> Sequence[str]:
    return node.done(
        "Expand", [first_operand(node)], {"shape": tuple(_as_list(node, node.argument(1, "shape")))}
    )


def _take(node: KerasNode) -> Sequence[str]:
    x = first_operand(node)
    axis = node.argument(2, "axis")
    if axis is None:
        x, axis = node.emit("Reshape", [x], {"shape": (prod(node.shape(x)),)}), 0
    return done_take(node, x, axis)


def done_take(node: KerasNode, x: str, axis: int) -> Sequence[str]:
    """Add the elements of a tensor at the places that the second argument lists, along an axis."""
    places = node.argument(1, "indices")
    if isinstance(places, Ref):
        tensor = node.importer.tensor(places)
    else:
        tensor = node.builder.weight(f"{node.name}/places", np.asarray(places, np.int64))
    if node.builder.tensors[tensor].dtype.is_float:
        tensor = node.emit("Cast", [tensor], {"to": "i64"})
    return node.done("Gather", [x, tensor], {"axis": node.axis(axis, len(node.shape(x)))})


def _one_hot(node: KerasNode) -> Sequence[str]:
    x = first_operand(node)
    depth = node.argument(1, "num_classes", "depth")
    node.require_consistent(type(depth) is int and depth > 0, f"it has {depth!r} classes")
    places = node.emit("Cast", [x], {"to": "i64"})
    # The IR's op counts negative places from the end, Keras has no element for them: as for the depth.
    zero, limit = (node.add_constant(number, DType.I64, "limit") for number in (0, depth))
    below = node.emit("Less", [places, zero], tag="below")
    places = node.emit("Where", [below, limit, places], tag="places")
    # tf.one_hot alone has other values than 0 and 1.
    pair = [node.setting("off_value", default=0), node.setting("on_value", default=1)]
    values = node.add_float(np.array(pair), "values")
    return node.done("OneHot", [places, values], {"depth": depth, "axis": node.setting("axis", default=-1)})


def _top_k(node: KerasNode) -> Sequence[str]:
    x = first_operand(node)
    names = [node.builder.fresh(f"{node.name}/{tag}") for tag in ("values", "places")]
    attrs = {"k": node.argument(1, "k", default=1), "axis": len(node.shape(x)) - 1}
    values, places = node.builder.add("TopK", [x], attrs, outputs=names, like=node.origin)
    return node.done_all([values, node.emit("Cast", [places], {"to": "i32"})])


def _resize(node: KerasNode) -> Sequence[str]:
    # The IR's Resize has none of these; without them the result would be wrong silently.
    for key in ("antialias", "crop_to_aspect_ratio", "pad_to_aspect_ratio", "preserve_aspect_ratio"):
        node.refuse_unless(
            not node.setting(key, default=False), f"{key}; resize images before they are given to the model"
        )
    x, size = node.to_float(first_operand(node)), _as_list(node, node.argument(1, "size"))
    rank = len(node.shape(x))
    node.require_consistent(
        rank in (3, 4) and len(size) == 2, f"it resizes an image of rank {rank} to {size}"
    )
    return done_resize(
        node, x, (int(size[0]), int(size[1])), rank - 2 if node.is_channels_first else rank - 3
    )


def _pool(name: str) -> Handler:
    return lambda node: POOLS[f"{name}ing{len(node.shape(first_operand(node))) - 2}D"](node)


OPERATIONS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(("Identity", "Copy", "StopGradient", "ConvertToTensor"), _identity),
        "Reshape": _reshape,
        "Ravel": _ravel,
        "Transpose": _transpose,
        "Swapaxes": _swap,
        "Moveaxis": _move,
        "ExpandDims": _expand,
        "Squeeze": _squeeze,
        "Concatenate": _concatenate,
        "Stack": _stack,
        "Split": _split,
        "SplitSizes": _split_sizes,
        "Unstack": _unstack,
        "GetItem": _get_item,
        "Flip": _flip,
        "Roll": _roll,
        "Repeat": _repeat,
        "Tile": _tile,
        "Pad": _pad,
        "BroadcastTo": _broadcast,
        "Take": _take,
        "OneHot": _one_hot,
        "TopK": _top_k,
        "Resize": _resize,
        "MaxPool": _pool("MaxPool"),
        "AveragePool": _pool("AveragePool"),
    }
)
HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {f"ops.{name}": handler for name, handler in OPERATIONS.items()}
)

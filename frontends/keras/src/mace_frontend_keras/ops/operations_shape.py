"""Operations of keras.ops that move elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.ir import Shape
from mace_frontend_keras.network import Ref, refs
from mace_frontend_keras.node import KerasNode
from mace_frontend_keras.ops import Handler
from mace_frontend_keras.ops.operations import first, unified
from mace_frontend_keras.ops.pool import HANDLERS as POOLS
from mace_frontend_keras.ops.shape import resized, resolved


def _identity(node: KerasNode) -> Sequence[str]:
    return node.done("Identity", [first(node)])


def _reshape(node: KerasNode) -> Sequence[str]:
    """A batch of unknown size is written as -1, or as nothing."""
    x = first(node)
    wanted = [-1 if d is None else d for d in _listed(node, node.argument(1, "newshape", "shape"))]
    return node.done("Reshape", [x], {"shape": resolved(node, wanted, node.shape(x))})


def _listed(node: KerasNode, value: Any) -> list[Any]:
    """A setting as a list; RefusedError where it is computed at run time."""
    node.refuse_unless(
        not list(refs(value)), "a shape or place that is computed at run time; write it as numbers"
    )
    return list(value) if isinstance(value, list | tuple | np.ndarray) else [value]


def _transpose(node: KerasNode) -> Sequence[str]:
    x = first(node)
    rank, axes = len(node.shape(x)), node.argument(1, "axes", "perm")
    perm = (
        tuple(range(rank))[::-1] if axes is None else tuple(node.axis(a, rank) for a in _listed(node, axes))
    )
    return node.done("Transpose", [x], {"perm": perm})


def _swap(node: KerasNode) -> Sequence[str]:
    x = first(node)
    perm = list(range(len(node.shape(x))))
    a, b = (node.axis(node.argument(i, f"axis{i}"), len(perm)) for i in (1, 2))
    perm[a], perm[b] = b, a
    return node.done("Transpose", [x], {"perm": tuple(perm)})


def _move(node: KerasNode) -> Sequence[str]:
    x = first(node)
    rank = len(node.shape(x))
    sources, places = (
        [node.axis(a, rank) for a in _listed(node, node.argument(i, key))]
        for i, key in ((1, "source"), (2, "destination"))
    )
    perm = [a for a in range(rank) if a not in sources]
    for place, source in sorted(zip(places, sources, strict=True)):
        perm.insert(place, source)
    return node.done("Transpose", [x], {"perm": tuple(perm)})


def _expand(node: KerasNode) -> Sequence[str]:
    x = first(node)
    shape, axes = list(node.shape(x)), _listed(node, node.argument(1, "axis", default=0))
    for axis in sorted(node.axis(a, len(shape) + len(axes)) for a in axes):
        shape.insert(axis, 1)
    return node.done("Reshape", [x], {"shape": tuple(shape)})


def _squeeze(node: KerasNode) -> Sequence[str]:
    x = first(node)
    shape, axis = node.shape(x), node.argument(1, "axis")
    axes = [i for i, d in enumerate(shape) if d == 1] if axis in (None, []) else node.axes(axis, len(shape))
    node.refuse_unless(all(shape[a] == 1 for a in axes), f"axes {list(axes)} of {list(shape)} are not 1")
    return node.done("Reshape", [x], {"shape": tuple(d for i, d in enumerate(shape) if i not in axes)})


def _terms(node: KerasNode) -> list[str]:
    given = node.call.args[0] if node.call.args else next(iter(node.call.kwargs.values()), [])
    return unified(node, given if isinstance(given, list | tuple) else [given])


def _concatenate(node: KerasNode) -> Sequence[str]:
    terms = _terms(node)
    return node.done(
        "Concat", terms, {"axis": node.axis(node.argument(1, "axis", default=0), len(node.shape(terms[0])))}
    )


def _stack(node: KerasNode) -> Sequence[str]:
    terms = _terms(node)
    shape = node.shape(terms[0])
    axis = node.axis(node.argument(1, "axis", default=0), len(shape) + 1)
    rows = [node.emit("Reshape", [t], {"shape": (*shape[:axis], 1, *shape[axis:])}, tag="row") for t in terms]
    return node.done("Concat", rows, {"axis": axis})


def _split(node: KerasNode) -> Sequence[str]:
    """In equal parts, or at these places."""
    x = first(node)
    shape, how = node.shape(x), node.argument(1, "indices_or_sections")
    axis = node.axis(node.argument(2, "axis", default=0), len(shape))
    if type(how) is int:
        node.refuse_unless(how > 0 and shape[axis] % how == 0, f"{shape[axis]} elements in {how} parts")
        return _parts(node, x, axis, (shape[axis] // how,) * how)
    return _parts(node, x, axis, tuple(b - a for a, b in pairwise([0, *_listed(node, how), shape[axis]])))


def _parts(node: KerasNode, x: str, axis: int, sizes: Shape) -> Sequence[str]:
    return node.done("Split", [x], {"axis": axis, "sizes": sizes}, count=len(sizes))


def _split_sizes(node: KerasNode) -> Sequence[str]:
    """TensorFlow's: in equal parts, or in parts of these sizes."""
    x = first(node)
    shape, how = node.shape(x), node.argument(1, "num_or_size_splits")
    if type(how) is int:
        return _split(node)
    axis = node.axis(node.argument(2, "axis", default=0), len(shape))
    return _parts(
        node, x, axis, resolved(node, [-1], (shape[axis],)) if len(how) == 1 else tuple(int(s) for s in how)
    )


def _unstack(node: KerasNode) -> Sequence[str]:
    x = first(node)
    shape = node.shape(x)
    axis = node.axis(node.setting("axis", default=0), len(shape))
    names = [node.builder.fresh(f"{node.name}/part{i}") for i in range(shape[axis])]
    parts = node.builder.add(
        "Split", [x], {"axis": axis, "sizes": (1,) * shape[axis]}, outputs=names, like=node.origin
    )
    rest = (*shape[:axis], *shape[axis + 1 :])
    return node.named([node.emit("Reshape", [p], {"shape": rest}) for p in parts])


def _get_item(node: KerasNode) -> Sequence[str]:
    x = first(node)
    key = node.argument(1, "key", "slice_spec")
    items = list(key) if isinstance(key, list | tuple) else [key]
    items = [
        slice(i.get("start"), i.get("stop"), i.get("step")) if isinstance(i, dict) and "start" in i else i
        for i in items
    ]
    node.refuse_unless(not list(refs(items)), "places that are computed at run time; use take()")
    shape = node.shape(x)
    taken = sum(i is not None and i is not ... for i in items)
    node.refuse_unless(
        items.count(...) <= 1 and taken <= len(shape), f"{taken} places of a tensor of rank {len(shape)}"
    )
    at = items.index(...) if ... in items else len(items)
    items = [*items[:at], *[slice(None)] * (len(shape) - taken), *items[at + (... in items) :]]
    picked: list[range] = []
    made: list[int] = []
    for item in items:
        if item is None:
            made.append(1)
            continue
        size = shape[len(picked)]
        if isinstance(item, slice):
            picked.append(range(*item.indices(size)))
            made.append(len(picked[-1]))
        else:
            node.refuse_unless(type(item) is int and -size <= item < size, f"place {item!r} of {size}")
            picked.append(range(item % size, item % size + 1))
    starts, steps = tuple(p.start if len(p) else 0 for p in picked), tuple(p.step for p in picked)
    sliced = node.emit(
        "Slice", [x], {"starts": starts, "sizes": tuple(len(p) for p in picked), "steps": steps}, tag="slice"
    )
    return node.done("Reshape", [sliced], {"shape": tuple(made)})


def _flip(node: KerasNode) -> Sequence[str]:
    x = first(node)
    shape = node.shape(x)
    axes = node.axes(node.argument(1, "axis"), len(shape))
    starts = tuple(d - 1 if i in axes else 0 for i, d in enumerate(shape))
    return node.done(
        "Slice",
        [x],
        {"starts": starts, "sizes": shape, "steps": tuple(-1 if i in axes else 1 for i in range(len(shape)))},
    )


def _roll(node: KerasNode) -> Sequence[str]:
    x = first(node)
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
    low, high = node.builder.add(
        "Split", [x], {"axis": axis, "sizes": sizes}, outputs=names, like=node.origin
    )
    return node.done("Concat", [high, low], {"axis": axis})


def _repeat(node: KerasNode) -> Sequence[str]:
    x = first(node)
    times, axis = node.argument(1, "repeats"), node.argument(2, "axis")
    node.refuse_unless(
        type(times) is int and axis is not None,
        f"repeats {times!r} along axis {axis!r}; repeat along one axis",
    )
    shape = node.shape(x)
    axis = node.axis(axis, len(shape))
    wide = node.emit("Reshape", [x], {"shape": (*shape[: axis + 1], 1, *shape[axis + 1 :])})
    tiled = node.emit(
        "Tile", [wide], {"repeats": tuple(times if i == axis + 1 else 1 for i in range(len(shape) + 1))}
    )
    return node.done("Reshape", [tiled], {"shape": (*shape[:axis], shape[axis] * times, *shape[axis + 1 :])})


def _tile(node: KerasNode) -> Sequence[str]:
    x = first(node)
    times, shape = _listed(node, node.argument(1, "repeats", "multiples")), node.shape(x)
    rank = max(len(times), len(shape))
    wide = (*(1,) * (rank - len(shape)), *shape)
    x = x if wide == shape else node.emit("Reshape", [x], {"shape": wide})
    return node.done("Tile", [x], {"repeats": (*(1,) * (rank - len(times)), *times)})


def _pad(node: KerasNode) -> Sequence[str]:
    x = first(node)
    rank = len(node.shape(x))
    width = _listed(node, node.argument(1, "pad_width", "paddings"))
    pairs = [[w, w] if type(w) is int else list(w) for w in (width * rank if len(width) == 1 else width)]
    mode = str(node.argument(2, "mode", default="constant")).lower()
    node.refuse_unless(
        len(pairs) == rank and mode in ("constant", "reflect", "edge", "wrap"),
        f"padding {width!r} of mode {mode!r}",
    )
    value = node.argument(3, "constant_values", default=0)
    attrs = {"before": tuple(p[0] for p in pairs), "after": tuple(p[-1] for p in pairs), "mode": mode}
    return node.done("Pad", [x], {**attrs, "value": float(value or 0)})


def _broadcast(node: KerasNode) -> Sequence[str]:
    return node.done("Expand", [first(node)], {"shape": tuple(_listed(node, node.argument(1, "shape")))})


def _take(node: KerasNode) -> Sequence[str]:
    x, places = first(node), node.argument(1, "indices")
    axis = node.argument(2, "axis")
    if axis is None:
        x, axis = node.emit("Reshape", [x], {"shape": (prod(node.shape(x)),)}), 0
    tensor = (
        node.importer.tensor(places)
        if isinstance(places, Ref)
        else node.builder.weight(f"{node.name}/places", np.asarray(places, np.int64))
    )
    if node.builder.tensors[tensor].dtype.is_float:
        tensor = node.emit("Cast", [tensor], {"to": "i64"})
    return node.done("Gather", [x, tensor], {"axis": node.axis(axis, len(node.shape(x)))})


def _one_hot(node: KerasNode) -> Sequence[str]:
    x = first(node)
    depth = node.argument(1, "num_classes", "depth")
    node.refuse_unless(type(depth) is int and depth > 0, f"{depth!r} classes")
    places = node.emit("Cast", [x], {"to": "i64"})
    values = node.add_float(np.array([0, 1]), "values")
    return node.done("OneHot", [places, values], {"depth": depth, "axis": node.setting("axis", default=-1)})


def _top_k(node: KerasNode) -> Sequence[str]:
    x = first(node)
    names = [node.builder.fresh(f"{node.name}/{tag}") for tag in ("values", "places")]
    attrs = {"k": node.argument(1, "k", default=1), "axis": len(node.shape(x)) - 1}
    values, places = node.builder.add("TopK", [x], attrs, outputs=names, like=node.origin)
    return node.named([values, node.emit("Cast", [places], {"to": "i32"})])


def _resize(node: KerasNode) -> Sequence[str]:
    for key in ("antialias", "crop_to_aspect_ratio", "pad_to_aspect_ratio", "preserve_aspect_ratio"):
        node.refuse_unless(
            not node.setting(key, default=False), f"{key}; resize images before they are given to the model"
        )
    x, size = node.to_float(first(node)), _listed(node, node.argument(1, "size"))
    rank = len(node.shape(x))
    node.refuse_unless(rank in (3, 4) and len(size) == 2, f"an image of rank {rank} to {size}")
    return resized(node, x, (int(size[0]), int(size[1])), rank - 2 if node.is_channels_first else rank - 3)


def _pool(name: str) -> Handler:
    return lambda node: POOLS[f"{name}ing{len(node.shape(first(node))) - 2}D"](node)


OPERATIONS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(("Identity", "Copy", "StopGradient", "ConvertToTensor"), _identity),
        "Reshape": _reshape,
        "Ravel": lambda node: node.done(
            "Reshape", [first(node)], {"shape": (prod(node.shape(first(node))),)}
        ),
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

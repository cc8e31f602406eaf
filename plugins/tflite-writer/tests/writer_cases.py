"""Random graphs of the ops that the format states."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
from writer_grower import Grower

from mace_core.ir import Array, DType, Graph, Shape

Proposal = Callable[[Grower, str], "str | None"]


def pairs(grower: Grower, low: int, high: int, count: int = 2) -> tuple[int, ...]:
    return tuple(int(v) for v in grower.random.integers(low, high + 1, count))


def windows(grower: Grower, x: str, reach: int = 3) -> tuple[Shape, dict[str, Any]]:
    """A kernel and the attributes of its windows, padded SAME or VALID."""
    size = grower.tensor(x).shape[1:-1]
    kernel = tuple(int(grower.random.integers(1, min(n, reach) + 1)) for n in size)
    strides = pairs(grower, 1, 2, len(size))
    if grower.random.random() < 0.5:
        zeros = (0,) * len(size)
        return kernel, {
            "strides": strides,
            "dilations": (1,) * len(size),
            "pads_before": zeros,
            "pads_after": zeros,
        }
    missing = [max((-(-n // s) - 1) * s + k - n, 0) for n, s, k in zip(size, strides, kernel, strict=True)]
    before = tuple(m // 2 for m in missing)
    after = tuple(m - b for m, b in zip(missing, before, strict=True))
    return kernel, {
        "strides": strides,
        "dilations": (1,) * len(size),
        "pads_before": before,
        "pads_after": after,
    }


def clamp(grower: Grower) -> dict[str, float]:
    bounds = ((-math.inf, math.inf), (0.0, math.inf), (0.0, 6.0), (-1.0, 1.0))
    low, high = bounds[grower.random.integers(4)]
    return {"low": low, "high": high}


def conv(grower: Grower, x: str) -> str | None:
    shape = grower.tensor(x).shape
    if len(shape) < 3:
        return None
    kernel, attrs = windows(grower, x)
    groups = [1, shape[-1], *(g for g in (2, 3) if shape[-1] % g == 0)]
    group = int(grower.random.choice(groups))
    w = grower.weights((group * int(grower.random.integers(1, 4)), *kernel, shape[-1] // group), 0)
    inputs = [x, w] if grower.random.random() < 0.3 else [x, w, grower.bias(x, w, grower.tensor(w).shape[0])]
    return grower.add("Conv", inputs, {**attrs, "group": group, **clamp(grower)})


def conv_transpose(grower: Grower, x: str) -> str | None:
    shape = grower.tensor(x).shape
    if len(shape) != 4:
        return None
    kernel = pairs(grower, 1, 3)
    strides = pairs(grower, 1, 2)
    w = grower.weights((int(grower.random.integers(1, 4)), *kernel, shape[-1]), 0)
    inputs = [x, w] if grower.random.random() < 0.3 else [x, w, grower.bias(x, w, grower.tensor(w).shape[0])]
    before = (0, 0)
    after: Shape = (0, 0)
    if grower.random.random() < 0.5:  # SAME: the result is the input times the strides
        excess = [max(k - s, 0) for k, s in zip(kernel, strides, strict=True)]
        before = (excess[0] // 2, excess[1] // 2)
        after = (excess[0] - before[0], excess[1] - before[1])
    attrs = {"strides": strides, "dilations": (1, 1), "pads_before": before, "pads_after": after}
    return grower.add("ConvTranspose", inputs, {**attrs, "output_padding": (0, 0), **clamp(grower)})


def matmul(grower: Grower, x: str) -> str | None:
    shape = grower.tensor(x).shape
    if len(shape) < 2 or not (grower.quantized or grower.dtype.is_float):
        return None
    units = int(grower.random.integers(1, 6))
    w = grower.weights((shape[-1], units), 1)
    inputs = [x, w] if grower.random.random() < 0.3 else [x, w, grower.bias(x, w, units)]
    return grower.add("MatMul", inputs, clamp(grower))


def pool(op: str) -> Proposal:
    def propose(grower: Grower, x: str) -> str | None:
        if len(grower.tensor(x).shape) != 4:
            return None
        kernel, attrs = windows(grower, x)
        return grower.add(op, [x], {**attrs, "kernel": kernel})

    return propose


def binary(op: str) -> Proposal:
    def propose(grower: Grower, x: str) -> str | None:
        shape = grower.tensor(x).shape
        other = grower.random.integers(3)
        shapes = (shape, shape[-1:], tuple(1 if grower.random.random() < 0.5 else n for n in shape))
        if op in ("Maximum", "Minimum") and grower.quantized:
            values = grower.numbers(shapes[other])
            return grower.add(op, [x, grower.constant(values, grower.tensor(x).storage)])
        second = grower.operand(shapes[other])
        if op == "Div":
            values = np.abs(grower.numbers(shapes[other])) + 1
            second = grower.constant(values)
        if op == "Pow":
            # Squares neither overflow nor are complex.
            second = grower.constant(np.full(shapes[other], 2.0 if grower.dtype.is_float else 2))
        return grower.add(op, [x, second])

    return propose


def unary(op: str, attrs: Mapping[str, Any] | None = None, positive: bool = False) -> Proposal:
    def propose(grower: Grower, x: str) -> str | None:
        if positive:
            absolute = grower.add("Maximum", [x, grower.constant(np.full((), 0.5), grower.tensor(x).storage)])
            if absolute is None:
                return None
            x = absolute
        return grower.add(op, [x], attrs)

    return propose


def prelu(grower: Grower, x: str) -> str | None:
    return grower.add("PRelu", [x, grower.constant(grower.numbers(grower.tensor(x).shape[-1:]))])


def clip(grower: Grower, x: str) -> str | None:
    bounds = ((0.0, 6.0), (-1.0, 1.0), (0.0, 1.0))
    low, high = bounds[grower.random.integers(3)]
    return grower.add("Clip", [x], {"min": low, "max": high})


def reduce(op: str) -> Proposal:
    def propose(grower: Grower, x: str) -> str | None:
        rank = len(grower.tensor(x).shape)
        if rank < 1:
            return None
        axes = grower.random.choice(rank, int(grower.random.integers(1, rank + 1)), replace=False)
        return grower.add(
            op, [x], {"axes": tuple(map(int, axes)), "keepdims": bool(grower.random.integers(2))}
        )

    return propose


def reshape(grower: Grower, x: str) -> str | None:
    elements = grower.tensor(x).elements
    first = int(grower.random.choice([n for n in range(1, elements + 1) if elements % n == 0]))
    return grower.add("Reshape", [x], {"shape": (1, first, elements // first)})


def transpose(grower: Grower, x: str) -> str | None:
    perm = tuple(map(int, grower.random.permutation(len(grower.tensor(x).shape))))
    return grower.add("Transpose", [x], {"perm": perm})


def concat(grower: Grower, x: str) -> str | None:
    shape = grower.tensor(x).shape
    if not shape:
        return None
    axis = int(grower.random.integers(len(shape)))
    other = tuple(int(grower.random.integers(1, 4)) if i == axis else n for i, n in enumerate(shape))
    second = grower.constant(grower.numbers(other), grower.tensor(x).storage)
    return grower.add("Concat", [x, second, x], {"axis": axis})


def pad(grower: Grower, x: str) -> str | None:
    rank = len(grower.tensor(x).shape)
    attrs: dict[str, Any] = {"before": pairs(grower, 0, 2, rank), "after": pairs(grower, 0, 2, rank)}
    if grower.random.random() < 0.5:
        attrs["value"] = -0.75 if grower.quantized or grower.dtype.is_float else 3
    return grower.add("Pad", [x], attrs)


def mirror(grower: Grower, x: str) -> str | None:
    rank = len(grower.tensor(x).shape)
    attrs = {"before": pairs(grower, 0, 1, rank), "after": pairs(grower, 0, 1, rank), "mode": "reflect"}
    return grower.add("Pad", [x], attrs)


def cut(grower: Grower, x: str) -> str | None:
    starts, sizes, steps = [], [], []
    is_stepped = grower.random.random() < 0.5
    for n in grower.tensor(x).shape:
        step = int(grower.random.choice([1, 2, -1, -2])) if is_stepped else 1
        size = int(grower.random.integers(1, -(-n // abs(step)) + 1))
        room = n - ((size - 1) * abs(step) + 1)
        start = int(grower.random.integers(0, room + 1))
        starts.append(start if step > 0 else start + (size - 1) * -step)
        sizes.append(size)
        steps.append(step)
    return grower.add("Slice", [x], {"starts": tuple(starts), "sizes": tuple(sizes), "steps": tuple(steps)})


def split(grower: Grower, x: str) -> str | None:
    shape = grower.tensor(x).shape
    if not shape:
        return None
    axis = int(grower.random.integers(len(shape)))
    n = shape[axis]
    first = int(grower.random.integers(1, n + 1))
    sizes = (n // 2, n // 2) if n % 2 == 0 else tuple(s for s in (first, n - first) if s)
    return grower.add("Split", [x], {"axis": axis, "sizes": sizes})


def resize(mode: str) -> Proposal:
    def propose(grower: Grower, x: str) -> str | None:
        shape = grower.tensor(x).shape
        if len(shape) != 4:
            return None
        size = pairs(grower, 1, 9)
        sizes = (shape[0], *size, shape[3])
        way = str(grower.random.choice(["half_pixel", "asymmetric", "align_corners"]))
        nearest = {"asymmetric": "floor", "align_corners": "round_prefer_ceil"}.get(way, "round_prefer_floor")
        scales = tuple(a / b for a, b in zip(sizes, shape, strict=True))
        attrs = {"sizes": sizes, "scales": scales, "mode": mode, "coordinates": way, "nearest": nearest}
        return grower.add("Resize", [x], attrs)

    return propose


def blocks(op: str) -> Proposal:
    def propose(grower: Grower, x: str) -> str | None:
        return grower.add(op, [x], {"block": int(grower.random.integers(1, 3))})

    return propose


def tile(grower: Grower, x: str) -> str | None:
    return grower.add("Tile", [x], {"repeats": pairs(grower, 1, 2, len(grower.tensor(x).shape))})


def gather(grower: Grower, x: str) -> str | None:
    shape = grower.tensor(x).shape
    if not shape:
        return None
    axis = int(grower.random.integers(len(shape)))
    indices = grower.random.integers(-shape[axis], shape[axis], int(grower.random.integers(1, 5)))
    name = grower.builder.weight("indices", indices)
    grower.samples[name] = indices
    return grower.add("Gather", [x, name], {"axis": axis})


PROPOSALS: Mapping[str, Proposal] = MappingProxyType(
    {
        "Conv": conv,
        "ConvTranspose": conv_transpose,
        "MatMul": matmul,
        "AveragePool": pool("AveragePool"),
        "MaxPool": pool("MaxPool"),
        **{op: binary(op) for op in ("Add", "Sub", "Mul", "Div", "Maximum", "Minimum", "Pow")},
        "PRelu": prelu,
        "Clip": clip,
        **{op: unary(op) for op in ("Relu", "Abs", "Neg", "Ceil", "Floor", "Round", "Sign", "Sin", "Cos")},
        **{op: unary(op) for op in ("Exp", "Tanh", "Sigmoid", "HardSwish", "Elu", "Identity")},
        **{op: unary(op, positive=True) for op in ("Sqrt", "Rsqrt", "Log")},
        "LeakyRelu": unary("LeakyRelu", {"alpha": 0.25}),
        "Gelu": unary("Gelu", {"approximate": "tanh"}),
        "Softmax": unary("Softmax", {"axis": -1}),
        "LogSoftmax": unary("LogSoftmax", {"axis": -1}),
        **{op: reduce(op) for op in ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin")},
        "Reshape": reshape,
        "Transpose": transpose,
        "Concat": concat,
        "Pad": pad,
        "MirrorPad": mirror,
        "Slice": cut,
        "Split": split,
        "ResizeLinear": resize("linear"),
        "ResizeNearest": resize("nearest"),
        "DepthToSpace": blocks("DepthToSpace"),
        "SpaceToDepth": blocks("SpaceToDepth"),
        "Tile": tile,
        "Gather": gather,
    }
)
"""A name of each case -> what adds a node of that kind behind a tensor."""


def one_case(kind: str, seed: int, dtype: DType, quantized: bool) -> tuple[Graph, list[Array]] | None:
    """A graph of one node of this kind; None if the format has none for the type."""
    for attempt in range(12):
        grower = Grower(seed * 12 + attempt, dtype, quantized)
        shape = ((1, 4, 6, 4), (2, 5, 4, 8), (1, 6, 3, 1), (3, 7))[grower.random.integers(4)]
        if PROPOSALS[kind](grower, grower.input(shape)) is not None:
            graph = grower.finish()
            return graph, grower.inputs(graph)
    return None


def random_graph(seed: int, dtype: DType, quantized: bool, nodes: int = 8) -> tuple[Graph, list[Array]]:
    """A graph of several nodes, each behind any tensor before it."""
    grower = Grower(seed, dtype, quantized)
    shape = ((1, 4, 6, 4), (2, 5, 4, 8), (1, 6, 3, 1))[grower.random.integers(3)]
    ends = [grower.input(shape)]
    for _ in range(nodes * 4):
        kind = str(grower.random.choice(sorted(PROPOSALS)))
        x = str(grower.random.choice(ends[-3:]))
        if 0 < grower.tensor(x).elements <= 2000 and (y := PROPOSALS[kind](grower, x)) is not None:
            ends.append(y)
        if len(grower.builder.nodes) >= nodes:
            break
    if not grower.builder.nodes:
        grower.add("Reshape", [ends[0]], {"shape": (math.prod(shape),)})
    graph = grower.finish()
    return replace(graph, name=f"case{seed}"), grower.inputs(graph)

"""Random graphs of ops that the format states, calibrated on random data so that results fill their types."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
from writer_oracle import real

from mace_core.attributes import AttributeValues
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Quant, Shape, Storage, Tensor
from mace_core.quantization import quantize
from mace_tflite_writer import refuses

FIXED: Mapping[str, Mapping[DType, tuple[float, int]]] = MappingProxyType(
    {
        "Softmax": {DType.I8: (1 / 256, -128), DType.U8: (1 / 256, 0), DType.I16: (1 / 32768, 0)},
        "LogSoftmax": {DType.I8: (1 / 16, 127), DType.U8: (1 / 16, 255)},
        "Sigmoid": {DType.I8: (1 / 256, -128), DType.U8: (1 / 256, 0), DType.I16: (1 / 32768, 0)},
        "Tanh": {DType.I8: (1 / 128, 0), DType.U8: (1 / 128, 128), DType.I16: (1 / 32768, 0)},
    }
)
"""Ops whose results have one scale and zero point in the format."""

KEEPING = ("AveragePool", "Maximum", "Minimum", "Resize", "ReduceMax", "ReduceMin")
"""Ops beside those that move data whose results have the storage of their input."""


class Grower:
    """A graph that grows node by node, with a sample of the elements of every tensor.

    quantized: how its real numbers are stored; None for plain elements.
    """

    def __init__(self, seed: int, dtype: DType, quantized: bool) -> None:
        self.random = np.random.default_rng(seed)
        self.builder = Builder(f"case{seed}")
        self.dtype, self.quantized = dtype, quantized
        self.samples: dict[str, Array] = {}
        self.is_wild = False  # whether nodes that the format does not state are kept

    def tensor(self, name: str) -> Tensor:
        return self.builder.tensors[name]

    def numbers(self, shape: Shape) -> Array:
        """Real numbers, or plain integers, for an input or a constant."""
        if self.quantized or self.dtype.is_float:
            return self.random.normal(size=shape)
        if self.dtype is DType.BOOL:
            return self.random.integers(0, 2, shape).astype(bool)
        low = 0 if self.dtype is DType.U8 else -99
        return self.random.integers(low, 100, shape)

    def storage(self, values: Array) -> Storage | None:
        """A storage whose integers these values fill; None for plain elements."""
        if not self.quantized:
            return None
        limits = np.iinfo(self.dtype.numpy)
        low, high = (
            float(min(values.min(initial=0), 0)),
            float(max(values.max(initial=0), 0, low_limit(values))),
        )
        if self.dtype is DType.I16:
            return Storage(self.dtype, Quant.of(float(np.float32(max(-low, high) / limits.max))))
        scale = float(np.float32((high - low) / (limits.max - limits.min)))
        return Storage(
            self.dtype, Quant.of(scale, int(np.clip(round(limits.min - low / scale), limits.min, limits.max)))
        )

    def input(self, shape: Shape) -> str:
        values = self.numbers(shape)
        storage = self.storage(values)
        name = self.builder.input(
            f"in{len(self.builder.inputs)}", self.dtype, shape, storage and storage.quant
        )
        self.samples[name] = quantize(values, storage) if storage else values.astype(self.dtype.numpy)
        return name

    def constant(self, values: Array, storage: Storage | None = None) -> str:
        storage = storage or self.storage(values)
        array = quantize(values, storage) if storage else np.asarray(values, self.dtype.numpy)
        name = self.builder.weight("constant", array, storage and storage.quant)
        self.samples[name] = array
        return name

    def operand(self, shape: Shape) -> str:
        """A second operand: a constant or an input of the model."""
        return self.input(shape) if self.random.random() < 0.5 else self.constant(self.numbers(shape))

    def weights(self, shape: Shape, axis: int) -> str:
        """Weights as products of this type take them; axis: that of the results."""
        values = self.random.normal(size=shape) / math.sqrt(math.prod(shape) / shape[axis])
        if not self.quantized:
            return self.constant(values)
        if self.dtype is DType.U8:
            return self.constant(values)
        per_channel = self.random.random() < 0.7
        axes = tuple(i for i in range(len(shape)) if i != axis) if per_channel else None
        largest = np.maximum(np.abs(values).max(axis=axes), 1e-3)
        scales = tuple(float(np.float32(v / 127)) for v in np.atleast_1d(largest))
        return self.constant(
            values, Storage(DType.I8, Quant(scales, (0,) * len(scales), axis if per_channel else None))
        )

    def bias(self, x: str, w: str, count: int) -> str:
        values = self.random.normal(size=count)
        if not self.quantized:
            return self.constant(values)
        quants = (self.tensor(x).quant, self.tensor(w).quant)
        assert quants[0] is not None
        assert quants[1] is not None
        scales = tuple(float(np.float32(quants[0].scale[0]) * np.float32(s)) for s in quants[1].scale)
        axis = None if quants[1].axis is None else 0
        return self.constant(values, Storage(DType.I32, Quant(scales, (0,) * len(scales), axis)))

    def add(self, op: str, inputs: Sequence[str], attrs: AttributeValues | None = None) -> str | None:
        """Add a node and return its first output; None if the IR or the format has none such."""
        builder = self.builder
        kind = builder.ops[op]
        try:
            complete = kind.complete(attrs or {})
            kind.infer([self.tensor(i).real if i else None for i in inputs], complete)
        except ValueError:
            return None
        reals = [real(self.tensor(i), self.samples[i]) if i else None for i in inputs]
        results = kind.compute(reals, complete)
        if not all(np.isfinite(values).all() for values in results):
            return None
        names = []
        for values in results:
            keeps = (kind.moves or op in KEEPING) and not (self.is_wild and self.random.random() < 0.3)
            storage = self.tensor(inputs[0]).storage if keeps else self.storage(values)
            if storage and op in FIXED and self.dtype in FIXED[op]:
                scale, zero_point = FIXED[op][self.dtype]
                storage = Storage(self.dtype, Quant.of(scale, zero_point))
            names.append(builder.reserve_output(f"t{len(builder.nodes)}.{len(names)}", storage))
        try:
            builder.add(kind, inputs, complete, outputs=names)
        except MaceError:
            return None
        node = builder.nodes[-1]
        view = Graph(builder.name, (node,), builder.tensors, builder.weights, (), ())
        if not self.is_wild and refuses(node, view):
            builder.nodes.pop()
            return None
        for name, values in zip(names, results, strict=True):
            storage = self.tensor(name).storage
            self.samples[name] = (
                quantize(values, storage) if storage else values.astype(self.tensor(name).dtype.numpy)
            )
        return names[0]

    def finish(self) -> Graph:
        """The graph of all nodes; its outputs are those that no node reads."""
        read = {name for node in self.builder.nodes for name in node.inputs}
        made = [name for node in self.builder.nodes for name in node.outputs]
        return self.builder.finish([name for name in made if name not in read])

    def inputs(self, graph: Graph) -> list[Array]:
        return [self.samples[name] for name in graph.inputs]


def low_limit(values: Array) -> float:
    return 1e-3 if not np.abs(values).max(initial=0) else 0.0


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


def wild_conv(grower: Grower, x: str) -> str | None:
    shape = grower.tensor(x).shape
    if len(shape) < 3:
        return None
    rank = len(shape) - 2
    kernel = pairs(grower, 1, 4, rank)
    group = int(grower.random.choice([1, shape[-1], *(g for g in (2, 3) if shape[-1] % g == 0)]))
    dtype = grower.dtype
    # uint8 activations have int8 weights in models of other frameworks.
    if grower.quantized and dtype is DType.U8 and grower.random.random() < 0.5:
        grower.dtype = DType.I8
    w = grower.weights((group * int(grower.random.integers(1, 3)), *kernel, shape[-1] // group), 0)
    grower.dtype = dtype
    low, high = sorted(grower.random.normal(size=2))
    attrs = {
        "strides": pairs(grower, 1, 3, rank),
        "pads_before": pairs(grower, 0, 2, rank),
        "pads_after": pairs(grower, 0, 2, rank),
        "dilations": pairs(grower, 1, 2, rank),
        "group": group,
        "low": low if grower.random.random() < 0.5 else -math.inf,
        "high": high if grower.random.random() < 0.5 else math.inf,
    }
    return grower.add("Conv", [x, w, grower.bias(x, w, grower.tensor(w).shape[0])], attrs)


def wild_pool(grower: Grower, x: str) -> str | None:
    rank = len(grower.tensor(x).shape) - 2
    if rank < 1:
        return None
    attrs = {
        "kernel": pairs(grower, 3, 4, rank),
        "strides": pairs(grower, 1, 3, rank),
        "pads_before": pairs(grower, 0, 2, rank),
        "pads_after": pairs(grower, 0, 2, rank),
        "dilations": (1,) * rank,
        "ceil": bool(grower.random.integers(2)),
    }
    if grower.random.random() < 0.5:
        return grower.add("MaxPool", [x], attrs)
    return grower.add("AveragePool", [x], {**attrs, "count_pad": bool(grower.random.integers(2))})


def wild_softmax(grower: Grower, x: str) -> str | None:
    rank = len(grower.tensor(x).shape)
    return grower.add("Softmax", [x], {"axis": int(grower.random.integers(rank))}) if rank else None


def wild_clip(grower: Grower, x: str) -> str | None:
    low, high = sorted(grower.random.normal(size=2))
    return grower.add("Clip", [x], {"min": low, "max": high})


def rows(grower: Grower, x: str) -> str | None:
    shape = grower.tensor(x).shape
    if not shape:
        return None
    return grower.add("Reshape", [x], {"shape": (shape[0], math.prod(shape[1:-1]), shape[-1])})


WILD: Mapping[str, Proposal] = MappingProxyType(
    {
        "Conv": wild_conv,
        "Pool": wild_pool,
        "Softmax": wild_softmax,
        "Clip": wild_clip,
        "Rows": rows,
        "Concat": concat,
        "Transpose": transpose,
        "Split": split,
        "Maximum": binary("Maximum"),
        "Add": binary("Add"),
        "Div": binary("Div"),
        "ReduceSum": reduce("ReduceSum"),
    }
)
"""Nodes many of which the format states after rewrites alone."""

FLOAT_WILD: Mapping[str, Proposal] = MappingProxyType(
    {
        **WILD,
        **{op: unary(op) for op in ("Reciprocal", "Swish", "HardSigmoid", "Softsign")},
        "Elu": unary("Elu", {"alpha": 0.5}),
    }
)
"""Those and functions that are rewritten for floats only."""


def wild_graph(seed: int, dtype: DType, quantized: bool, nodes: int = 5) -> tuple[Graph, list[Array]]:
    """A graph of nodes that the format need not state."""
    grower = Grower(seed, dtype, quantized)
    grower.is_wild = True
    tensors = [grower.input((1, 7, 6, 4))]
    for _ in range(nodes * 4):
        kind = str(grower.random.choice(sorted(FLOAT_WILD if not quantized else WILD)))
        x = str(grower.random.choice(tensors[-3:]))
        if 0 < grower.tensor(x).elements <= 2000 and (y := FLOAT_WILD[kind](grower, x)) is not None:
            tensors.append(y)
        if len(grower.builder.nodes) >= nodes:
            break
    graph = grower.finish()
    return graph, grower.inputs(graph)


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

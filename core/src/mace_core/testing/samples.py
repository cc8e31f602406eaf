"""Examples of every operator: shapes of operands, and attributes, to test what a target computes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any

import numpy as np

from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Quant, Shape, Storage
from mace_core.ops import core_ops

IMAGE = (1, 6, 6, 4)
WINDOW = {"strides": (1, 1), "pads_before": (0, 0), "pads_after": (0, 0), "dilations": (1, 1)}
POOL = {**WINDOW, "kernel": (2, 2)}

SAMPLES: Mapping[str, tuple[tuple[tuple[int, ...], ...], dict[str, Any]]] = {
    "AveragePool": ((IMAGE,), POOL),
    "BatchNorm": ((IMAGE, (4,), (4,), (4,), (4,)), {}),
    "Col2Im": (((1, 5, 5, 16),), {**POOL, "size": (6, 6)}),
    "CombinedNonMaxSuppression": (((1, 8, 1, 4), (1, 8, 3)), {"per_class": 2, "total": 4}),
    "DFT": (((1, 8, 2),), {"length": 8}),
    "DecodeBoxes": (((1, 8, 4), (8, 4)), {}),
    "DeformIm2Col": ((IMAGE, (1, 5, 5, 8)), POOL),
    "Im2Col": ((IMAGE,), POOL),
    "LRN": ((IMAGE,), {"size": 3}),
    "NonMaxSuppression": (((1, 8, 4), (1, 3, 8)), {"per_class": 2}),
    "RoiAlign": ((IMAGE, (2, 4), (2,)), {"size": (2, 2)}),
    "RoiMaxPool": ((IMAGE, (2, 4), (2,)), {"size": (2, 2)}),
    "Cast": ((IMAGE,), {"to": "f32"}),
    "Conv": ((IMAGE, (8, 3, 3, 4)), WINDOW),
    "ConvTranspose": ((IMAGE, (8, 3, 3, 4)), {**WINDOW, "output_padding": (0, 0)}),
    "DepthToSpace": ((IMAGE,), {"block": 2}),
    "Det": (((3, 3),), {}),
    "Expand": (((1, 6, 1, 4),), {"shape": IMAGE}),
    "GRU": (((5, 1, 4), (1, 9, 4), (1, 9, 3)), {"hidden": 3}),
    "Gather": ((IMAGE, (2,)), {}),
    "GatherElements": ((IMAGE, IMAGE), {}),
    "GatherND": ((IMAGE, (2, 2)), {}),
    "GridSample": ((IMAGE, (1, 5, 5, 2)), {}),
    "GroupNorm": ((IMAGE, (4,), (4,)), {"groups": 2}),
    "InstanceNorm": ((IMAGE, (4,), (4,)), {}),
    "LSTM": (((5, 1, 4), (1, 12, 4), (1, 12, 3)), {"hidden": 3}),
    "LayerNorm": ((IMAGE, (4,)), {}),
    "MatMul": (((3, 8), (8, 5)), {}),
    "MatMulInteger": (((3, 8), (8, 5)), {}),
    "MeanVarianceNorm": ((IMAGE,), {"axes": (1, 2)}),
    "MapValues": (((4,), (3,), (3,), (1,)), {}),
    "OneHot": (((3,), (2,)), {"depth": 4}),
    "PairwiseCoupling": (((2, 3),), {"classes": 3}),
    "PRelu": ((IMAGE, (4,)), {}),
    "Pad": ((IMAGE,), {"before": (0, 1, 1, 0), "after": (0, 1, 1, 0)}),
    "RMSNorm": ((IMAGE, (4,)), {}),
    "RNN": (((5, 1, 4), (1, 3, 4), (1, 3, 3)), {"hidden": 3}),
    "Reshape": ((IMAGE,), {"shape": (36, 4)}),
    "Resize": ((IMAGE,), {"sizes": (1, 12, 12, 4), "scales": (1.0, 2.0, 2.0, 1.0)}),
    "ReverseSequence": (((5, 3, 4), (3,)), {}),
    "ScatterElements": ((IMAGE, IMAGE, IMAGE), {}),
    "ScatterND": ((IMAGE, (2, 1), (2, 6, 6, 4)), {}),
    "Slice": ((IMAGE,), {"starts": (0, 1, 1, 0), "sizes": (1, 3, 3, 4), "steps": (1, 1, 1, 1)}),
    "SpaceToDepth": ((IMAGE,), {"block": 2}),
    "Split": ((IMAGE,), {"axis": 3, "sizes": (2, 2)}),
    "SquaredDistance": (((2, 5), (3, 5)), {}),
    "Tile": ((IMAGE,), {"repeats": (1, 2, 1, 1)}),
    "TopK": ((IMAGE,), {"k": 2}),
    "Transpose": ((IMAGE,), {"perm": (0, 3, 1, 2)}),
    "TreeEnsemble": (((2, 4), (3,), (3, 3), (3,), (1,), (2,), (2,)), {"outputs": 2}),
    "Trilu": (((6, 6),), {}),
    "Where": ((IMAGE, IMAGE, IMAGE), {}),
    **dict.fromkeys(("MaxPool", "LpPool", "MaxPoolIndices"), ((IMAGE,), POOL)),
    **{
        f"Reduce{name}": ((IMAGE,), {"axes": (1, 2)})
        for name in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2")
    },
    **{f"Reduce{name}": ((IMAGE,), {"axes": (1, 2)}) for name in ("LogSum", "LogSumExp", "SumSquare")},
    **dict.fromkeys(("ArgMax", "ArgMin", "CumSum", "CumProd", "Concat"), ((IMAGE,), {"axis": 3})),
}
INDICES: Mapping[str, tuple[int, ...]] = {
    "Gather": (1,),
    "GatherElements": (1,),
    "GatherND": (1,),
    "ScatterElements": (1,),
    "ScatterND": (1,),
    "ReverseSequence": (1,),
    "OneHot": (0,),
    "RoiAlign": (2,),
    "RoiMaxPool": (2,),
    "TreeEnsemble": (2, 3, 4, 5),
}
"""Numbers of the operands that hold places."""
TREE = ((0, 1, 2), (-1, 0, 1), (-1, 1, 2))
VALUES: Mapping[tuple[str, int], tuple[Any, ...]] = {
    ("MapValues", 1): (0, 1, 2),
    ("TreeEnsemble", 2): TREE,
    ("TreeEnsemble", 3): (0, 0, 0),
    ("TreeEnsemble", 4): (0,),
    ("TreeEnsemble", 5): (0, 1),
}
"""Constants that must make sense: by op and number of the operand."""
CONSTANT: Mapping[str, tuple[int, ...]] = {
    "Conv": (1,),
    "ConvTranspose": (1,),
    "MatMul": (1,),
    "MatMulInteger": (1,),
    "TreeEnsemble": (1, 6),
}


VARIANTS: Mapping[str, tuple[dict[str, Any], ...]] = {
    **dict.fromkeys(
        ("Conv", "MaxPool", "AveragePool"),
        ({"strides": (2, 1), "pads_before": (1, 0), "pads_after": (0, 2)},),
    ),
    "ConvTranspose": ({"strides": (2, 1), "pads_before": (1, 0), "pads_after": (0, 2)},),
    "Pad": (
        {"before": (0, 2, 0, 1), "after": (0, 0, 1, 0), "value": 1.0},
        {"before": (0, 2, 1, 0), "mode": "reflect"},
    ),
    "Slice": ({"starts": (0, 5, 1, 3), "sizes": (1, 3, 2, 2), "steps": (1, -2, 3, -1)},),
    **dict.fromkeys(("Softmax", "ArgMax", "CumSum", "Concat"), ({"axis": 1},)),
    **{
        f"Reduce{name}": ({"axes": (3,)}, {"axes": (1,), "keepdims": False})
        for name in ("Sum", "Mean", "Max")
    },
}
"""Other attributes of some samples, different on every axis, so that a target that confuses axes is found."""


def sample(
    name: str, dtype: DType, *, quantized: bool = False, zero_point: int = 0, variant: int = -1
) -> Graph | None:
    """Return a graph of one node over elements of a type; None if the op does not take them.

    zero_point: that of all quantized tensors except weights.  variant: index in VARIANTS; -1 for SAMPLES.
    """
    op = core_ops()[name]
    shapes, attrs = SAMPLES.get(name, ((IMAGE,) * sum(i[-1] not in "?*" for i in op.inputs), {}))
    attrs = {**attrs, **(VARIANTS[name][variant] if variant >= 0 else {})}
    storage = Storage(dtype, Quant.of(0.05, zero_point)) if quantized else None
    builder = Builder(name)
    try:
        inputs = [_operand(builder, (name, i), shape, dtype, storage) for i, shape in enumerate(shapes)]
        count = len(attrs["sizes"]) if name == "Split" else sum(o[-1] not in "?*" for o in op.outputs)
        outputs = builder.add(
            op,
            inputs,
            attrs,
            outputs=[builder.reserve_output(f"y{i}", storage) for i in range(max(count, 1))],
        )
    except MaceError:
        return None
    return builder.finish(outputs)


def _operand(
    builder: Builder, place: tuple[str, int], shape: Shape, dtype: DType, storage: Storage | None
) -> str:
    """Add an operand: a constant for weights, an input for others.  place: op, and index of the operand."""
    op, i = place
    kind = dtype
    if i in INDICES.get(op, ()):
        kind = DType.I64
    elif place == ("Where", 0):
        kind = DType.BOOL
    quant = storage.quant if storage and kind is dtype else None
    if place in VALUES:
        return builder.weight(f"w{i}", np.array(VALUES[place], kind.numpy), quant)
    if i in CONSTANT.get(op, ()):
        # As in quantized models, weights have eight bits where activations have sixteen.
        weight_type = DType.I8 if quant and dtype is DType.I16 else kind
        return builder.weight(f"w{i}", _weights(shape, weight_type), quant and Quant.of(quant.scale[0]))
    return builder.input(f"x{i}", kind, shape, quant)


def _weights(shape: Shape, dtype: DType) -> Array:
    """Return random weights; equal ones would hide a filter whose axes are confused."""
    rng = np.random.default_rng(len(shape))
    if dtype.is_float:
        return rng.standard_normal(shape).astype(dtype.numpy)
    return rng.integers(0 if dtype.value[0] in "bu" else -9, 2 if dtype is DType.BOOL else 10, shape).astype(
        dtype.numpy
    )


def samples(name: str, types: Iterable[DType], quantized: Iterable[DType] = ()) -> list[Graph]:
    """Return graphs of one node of an op, one for each type and quantized storage that it takes.

    For Cast they convert each of the types to each.
    """
    types = list(types)
    if name == "Cast":
        plain: list[Graph | None] = [_cast(*pair) for pair in product(types, types)]
    else:
        plain = [sample(name, dtype) for dtype in types]
    quantized_graphs = [sample(name, dtype, quantized=True) for dtype in quantized]
    graphs = [g.with_name(_model_name(g, "")) for g in plain if g]
    return graphs + [g.with_name(_model_name(g, "q")) for g in quantized_graphs if g]


def _cast(source: DType, target: DType) -> Graph:
    builder = Builder("Cast")
    x = builder.input("x0", source, IMAGE)
    return builder.finish([builder.one("Cast", [x], {"to": target.value}, outputs=["y0"])])


def _model_name(graph: Graph, mark: str) -> str:
    types = [graph.tensors[t].dtype.value for t in (*graph.inputs[:1], *graph.outputs[:1])]
    return "_".join([graph.name.lower().replace("::", "_"), *types]) + mark


def extreme_inputs(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Return for each input a mixture of the extreme values of its type and small ones."""
    rng = np.random.default_rng(seed)
    return {
        name: _extremes(rng, graph.tensors[name].dtype, graph.tensors[name].shape) for name in graph.inputs
    }


def _extremes(rng: np.random.Generator, dtype: DType, shape: Shape) -> Array:
    if dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.is_float:
        limits = np.finfo(dtype.numpy)
        huge = float(limits.max) / 3.4  # 1e38 in single precision: sums of a few stay finite
        values = [
            np.nan,
            np.inf,
            -np.inf,
            huge,
            -huge,
            float(limits.smallest_subnormal),
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            2.0,
            -7.5,
            300.0,
        ]
        return rng.choice(np.array(values, dtype.numpy), shape)
    integers = np.iinfo(dtype.numpy)
    small = [0, 1, 2, 3, 7, 31, 100]
    signed = (
        [integers.min, integers.min + 1, integers.max, integers.max - 1, -1, -2, *small]
        if integers.min
        else [integers.max, integers.max - 1, *small]
    )
    return rng.choice(np.array(signed, dtype.numpy), shape)

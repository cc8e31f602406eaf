"""An example of every operator: shapes of its operands and attributes, for asking a target what it computes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mace_core.build import Builder
from mace_core.errors import MaceError
from mace_core.ir import DType, Graph, Quant, Shape, Storage
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
    **{f"Reduce{name}": ((IMAGE,), {"axes": (1, 2)}) for name in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2")},
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


def sample(name: str, dtype: DType, *, quantized: bool = False) -> Graph | None:
    """A graph of one node over elements of a type; None if the op does not take them or no example of it is known."""
    op = core_ops()[name]
    shapes, attrs = SAMPLES.get(name, ((IMAGE,) * sum(i[-1] not in "?*" for i in op.inputs), {}))
    storage = Storage(dtype, Quant.of(0.05)) if quantized else None
    new = Builder(name)
    try:
        inputs = [_operand(new, (name, i), shape, dtype, storage) for i, shape in enumerate(shapes)]
        count = len(attrs["sizes"]) if name == "Split" else sum(o[-1] not in "?*" for o in op.outputs)
        made = new.add(op, inputs, attrs, outputs=[new.stored(f"y{i}", storage) for i in range(max(count, 1))])
    except MaceError:
        return None
    return new.finish(made)


def _operand(new: Builder, place: tuple[str, int], shape: Shape, dtype: DType, storage: Storage | None) -> str:
    """Operand number place[1] of op place[0]: weights are constants, conditions and places have types of their own."""
    op, i = place
    kind = DType.I64 if i in INDICES.get(op, ()) else DType.BOOL if place == ("Where", 0) else dtype
    quant = storage.quant if storage and kind is dtype else None
    if place in VALUES:
        return new.weight(f"w{i}", np.array(VALUES[place], kind.numpy), quant)
    if i in CONSTANT.get(op, ()):
        held = DType.I8 if quant and dtype is DType.I16 else kind  # beside sixteen-bit activations weights have eight
        return new.weight(f"w{i}", np.ones(shape, held.numpy), quant)
    return new.input(f"x{i}", kind, shape, quant)

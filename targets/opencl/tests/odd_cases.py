"""Ops on shapes and attributes that the sample graphs of the contract do not have: the cases, and their graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from mace_core.attributes import Attribute
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph
from mace_core.testing.compiled import case, merge

RNG = np.random.default_rng(1)


@dataclass(frozen=True)
class OpCase:
    """A node.  inputs: arrays, or shapes of random floats.  constants: numbers of the operands that are so."""

    op: str
    inputs: Sequence[Array | tuple[int, ...]]
    attrs: Mapping[str, Attribute]
    constants: tuple[int, ...] = ()
    outputs: int = 1


def window(
    *, strides: Sequence[int], before: Sequence[int], after: Sequence[int], dilations: Sequence[int]
) -> dict[str, Attribute]:
    return {
        "strides": tuple(strides),
        "pads_before": tuple(before),
        "pads_after": tuple(after),
        "dilations": tuple(dilations),
    }


TIES = np.array([[3, 1, 3, np.nan, 2, -1]], np.float32)
MOVES = (
    OpCase("Slice", [(3, 8)], {"starts": (2, 7), "sizes": (3, 4), "steps": (-1, -2)}),
    # Rows of eight that begin at an odd place: vectors that are not aligned.
    OpCase("Slice", [(4, 12)], {"starts": (0, 1), "sizes": (4, 8), "steps": (1, 1)}),
    OpCase("Transpose", [(2, 3, 2, 3, 2, 2)], {"perm": (5, 3, 1, 0, 2, 4)}),
    OpCase("Pad", [(3, 1)], {"before": (4, 2), "after": (5, 1), "mode": "reflect"}),
    OpCase("Pad", [(3, 2)], {"before": (4, 2), "after": (5, 1), "mode": "wrap"}),
    OpCase("Tile", [(2, 3)], {"repeats": (2, 2)}),
    OpCase("Expand", [(3, 1)], {"shape": (2, 3, 4)}),
    OpCase("Concat", [(2, 0), (2, 3), (2, 5)], {"axis": 1}),
    OpCase("Trilu", [(2, 4, 6)], {"k": 1}),
    OpCase("Trilu", [(4, 6)], {"k": -10, "upper": False}),
    OpCase("ReverseSequence", [(5, 3, 4), np.array([2, 9, -1])], {}, (1,)),
    OpCase("ReverseSequence", [(3, 5, 4), np.array([2, 5, 1])], {"batch_axis": 0, "time_axis": 1}, (1,)),
)
INDEXED = (
    OpCase("Gather", [(5, 3, 8), np.array([[1, -1], [9, 0]])], {"axis": 1}, (1,)),
    OpCase("GatherND", [(2, 3, 4), np.array([[[1], [-1]], [[0], [2]]])], {"batch_dims": 1}, (1,)),
    OpCase("GatherElements", [(3, 5), np.array([[4, -1, 0], [2, 1, 9]])], {"axis": 1}, (1,)),
    OpCase("ScatterND", [(4, 5), np.zeros((3, 0), np.int64), (3, 4, 5)], {"reduction": "add"}, (1,)),
    OpCase("ScatterND", [np.arange(6), np.array([[1], [1]]), np.array([5, 7])], {}, (1,)),
    OpCase("OneHot", [np.array([[0, -1], [7, 2]]), (2,)], {"depth": 3, "axis": 1}, (0,)),
    OpCase("OneHot", [np.array([[0, -1], [7, 2]]), np.array([5, 2])], {"depth": 3}, (0, 1)),
    OpCase("TopK", [TIES], {"k": 4}, (0,), 2),
    OpCase("TopK", [(6, 3)], {"k": 3, "axis": 0, "largest": False}, (), 2),
    OpCase("ArgMax", [np.array([[1, 5, 5], [2, 2, 0]])], {"axis": 1, "last": True}, (0,)),
)
ROWS = (
    OpCase("ReduceSum", [()], {"axes": ()}),
    OpCase("ReduceMax", [(3, 0)], {"axes": (1,)}),
    OpCase("ReduceMean", [(2, 300)], {"axes": (1,)}),
    OpCase("ReduceSum", [(2, 3000)], {"axes": (0, 1)}),
    OpCase("Softmax", [(3, 200, 5)], {"axis": 1}),
    OpCase("CumSum", [(3, 4, 5)], {"axis": 1, "exclusive": True, "reverse": True}),
    OpCase("CumSum", [np.ones((2, 3), np.int32)], {"axis": 1, "exclusive": True}),
    OpCase("CumProd", [(7,)], {"axis": 0}),
    OpCase("LRN", [(2, 3, 7)], {"size": 4, "alpha": 0.5}),
)
ELEMENTS = (
    OpCase("Add", [(2, 1, 3, 1, 2, 1), (1, 4, 1, 3, 1, 2)], {}),
    OpCase("Add", [(), ()], {}),
    OpCase("Mul", [(), (3, 4)], {}),
    OpCase("Where", [np.array([[True], [False]]), (2, 3), (3,)], {}),
)
REGIONS = np.array([[0, 0, 5, 4], [1.5, 0.5, 3, 9], [-2, 1, 40, 2], [4, 4, 1, 1], [2, 2, 2, 2]], np.float32)
IMAGES = np.array([0, -1, 5, 1, 0])
REGIONAL = (
    *(
        OpCase("RoiAlign", [(2, 7, 9, 3), REGIONS, IMAGES], {"size": (2, 3), "scale": 0.75, **attrs}, (1, 2))
        for attrs in ({}, {"samples": 2, "half_pixel": False}, {"mode": "max"}, {"half_pixel": False})
    ),
    OpCase("RoiMaxPool", [(2, 7, 9, 3), REGIONS, IMAGES], {"size": (3, 2), "scale": 0.5}, (1, 2)),
    OpCase("DecodeBoxes", [(2, 7, 4), (7, 4)], {"variances": (0.1, 0.2, 0.3, 0.4)}),
    OpCase("SquaredDistance", [(5, 3), (7, 3)], {}),
    OpCase("DFT", [(3, 5, 1)], {"length": 7, "onesided": True}),
    OpCase("DFT", [(2, 3, 9, 2)], {"length": 6}),
    OpCase("DFT", [(2, 9, 2)], {"length": 9, "inverse": True}),
    OpCase("DFT", [(2, 5, 2)], {"length": 8, "inverse": True, "onesided": True}),
    OpCase("DFT", [(2, 400, 1)], {"length": 512, "onesided": True}),
)
CUBIC: Mapping[str, Attribute] = {
    "sizes": (1, 5, 4, 2),
    "scales": (1.0, 5 / 3, 0.8, 1.0),
    "mode": "cubic",
    "exclude_outside": True,
}
LINE = window(strides=[2], before=[1], after=[1], dilations=[2])
SPACE = window(strides=[1, 2, 1], before=[1, 0, 1], after=[0, 0, 1], dilations=[1, 1, 2])
GROUPS = window(strides=[1, 1], before=[1, 1], after=[1, 1], dilations=[1, 1])
BACKWARDS = window(strides=[3, 2], before=[1, 0], after=[0, 1], dilations=[2, 1])
CEIL: Mapping[str, Attribute] = {
    **window(strides=[2, 2], before=[1, 1], after=[1, 1], dilations=[1, 1]),
    "kernel": (2, 2),
    "ceil": True,
}
WINDOWS = (
    OpCase("Resize", [(1, 3, 5, 2)], CUBIC),
    OpCase("MatMul", [(4,), (4,)], {}),
    OpCase("MatMul", [(3, 0), (0, 2)], {}),
    OpCase("Conv", [(1, 9, 3), (5, 3, 3)], LINE),
    OpCase("Conv", [(1, 4, 5, 6, 2), (4, 3, 1, 2, 2)], SPACE),
    OpCase("Conv", [(1, 5, 5, 3), (6, 3, 3, 1)], {**GROUPS, "group": 3}),
    OpCase(
        "ConvTranspose", [(1, 4, 5, 4), (6, 3, 2, 2)], {**BACKWARDS, "group": 2, "output_padding": (1, 0)}
    ),
    OpCase("AveragePool", [(1, 5, 5, 3)], {**CEIL, "count_pad": True}),
)


def list_variants() -> Iterator[OpCase]:
    """Yield samples of grids in every mode, and scatters with every reduction."""
    for mode, padding in product(("nearest", "linear", "cubic"), ("zeros", "border", "reflection")):
        sampling: Mapping[str, Attribute] = {
            "mode": mode,
            "padding": padding,
            "align_corners": padding == "border",
        }
        # Not at random: a coordinate near the middle of two elements rounds either way in single precision.
        grid = np.linspace(-1.51, 1.47, 48).reshape(2, 3, 4, 2).astype(np.float32)
        yield OpCase("GridSample", [(2, 5, 6, 3), grid], sampling, (1,))
    places, pairs = RNG.integers(-5, 5, (3, 6, 2)), RNG.integers(-4, 4, (7, 2))
    for reduction in ("none", "add", "mul", "max", "min"):
        scatter: Mapping[str, Attribute] = {"axis": 1, "reduction": reduction}
        yield OpCase("ScatterElements", [(4, 5, 3), places, (3, 6, 2)], scatter, (1,))
        yield OpCase("ScatterND", [(4, 5, 3), pairs, (7, 3)], {"reduction": reduction}, (1,))


def build_case(number: int, entry: OpCase) -> Graph:
    inputs = [
        RNG.standard_normal(operand).astype(np.float32) if isinstance(operand, tuple) else operand
        for operand in entry.inputs
    ]
    name = f"{entry.op.lower()}_{number}"
    return case(name, entry.op, inputs, entry.attrs, constants=entry.constants, outputs=entry.outputs)


GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
RECURRENT: tuple[tuple[str, dict[str, Attribute], bool], ...] = (
    ("LSTM", {}, True),
    ("LSTM", {"direction": "bidirectional", "clip": 0.5, "cell_clip": 0.3}, True),
    (
        "LSTM",
        {"direction": "reverse", "coupled": True, "activations": ("HardSigmoid", "Softsign", "Relu")},
        False,
    ),
    ("GRU", {}, True),
    ("GRU", {"direction": "bidirectional", "linear_before_reset": True}, True),
    ("GRU", {"direction": "reverse", "linear_before_reset": True}, False),
    ("RNN", {"direction": "bidirectional", "activations": ("Relu", "Affine"), "alphas": (0.3,)}, True),
    ("RNN", {}, False),
)
"""Op, attributes, and whether the optional operands are there."""


def build_recurrent(number: int, entry: tuple[str, dict[str, Attribute], bool]) -> Graph:
    op, attrs, is_full = entry
    time, batch, width, hidden = 5, 2, 3, 6
    count = 2 if attrs.get("direction") == "bidirectional" else 1
    rows = GATES[op] * hidden
    builder, state = Builder(f"{op.lower()}_{number}"), (count, batch, hidden)
    operands = [
        builder.input("x", DType.F32, (time, batch, width)),
        builder.weight("w", RNG.standard_normal((count, rows, width)).astype(np.float32)),
        builder.weight("r", RNG.standard_normal((count, rows, hidden)).astype(np.float32)),
    ]
    if is_full:
        operands.append(builder.input("b", DType.F32, (count, 2 * rows)))
        operands.append(builder.weight("lengths", np.array([3, 5], np.int32)))
        operands.append(builder.input("h0", DType.F32, state))
    if is_full and op == "LSTM":
        operands.append(builder.input("c0", DType.F32, state))
        operands.append(builder.input("p", DType.F32, (count, 3 * hidden)))
    outputs = [f"y{i}" for i in range(3 if op == "LSTM" else 2)]
    return builder.finish(builder.add(op, operands, {"hidden": hidden, **attrs}, outputs=outputs))


CASES = (*MOVES, *INDEXED, *ROWS, *ELEMENTS, *WINDOWS, *REGIONAL)


def build_odd_graph() -> Graph:
    """Return all cases as one graph, `odd`."""
    graphs = [build_case(number, entry) for number, entry in enumerate((*CASES, *list_variants()))]
    graphs += [build_recurrent(number, entry) for number, entry in enumerate(RECURRENT)]
    return merge("odd", graphs)

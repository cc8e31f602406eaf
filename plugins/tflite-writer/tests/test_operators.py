"""Each operator in each element type: LiteRT computes what the node's reference does.

MACE_FUZZ says how many random graphs the tests marked `fuzz` write, 1,000 without it.
"""

from __future__ import annotations

import os

import pytest
from writer_cases import PROPOSALS, one_case, random_graph
from writer_oracle import check_graph

from mace_core.ir import DType

FLOATS, BYTES, WIDE = "f32", "f32 q-i8 q-u8", "f32 q-i8 q-u8 q-i16"
NUMBERS = f"{WIDE} i32 i64"
MOVED = f"{NUMBERS} i8 u8"

TAKEN = {
    **dict.fromkeys(("Conv", "ConvTranspose", "MatMul", "AveragePool", "MaxPool"), WIDE),
    **dict.fromkeys(("Relu", "Tanh", "Sigmoid", "LeakyRelu", "Softmax"), WIDE),
    **dict.fromkeys(("Add", "Sub", "Mul", "Maximum", "Minimum"), NUMBERS),
    **dict.fromkeys(("ReduceMean", "ReduceMax", "ReduceMin"), NUMBERS),
    **dict.fromkeys(("PRelu", "HardSwish", "LogSoftmax", "ResizeLinear", "Clip"), BYTES),
    **dict.fromkeys(("Sin", "Cos", "Ceil", "Floor", "Round", "Sign", "Sqrt"), FLOATS),
    **dict.fromkeys(("Exp", "Rsqrt", "Log", "Elu", "Gelu"), "f32 q-i8"),
    **dict.fromkeys(("Reshape", "Identity", "Transpose", "Concat", "Slice", "Gather"), f"{MOVED} i16 bool"),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), "f32 q-i8 q-u8 i32 i64 i8 u8"),
    "Tile": "f32 q-i8 q-u8 i32 i64 i8 u8 bool",
    "Abs": "f32 q-i8 q-i16",
    "Div": "f32 q-u8 i32",
    "Neg": "f32 i32 i64",
    "Pow": "f32 i32",
    "ReduceSum": "f32 q-u8 i32 i64",
    "Pad": NUMBERS,
    "MirrorPad": f"{MOVED} i16",
    "ResizeNearest": WIDE,
    "Split": f"{MOVED} i16",
}
"""Kinds of cases -> the element types that the format's operator takes; "q-" for stored real numbers."""

ALL = ("f32", "q-i8", "q-u8", "q-i16", "i32", "i64", "i8", "u8", "i16", "bool")
SEEDS = 3


def type_of(name: str) -> tuple[DType, bool]:
    return DType(name.removeprefix("q-")), name.startswith("q-")


@pytest.mark.parametrize("kind", PROPOSALS)
def test_an_operator_computes_its_node(kind: str) -> None:
    for name in TAKEN[kind].split():
        for seed in range(SEEDS):
            case = one_case(kind, seed, *type_of(name))
            assert case is not None, f"{kind} takes no {name}"
            check_graph(*case)


@pytest.mark.parametrize("kind", PROPOSALS)
def test_an_operator_refuses_other_types(kind: str) -> None:
    for name in set(ALL) - set(TAKEN[kind].split()):
        assert one_case(kind, 0, *type_of(name)) is None, name


GRAPH_TYPES = ("f32", "q-i8", "q-u8", "q-i16")


@pytest.mark.parametrize("name", GRAPH_TYPES)
def test_random_graphs_compute_what_their_nodes_do(name: str) -> None:
    for seed in range(6):
        check_graph(*random_graph(seed, *type_of(name)))


@pytest.mark.fuzz
@pytest.mark.parametrize("name", GRAPH_TYPES)
def test_many_random_graphs_compute_what_their_nodes_do(name: str) -> None:
    for seed in range(int(os.environ.get("MACE_FUZZ", "1000")) // len(GRAPH_TYPES)):
        check_graph(*random_graph(1000 + seed, *type_of(name)))

"""Damaged models: each ends in one error or in a valid graph."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_cases import const, f32, floats, ints
from tflite_write import Scales, Sparsity, Step, TableFields, Value, Written, write

from mace_core.ir import DType
from mace_core.testing.malformed import NUMBERS, Damaged, check_damaged, mutations

BESIDE = ("test_elementwise", "test_movement", "test_products", "test_reduce", "test_recurrent")
HUGE = (1 << 31) - 1
WINDOW: TableFields = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}


def beside(name: str) -> Any:
    """A file of tests beside this one."""
    spec = spec_from_file_location(f"tflite_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    result = module_from_spec(spec)
    sys.modules[spec.name] = result
    spec.loader.exec_module(result)
    return result


def network() -> Written:
    """A small one of floats and of integers."""
    values = [
        Value("x", DType.F32, (1, 6, 6, 3)),
        Value.constant("w", floats(4, 3, 3, 3)),
        Value.constant("b", floats(4)),
        Value("conv", DType.F32, (1, 6, 6, 4)),
        Value("stored", DType.I8, (1, 6, 6, 4), scales=Scales([0.05], [3])),
        Value.constant("v", np.ones((1, 3, 3, 4), np.int8), Scales([0.1, 0.2, 0.3, 0.4], [0] * 4, 3)),
        Value.constant("c", np.arange(4, dtype=np.int32), Scales([0.005, 0.01, 0.015, 0.02], [0] * 4)),
        Value("deep", DType.I8, (1, 6, 6, 4), scales=Scales([0.1], [0])),
        Value("pool", DType.I8, (1, 3, 3, 4), scales=Scales([0.1], [0])),
        Value.constant("shape", np.array([1, 36], np.int32)),
        Value("row", DType.I8, (1, 36), scales=Scales([0.1], [0])),
        Value("y", DType.F32, (1, 36)),
    ]
    steps = [
        Step(
            "CONV_2D", ["x", "w", "b"], ["conv"], ("Conv2DOptions", {**WINDOW, "FusedActivationFunction": 1})
        ),
        Step("QUANTIZE", ["conv"], ["stored"]),
        Step(
            "DEPTHWISE_CONV_2D",
            ["stored", "v", "c"],
            ["deep"],
            ("DepthwiseConv2DOptions", {**WINDOW, "DepthMultiplier": 1}),
        ),
        Step(
            "AVERAGE_POOL_2D",
            ["deep"],
            ["pool"],
            ("Pool2DOptions", {"StrideH": 2, "StrideW": 2, "FilterHeight": 2, "FilterWidth": 2}),
        ),
        Step("RESHAPE", ["pool", "shape"], ["row"]),
        Step("DEQUANTIZE", ["row"], ["y"]),
    ]
    return Written(values, steps, ["x"], ["y"])


def sound() -> list[tuple[Written, ...]]:
    """Models without damage."""
    control = beside("test_control")
    weights = beside("test_weights")
    condition = Value("condition", DType.BOOL, (1,))
    sparse = Value("w", DType.F32, (4, 4), np.float32([1, 2, 3, 4, 5, -1]), sparsity=weights.ROWS)
    return [
        (network(),),
        control.loop(3),
        (control.chosen(condition), control.unary("EXP"), control.unary("SIN")),
        (weights.product(sparse, before=(Step("DENSIFY", ["w"], ["whole"]),)),),
        (weights.product(replace(sparse, name="w")),),
    ]


def one(what: str, data: bytes | None) -> Damaged:
    return Damaged(what, {"m.tflite": data})


def random_damage() -> Iterator[Damaged]:
    for i, graphs in enumerate(sound()):
        yield from (one(f"bytes {i}", data) for data in mutations(write(*graphs), i, 100))
    for name in BESIDE:
        for i, case in enumerate(beside(name).CASES):
            yield from (one(f"{name}: {case.name}", data) for data in mutations(write(case.written()), i, 3))


def every_number() -> Iterator[Damaged]:
    """Each number of a file, for most of them are offsets, made another."""
    data = write(*sound()[2])
    for at in range(0, len(data) - 4, 8):
        for number in NUMBERS[at // 8 % 3 :: 3]:
            yield one(
                f"{number} at {at}", data[:at] + (number % (1 << 32)).to_bytes(4, "little") + data[at + 4 :]
            )


def single(
    code: str,
    *operands: Value | np.ndarray[Any, Any],
    options: tuple[str, TableFields] | None = None,
    made: int = 1,
) -> Written:
    """A graph of one operator."""
    values = [
        replace(o, name=f"in{i}") if isinstance(o, Value) else Value.constant(f"in{i}", o)
        for i, o in enumerate(operands)
    ]
    outputs = [Value(f"out{i}") for i in range(made)]
    names = [v.name for v in values]
    inputs = [v.name for v in values if v.data is None]
    return Written(
        [*values, *outputs],
        [Step(code, names, [o.name for o in outputs], options)],
        inputs,
        [o.name for o in outputs],
    )


def sparse(
    shape: tuple[int, ...],
    *dimensions: int | tuple[list[int], list[int]],
    order: tuple[int, ...] = (0, 1),
    blocks: tuple[int, ...] = (),
) -> Written:
    """A sparse constant whose description lies."""
    constant = Value(
        "", DType.F32, shape, np.float32([1, 2, 3]), sparsity=Sparsity(order, blocks, dimensions)
    )
    return single("ADD", f32(2, 2), constant, options=("AddOptions", {}))


BIG = 1 << 30
GRAPHS = {
    "a huge input": single("EXP", f32(HUGE, HUGE)),
    "an input of less": single("EXP", f32(-5, 2)),
    "an input of many axes": single("EXP", f32(*[1] * 300)),
    "a huge reshape": single("RESHAPE", f32(2, 3), const(HUGE, HUGE)),
    "a huge fill": single("FILL", const(1 << 15, 1 << 16), np.float32(1)),
    "a huge fill that is read": single("FILL", const(HUGE, HUGE), np.float32(1)),
    "a fill below 0": single("FILL", const(-4, 2), np.float32(1)),
    "a huge range": single("RANGE", np.int32(0), np.int32(HUGE), np.int32(1)),
    "a range of steps of 0": single("RANGE", np.int32(0), np.int32(9), np.int32(0)),
    "a range by nan": single("RANGE", np.float32(0), np.float32(np.nan), np.float32(1)),
    "a huge tile": single("TILE", f32(2, 3), const(HUGE, HUGE)),
    "a huge tile of a constant": single("TILE", floats(2, 3), const(BIG, BIG)),
    "a huge broadcast": single("BROADCAST_TO", floats(1, 1), const(1 << 15, 1 << 15)),
    "a huge pad": single("PAD", f32(2, 3), const([BIG, BIG], [BIG, BIG])),
    "a huge pad of a constant": single("PAD", floats(2, 3), const([1 << 15, 0], [1 << 15, 0])),
    "a huge resize": single(
        "RESIZE_BILINEAR", f32(1, 2, 2, 1), const(HUGE, HUGE), options=("ResizeBilinearOptions", {})
    ),
    "a huge one-hot": single(
        "ONE_HOT", ints(4), np.int32(HUGE), np.float32(1), np.float32(0), options=("OneHotOptions", {})
    ),
    "a huge top": single("TOPK_V2", f32(4), np.int32(HUGE), made=2),
    "a huge scatter": single("SCATTER_ND", const([1], [3]), f32(2, 4), const(HUGE, 4)),
    "a huge scatter of constants": single("SCATTER_ND", const([1], [3]), floats(2, 4), const(1 << 28, 4)),
    "a sparse result of a huge size": single(
        "SPARSE_TO_DENSE", const([0, 1]), const(BIG, BIG), np.float32(1), np.float32(0)
    ),
    "a huge batch": single("BATCH_TO_SPACE_ND", f32(4, 2, 2, 1), const(HUGE, HUGE), const([0, 0], [0, 0])),
    "blocks of 0": single("SPACE_TO_BATCH_ND", f32(4, 2, 2, 1), const(0, 0), const([0, 0], [0, 0])),
    "a block of 0": single(
        "SPACE_TO_DEPTH", f32(1, 4, 4, 1), options=("SpaceToDepthOptions", {"BlockSize": 0})
    ),
    "a huge depth": single(
        "DEPTH_TO_SPACE", f32(1, 4, 4, 4), options=("DepthToSpaceOptions", {"BlockSize": HUGE})
    ),
    "strides of 0": single(
        "MAX_POOL_2D", f32(1, 4, 4, 1), options=("Pool2DOptions", {"FilterHeight": 2, "FilterWidth": 2})
    ),
    "a huge window": single(
        "MAX_POOL_2D",
        f32(1, 4, 4, 1),
        options=("Pool2DOptions", {"StrideH": 1, "StrideW": 1, "FilterHeight": HUGE}),
    ),
    "a slice by 0": single(
        "STRIDED_SLICE", f32(4), const(0), const(4), const(0), options=("StridedSliceOptions", {})
    ),
    "a division by 0": single("FLOOR_DIV", np.array([1], "i4"), np.array([0], "i4")),
    "a huge shift": single("RIGHT_SHIFT", np.array([1], "i4"), np.array([99], "i4")),
    "parts of less": single(
        "SPLIT_V",
        f32(4),
        const(HUGE, -HUGE),
        np.int32(0),
        options=("SplitVOptions", {"NumSplits": 2}),
        made=2,
    ),
    "a huge number of parts": single(
        "SPLIT", np.int32(0), f32(4), options=("SplitOptions", {"NumSplits": HUGE})
    ),
    "a diagonal of a huge matrix": single("MATRIX_DIAG", floats(1 << 16)),
    "segments without end": single("UNSORTED_SEGMENT_SUM", f32(2), const(0, HUGE), np.int32(HUGE)),
    "random numbers without end": single("RANDOM_UNIFORM", const(BIG, BIG), options=("RandomOptions", {})),
    "a sparse constant of a huge size": sparse((1 << 14, 1 << 14), 1 << 14, ([0] * 3, [0])),
    "a sparse constant of many axes": sparse((2,) * 15, *[2] * 15, order=tuple(range(15))),
    "a sparse constant of another size": sparse((2, 2), BIG, BIG),
    "a sparse constant of less": sparse((2, 2), -1, -1),
    "segments that lie": sparse((2, 2), 2, ([0, HUGE, 1], [0])),
    "segments of less": sparse((2, 2), 2, ([-5, -1, 3], [0, 1, 1])),
    "indices that lie": sparse((2, 2), 2, ([0, 2, 3], [0, 9, -1])),
    "an order that lies": sparse((2, 2), 2, 2, order=(0, 7)),
    "an order of one": sparse((2, 2), 2, 2, order=(0, 0)),
    "blocks that lie": sparse((2, 2), 2, 2, 2, order=(0, 1, 2), blocks=(9,)),
    "a node that reads itself": Written(
        [Value("x", shape=(2,)), Value("y")],
        [Step("ADD", ["x", "y"], ["y"], ("AddOptions", {}))],
        ["x"],
        ["y"],
    ),
    "a cycle": Written(
        [Value("x", shape=(2,)), Value("a"), Value("y")],
        [Step("ADD", ["x", "y"], ["a"], ("AddOptions", {})), Step("EXP", ["a"], ["y"])],
        ["x"],
        ["y"],
    ),
    "a tensor written twice": Written(
        [Value("x", shape=(2,)), Value("y")], [Step("EXP", ["x"], ["y"])] * 2, ["x"], ["y"]
    ),
    "an input that is written": Written(
        [Value("x", shape=(2,)), Value("y")],
        [Step("EXP", ["x"], ["x"]), Step("EXP", ["x"], ["y"])],
        ["x"],
        ["y"],
    ),
    "a node of nothing": Written(
        [Value("x", shape=(2,)), Value("y")], [Step("ADD", [], ["y"])], ["x"], ["y"]
    ),
    "a node of absent tensors": Written(
        [Value("x", shape=(2,)), Value("y")], [Step("ADD", ["", ""], ["y"])], ["x"], ["y"]
    ),
    "an output twice": Written(
        [Value("x", shape=(2,)), Value("y")], [Step("EXP", ["x"], ["y"])], ["x"], ["y", "y"]
    ),
    "scales of 0": single("DEQUANTIZE", Value("", DType.I8, (2,), scales=Scales([0.0], [0]))),
    "scales of nan": single("DEQUANTIZE", Value("", DType.I8, (2,), scales=Scales([float("nan")], [0]))),
    "a huge zero": single("DEQUANTIZE", Value("", DType.I8, (2,), scales=Scales([0.1], [1 << 62]))),
    "scales along no axis": single(
        "DEQUANTIZE", Value("", DType.I8, (2,), scales=Scales([0.1, 0.2], [0, 0], 7))
    ),
    "a row of many nodes": Written(
        [Value(f"t{i}", shape=(2,)) for i in range(2001)],
        [Step("EXP", [f"t{i}"], [f"t{i + 1}"]) for i in range(2000)],
        ["t0"],
        ["t2000"],
    ),
}


def call(code: str, options: tuple[str, TableFields]) -> Written:
    """A graph that calls others."""
    values = [Value.constant("c", np.array([True])), Value("x", shape=(2,)), Value("y")]
    inputs = ["c", "x"] if code == "IF" else ["x"]
    return Written(values, [Step(code, inputs, ["y"], options)], ["x"], ["y"])


def calls() -> Iterator[tuple[str, tuple[Written, ...]]]:
    control = beside("test_control")
    exp = Written([Value("x", shape=(2,)), Value("y")], [Step("EXP", ["x"], ["y"])], ["x"], ["y"])
    for number in (0, 1, 2, HUGE, -1):
        branch = call("IF", ("IfOptions", {"ThenSubgraphIndex": number, "ElseSubgraphIndex": number}))
        yield f"a branch into graph {number}", (branch, branch)
        turn = call("WHILE", ("WhileOptions", {"CondSubgraphIndex": number, "BodySubgraphIndex": number}))
        yield f"a loop of graph {number}", (turn, turn)
        yield (
            f"a call of graph {number}",
            (call("CALL_ONCE", ("CallOnceOptions", {"InitSubgraphIndex": number})), exp),
        )
        yield (
            f"a stable call of graph {number}",
            (call("CALL", ("CallOptions", {"Subgraph": max(number, 0)})), exp),
        )
    row = [
        call("IF", ("IfOptions", {"ThenSubgraphIndex": i + 1, "ElseSubgraphIndex": i + 1}))
        for i in range(400)
    ]
    yield "calls in a row", (*row, exp)
    both = []
    for i in range(40):
        options = ("IfOptions", {"ThenSubgraphIndex": i + 1, "ElseSubgraphIndex": i + 1})
        values = [Value.constant("c", np.array([True])), Value("x", shape=(2,)), Value("a"), Value("y")]
        both.append(
            Written(
                values,
                [Step("IF", ["c", "x"], ["a"], options), Step("IF", ["c", "a"], ["y"], options)],
                ["x"],
                ["y"],
            )
        )
    yield "calls that double", (*both, exp)
    yield "a loop of many turns", control.loop(HUGE)
    yield "a loop of as many turns as are written out", control.loop(4000)


def known_damage() -> Iterator[Damaged]:
    yield from (one(what, write(graph)) for what, graph in GRAPHS.items())
    yield from (one(what, write(*graphs)) for what, graphs in calls())
    data = write(network())
    yield one("nothing", b"")
    yield one("a folder", None)
    yield one("the mark alone", b"\x00\x00\x00\x00TFL3")
    yield one("a root beyond the file", b"\xff\xff\xff\x7fTFL3" + bytes(64))
    yield one("offsets to themselves", b"\x08\x00\x00\x00TFL3" + bytes(4000))
    yield one("offsets of 4", b"\x10\x00\x00\x00TFL3" + b"\x04\x00\x00\x00" * 4000)
    yield one("names that are no text", data.replace(b"conv", b"\xff\xfe\xfd\xfc"))


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(300)
def test_damaged_models(tmp_path: Path) -> None:
    damaged = [
        *(one("sound", write(*graphs)) for graphs in sound()),
        *random_damage(),
        *every_number(),
        *known_damage(),
    ]
    assert len(damaged) >= 500
    result = check_damaged("tflite", damaged, tmp_path)
    assert result["graph"] >= len(sound())
    assert result["error"] > 200

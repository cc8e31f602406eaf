"""Shapes and constants that depend on shapes, on both sides of their limits."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from tflite_cases import Case, check, const, f32, i8, ints, load, stored
from tflite_write import Value

from mace_core.errors import MaceError
from mace_core.ir import DType, Shape
from mace_core.run.reference import execute
from mace_frontend_tflite.ops.shape import MAX_RANGE


def result(case: Case, folder: Path, name: str = "out0") -> np.ndarray:
    graph = load(folder, case.written())
    return execute(graph, case.arrays())[name]


@pytest.mark.parametrize(
    ("shape", "stated", "made"),
    [
        ((2, 3), (-1,), (6,)),
        ((2, 3), (3, -1), (3, 2)),
        ((2, 3), (6, 1), (6, 1)),
        ((1,), (), ()),
        ((), (1, -1), (1, 1)),
        ((0, 3), (3, -1), (3, 0)),
        ((2, 3), (0, -1), None),
        ((0, 3), (0, -1), None),
        ((2, 3), (4, -1), None),
    ],
)
def test_one_dimension_is_filled_in(shape: Shape, stated: Shape, made: Shape | None, tmp_path: Path) -> None:
    options = ("ReshapeOptions", {"NewShape": np.array(stated, "i4")})
    for operands in ([f32(*shape), const(*stated)], [f32(*shape)]):
        if not stated and len(operands) == 1:
            options = ("ReshapeOptions", {})
        case = Case("reshape", "RESHAPE", operands, options)
        if made is not None:
            assert result(case, tmp_path).shape == made
            continue
        with pytest.raises(
            MaceError, match=re.escape(f"{np.prod(shape)} elements in a shape of {list(stated)}")
        ):
            load(tmp_path, case.written())


def test_the_input_counts_where_both_state_a_shape(tmp_path: Path) -> None:
    options = ("ReshapeOptions", {"NewShape": np.array([6, 1], "i4")})
    assert result(Case("reshape", "RESHAPE", [f32(2, 3), const(3, 2)], options), tmp_path).shape == (3, 2)


@pytest.mark.parametrize(
    ("axes", "made"), [([0], (3, 1, 4)), ([-2], (1, 3, 4)), ([0, 2], (3, 4)), ([], (3, 4))]
)
def test_squeezed_axes(axes: list[int], made: Shape, tmp_path: Path) -> None:
    options = ("SqueezeOptions", {"SqueezeDims": np.array(axes, "i4")} if axes else {})
    assert result(Case("squeeze", "SQUEEZE", [f32(1, 3, 1, 4)], options), tmp_path).shape == made


@pytest.mark.parametrize(("axis", "made"), [(0, (1, 3, 4)), (2, (3, 4, 1)), (-1, (3, 4, 1)), (-3, (1, 3, 4))])
def test_a_new_axis(axis: int, made: Shape, tmp_path: Path) -> None:
    assert result(Case("expand", "EXPAND_DIMS", [f32(3, 4), const(axis)]), tmp_path).shape == made


@pytest.mark.parametrize("axis", [3, -4])
def test_a_new_axis_that_is_none(axis: int, tmp_path: Path) -> None:
    with pytest.raises(MaceError, match=f"it names axis {axis} of a tensor of rank 3"):
        load(tmp_path, Case("expand", "EXPAND_DIMS", [f32(3, 4), const(axis)]).written())


@pytest.mark.parametrize(
    ("start", "limit", "step", "fits"),
    [
        (0, 5, 2, True),
        (5, 0, -2, True),
        (3, 3, 1, True),
        (0, MAX_RANGE, 1, False),
        (0, MAX_RANGE - 1, 2**20, True),
        (0, -MAX_RANGE, -1, False),
        (MAX_RANGE, 2 * MAX_RANGE, 1, False),
        (0, 5, 0, False),
    ],
)
def test_ranges(start: int, limit: int, step: int, fits: bool, tmp_path: Path) -> None:
    case = Case("range", "RANGE", [np.int32(start), np.int32(limit), np.int32(step)], None, [ints()])
    if fits:
        np.testing.assert_array_equal(result(case, tmp_path), np.arange(start, limit, step, np.int32))
        return
    with pytest.raises(MaceError, match=f"it has a range from {start} to {limit} by {step}"):
        load(tmp_path, case.written())


@pytest.mark.parametrize("kind", [2, 4])
def test_shape_and_rank(kind: int, tmp_path: Path) -> None:
    dtype = {2: DType.I32, 4: DType.I64}[kind]
    check(
        Case("shape", "SHAPE", [f32(2, 3)], ("ShapeOptions", {"OutType": kind}), [ints(dtype=dtype)]),
        tmp_path,
    )
    check(Case("rank", "RANK", [f32(2, 3, 1)], None, [ints()]), tmp_path)


@pytest.mark.parametrize("dtype", [DType.I32, DType.I64])
def test_distinct_elements_in_the_order_of_their_first_place(dtype: DType, tmp_path: Path) -> None:
    elements = const(5, 3, 5, 9, 3, 1)
    kind = {DType.I32: 2, DType.I64: 4}[dtype]
    outputs = [ints(), ints(dtype=dtype)]
    case = Case("unique", "UNIQUE", [elements], ("UniqueOptions", {"IdxOutType": kind}), outputs)
    graph = load(tmp_path, case.written())
    values = execute(graph, {})
    assert values["out0"].tolist() == [5, 3, 9, 1]
    assert values["out1"].tolist() == [0, 1, 0, 2, 1, 3]
    assert values["out1"].dtype == dtype.numpy
    check(case, tmp_path)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (Case("fill", "FILL", [const(2, 3), np.float32(1.5)]), np.full((2, 3), 1.5, np.float32)),
        (Case("zeros", "ZEROS_LIKE", [f32(2, 3)]), np.zeros((2, 3), np.float32)),
        (Case("zeros i32", "ZEROS_LIKE", [ints(2)], None, [ints()]), np.zeros(2, np.int32)),
        (
            Case("where", "WHERE", [np.array([[True, False], [False, True]])], None, [ints(dtype=DType.I64)]),
            [[0, 0], [1, 1]],
        ),
        (Case("args", "BROADCAST_ARGS", [const(3, 1), const(2, 1, 4)], None, [ints()]), [2, 3, 4]),
        (Case("to", "BROADCAST_TO", [np.float32([[1], [2]]), const(2, 2)]), [[1, 1], [2, 2]]),
    ],
)
def test_what_is_known_when_the_model_is_read(made: Case, expected: object, tmp_path: Path) -> None:
    np.testing.assert_array_equal(result(made, tmp_path), expected)


@pytest.mark.parametrize(
    ("dtype", "fits"), [(DType.I32, True), (DType.U32, True), (DType.I64, False), (DType.I8, False)]
)
def test_bits_are_read_as_a_type_of_their_size(dtype: DType, fits: bool, tmp_path: Path) -> None:
    bits = np.float32([[1, -2], [0.5, 3]])
    case = Case("bits", "BITCAST", [bits], None, [Value("", dtype)])
    if fits:
        np.testing.assert_array_equal(result(case, tmp_path), bits.view(dtype.numpy))
        return
    with pytest.raises(MaceError, match="it reads bits of float32 as "):
        load(tmp_path, case.written())


def test_distinct_numbers_keep_their_scale(tmp_path: Path) -> None:
    elements = stored(np.array([5, 3, 5]), 0.05, 3)
    case = Case("unique", "UNIQUE", [elements], ("UniqueOptions", {"IdxOutType": 2}), [i8(), ints()])
    graph = load(tmp_path, case.written())
    values = execute(graph, {})
    assert values["out0"].tolist() == [5, 3]
    quant = graph.tensors["out0"].quant
    assert quant is not None
    assert (quant.scale, quant.zero_point) == ((np.float64(np.float32(0.05)),), (3,))

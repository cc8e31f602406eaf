"""A table of what each handler refuses, and of the last value that it still takes where a number is the limit."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import tflite
from tflite_cases import Case, const, f32, floats, i8, ints, load, state
from tflite_write import Scales, TableFields, Value

from mace_core.errors import MaceError
from mace_core.ir import DType

IMAGE = f32(2, 7, 9, 4)
WINDOW: TableFields = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
POOL: TableFields = {"StrideH": 1, "StrideW": 1, "FilterHeight": 2, "FilterWidth": 2}
SIGN_BIT = tflite.ActivationFunctionType.SIGN_BIT
MAX_CONSTANT = 1 << 24
MAX_BOXES = 1 << 20
CENTERS = ("ResizeNearestNeighborOptions", {"HalfPixelCenters": True})


def conv(
    filters: np.ndarray[tuple[int, ...], np.dtype[np.float32]], image: Value = IMAGE, **fields: int
) -> Case:
    return Case("conv", "CONV_2D", [image, filters], ("Conv2DOptions", {**WINDOW, **fields}))


def conv_transpose(shape: tuple[int, ...], stride: int = 1) -> Case:
    options = ("TransposeConvOptions", {"StrideH": stride, "StrideW": stride})
    return Case("conv transpose", "TRANSPOSE_CONV", [const(*shape), floats(5, 3, 3, 4), IMAGE], options)


def product(rows: Value, weights: int, **fields: int) -> Case:
    options = ("FullyConnectedOptions", fields)
    return Case("product", "FULLY_CONNECTED", [rows, floats(5, weights)], options)


def select_boxes(number: int, boxes: tuple[int, ...] = (6, 4), sigma: float | None = None) -> Case:
    operands = [f32(*boxes), f32(6), np.int32(number), np.float32(0.5), np.float32(0.1)]
    if sigma is None:
        return Case("boxes", "NON_MAX_SUPPRESSION_V4", operands, None, [Value("")] * 2)
    return Case("boxes", "NON_MAX_SUPPRESSION_V5", [*operands, np.float32(sigma)], None, [Value("")] * 3)


def resize(*shape: int, size: tuple[int, ...]) -> Case:
    return Case("resize", "RESIZE_BILINEAR", [f32(*shape), const(*size)], ("ResizeBilinearOptions", {}))


def gather(axis: int, batch: int) -> Case:
    options = ("GatherOptions", {"Axis": axis, "BatchDims": batch})
    return Case("gather", "GATHER", [f32(2, 3, 4), ints(2, 3)], options)


def take_range(limit: int, step: int = 1, start: int = 0) -> Case:
    return Case("range", "RANGE", [np.int32(start), np.int32(limit), np.int32(step)])


def normalize(radius: int) -> Case:
    options = (
        "LocalResponseNormalizationOptions",
        {"Radius": radius, "Alpha": 1.0, "Beta": 0.5, "Bias": 1.0},
    )
    return Case("lrn", "LOCAL_RESPONSE_NORMALIZATION", [IMAGE], options)


def recurrent(rank: int = 3, **fields: int) -> Case:
    sequence = f32(*(2, 3, 4)[:rank])
    operands = [sequence, floats(5, 4), floats(5, 5), floats(5), state(2, 5)]
    return Case("rnn", "UNIDIRECTIONAL_SEQUENCE_RNN", operands, ("SequenceRNNOptions", fields))


def filter_states(filters: int, rank: int) -> Case:
    operands = [f32(2, 4), floats(filters, 4), floats(filters, 3), None, state(2, filters * 3)]
    return Case("svdf", "SVDF", operands, ("SVDFOptions", {"Rank": rank}))


def fake_quantize(low: float, high: float, bits: int = 8) -> Case:
    options = ("FakeQuantOptions", {"Min": low, "Max": high, "NumBits": bits})
    return Case("fake", "FAKE_QUANT", [f32(4)], options)


def scaled_by_row(*shape: int) -> Value:
    return Value("", DType.I8, shape, scales=Scales((0.1, 0.2), (0, 0), 0))


def mirror(before: int, after: int) -> Case:
    mode = tflite.MirrorPadMode.SYMMETRIC
    return Case(
        "mirror", "MIRROR_PAD", [f32(3), const([before, after])], ("MirrorPadOptions", {"Mode": mode})
    )


REFUSED = (
    (conv(floats(6, 3, 2, 4), f32(2, 7, 4)), "a window of (3, 2) by (1, 1) over (7,)"),
    (conv(floats(6, 3, 2, 4), StrideW=0), "a window of (3, 2) by (1, 0) over (7, 9)"),
    (conv(floats(6, 3, 2, 4), DilationHFactor=0), "a window of (3, 2)"),
    (conv(floats(6, 3, 2, 3)), "filters of [6, 3, 2, 3] on 4 channels"),
    (conv(floats(6, 3, 2, 0)), "filters of [6, 3, 2, 0] on 4 channels"),
    (conv(floats(6, 3, 2)), "filters of [6, 3, 2] on 4 channels"),
    (
        conv(floats(6, 3, 2, 4), FusedActivationFunction=SIGN_BIT),
        "it has fused activation 5, which is not supported",
    ),
    (
        Case(
            "depthwise", "DEPTHWISE_CONV_2D", [IMAGE, floats(2, 3, 2, 4)], ("DepthwiseConv2DOptions", WINDOW)
        ),
        "depthwise filters of [2, 3, 2, 4]",
    ),
    (conv_transpose((2, 9, 5)), "operands of ranks 3, 4 and 4"),
    (conv_transpose((2, 9, 11, 5), stride=0), "strides (0, 0) and dilations (1, 1)"),
    (product(f32(3, 8), 8, WeightsFormat=1), "its weights are shuffled; convert the model again without"),
    (product(f32(3, 7), 8), "[3, 7] times weights of [5, 8]"),
    (select_boxes(0), "0 of boxes of shape [6, 4]"),
    (select_boxes(MAX_BOXES + 1), f"{MAX_BOXES + 1} of boxes"),
    (select_boxes(3, (1, 6, 4)), "3 of boxes of shape [1, 6, 4]"),
    (select_boxes(3, sigma=0.5), "scores that fall with overlap (its soft form)"),
    (
        Case("cast", "CAST", [f32(4)], ("CastOptions", {}), [Value("", kind=tflite.TensorType.STRING)]),
        "its result is of type STRING, which is not supported",
    ),
    (Case("quantize", "QUANTIZE", [f32(4)], None, [Value("", DType.I8)]), "its result has no scale"),
    (fake_quantize(1.0, 1.0), "a range from 1.0 to 1.0"),
    (fake_quantize(1.0, 2.0, bits=0), "a range from 1.0 to 2.0"),
    (fake_quantize(2.0, 1.0), "a range from 2.0 to 1.0"),
    (gather(0, 1), "1 batch dimensions before axis 0"),
    (gather(2, 3), "3 batch dimensions before axis 2"),
    (gather(2, -3), "-1 batch dimensions before axis 2"),
    (gather(3, 0), "axis 3 of a tensor of rank 3"),
    (
        Case("scatter", "SCATTER_ND", [const([1]), f32(1, 2), const(-1, 2)]),
        "a result of shape [-1, 2]",
    ),
    (
        Case("scatter", "SCATTER_ND", [const([1]), f32(1), const(MAX_CONSTANT + 1)]),
        f"a result of shape [{MAX_CONSTANT + 1}]",
    ),
    (
        Case("dense", "SPARSE_TO_DENSE", [const([0, 1, 1]), const(3, 3), np.float32(1), np.float32(0)]),
        "indices of shape [1, 3] for a result of [3, 3]",
    ),
    (
        Case("segments", "SEGMENT_SUM", [f32(3, 2), const(0, 1)]),
        "numbers of shape [2] for data of [3, 2]",
    ),
    (
        Case("segments", "UNSORTED_SEGMENT_SUM", [f32(3, 2), ints(3), ints()]),
        "its number of segments (input 2) is computed at run time",
    ),
    (Case("update", "DYNAMIC_UPDATE_SLICE", [f32(3, 2), f32(3, 3), ints(2)]), "[3, 3] in [3, 2]"),
    (Case("update", "DYNAMIC_UPDATE_SLICE", [f32(3, 2), f32(3), ints(2)]), "[3] in [3, 2]"),
    (
        Case("update", "DYNAMIC_UPDATE_SLICE", [f32(MAX_CONSTANT + 2), f32(MAX_CONSTANT + 1), ints(1)]),
        f"it writes an update of shape [{MAX_CONSTANT + 1}]",
    ),
    (
        Case("update", "DYNAMIC_UPDATE_SLICE", [f32(4097, 2050), f32(4096, 2049), ints(2)]),
        "it writes an update of shape [4096, 2049]",
    ),
    (product(f32(3, 0), 0), "it multiplies [3, 0] times weights of [5, 0]"),
    (
        Case("nearest", "RESIZE_NEAREST_NEIGHBOR", [f32(1, 2, 2, 1), const(2, (1 << 20) + 1)], CENTERS),
        f"it has a size of [1, 2, {(1 << 20) + 1}, 1]",
    ),
    (
        Case("nearest", "RESIZE_NEAREST_NEIGHBOR", [f32(1, 2, 2, 1), const(-1, 2)], CENTERS),
        "it has a size of [1, -1, 2, 1]",
    ),
    (Case("diagonal", "MATRIX_DIAG", [f32(4097)]), "a diagonal of 4097 by 4097"),
    (
        Case("unpack", "UNPACK", [f32(3, 2)], ("UnpackOptions", {"Axis": 0}), [Value("")] * 2),
        "3 parts for 2 results",
    ),
    (
        Case("split", "SPLIT", [np.int32(0), f32(3)], ("SplitOptions", {"NumSplits": 2}), [Value("")] * 2),
        "3 elements in 2 parts for 2 results",
    ),
    (
        Case("split", "SPLIT", [np.int32(0), f32(4)], ("SplitOptions", {"NumSplits": 2}), [Value("")] * 3),
        "4 elements in 2 parts for 3 results",
    ),
    (mirror(4, 0), "paddings of [(4, 0)] around [3]"),
    (mirror(0, 4), "paddings of [(0, 4)] around [3]"),
    (mirror(-1, 0), "paddings of [(-1, 0)] around [3]"),
    (resize(2, 3, 4, size=(6, 8)), "[2, 3, 4] to [6, 8]"),
    (resize(1, 2, 3, 4, size=(6, 8, 2)), "[1, 2, 3, 4] to [6, 8, 2]"),
    (normalize(0), "a radius of 0 over 4 channels"),
    (normalize(5), "a radius of 5 over 4 channels"),
    (Case("reduce", "SUM", [f32(3, 2), const(2)], ("ReducerOptions", {})), "axis 2 of a tensor of rank 2"),
    (Case("reduce", "SUM", [f32(3, 2), const(-3)], ("ReducerOptions", {})), "axis -3 of a tensor of rank 2"),
    (Case("reduce", "SUM", [f32(3, 2), ints(1)], ("ReducerOptions", {})), "its axes (input 1) is computed"),
    (recurrent(rank=2), "a sequence of shape [2, 3]"),
    (recurrent(FusedActivationFunction=SIGN_BIT), "activation 5 is not supported"),
    (filter_states(6, 4), "6 filters of rank 4"),
    (filter_states(6, 0), "6 filters of rank 0"),
    (Case("reshape", "RESHAPE", [f32(3, 2), const(-1, -1)]), "a new shape of [-1, -1]"),
    (Case("reshape", "RESHAPE", [f32(3, 2), const(-2, 3)]), "a new shape of [-2, 3]"),
    (Case("reshape", "RESHAPE", [f32(3, 2), const(-1, 4)]), "6 elements in a shape of [-1, 4]"),
    (take_range(9, step=0), "a range from 0 to 9 by 0"),
    (take_range(1, start=1 - MAX_CONSTANT), f"a range from {1 - MAX_CONSTANT} to 1 by 1"),
    (take_range(MAX_CONSTANT), f"a range from 0 to {MAX_CONSTANT} by 1"),
    (
        Case("bitcast", "BITCAST", [const(1, dtype="i4")], None, [Value("", DType.I64)]),
        "bits of int32 as INT64",
    ),
    (Case("spectrum", "RFFT2D", [f32(8), const(4, 4)]), "lengths (4, 4) of a shape of [8]"),
    (Case("spectrum", "RFFT2D", [f32(8, 8), const(4, 0)]), "lengths (4, 0) of a shape of [8, 8]"),
    (
        Case("gather", "GATHER", [f32(4), None], ("GatherOptions", {})),
        "it has no input 1; convert the model again",
    ),
    (
        Case("integers", "CAST", [scaled_by_row(2, 3)], ("CastOptions", {}), [ints()]),
        "it reads the integers of a tensor with several scales; convert the model with one scale for it",
    ),
    (
        Case("integers", "CAST", [i8(2)], ("CastOptions", {}), [Value("", kind=tflite.TensorType.STRING)]),
        "its result is of type STRING",
    ),
)
ACCEPTED = (
    product(f32(3, 16), 8),
    select_boxes(1),
    select_boxes(MAX_BOXES),
    fake_quantize(0.0, 1e-3),
    gather(1, 1),
    gather(2, 2),
    gather(2, -1),
    Case("scatter", "SCATTER_ND", [const([1]), f32(1), const(MAX_CONSTANT)]),
    Case("update", "DYNAMIC_UPDATE_SLICE", [f32(3, 2), f32(3, 2), ints(2)]),
    Case("diagonal", "MATRIX_DIAG", [f32(4096)]),
    mirror(3, 3),
    Case("nearest", "RESIZE_NEAREST_NEIGHBOR", [f32(1, 2, 2, 1), const(0, 1 << 20)], CENTERS),
    normalize(4),
    normalize(1),
    filter_states(6, 3),
    Case("reduce", "SUM", [f32(3, 2), const(-2)], ("ReducerOptions", {})),
    take_range(MAX_CONSTANT - 1),
)


def describe(case: object) -> str:
    return case.code if isinstance(case, Case) else ""


@pytest.mark.parametrize(("case", "problem"), REFUSED, ids=describe)
def test_what_a_handler_cannot_represent_is_refused(case: Case, problem: str, tmp_path: Path) -> None:
    with pytest.raises(MaceError, match=re.escape(problem)) as error:
        load(tmp_path, case.written())
    assert f"({case.code})" in str(error.value)
    assert "; " in str(error.value), "it must say what to do"


@pytest.mark.parametrize("case", ACCEPTED, ids=describe)
def test_the_last_value_within_a_limit_is_taken(case: Case, tmp_path: Path) -> None:
    assert load(tmp_path, case.written()).outputs

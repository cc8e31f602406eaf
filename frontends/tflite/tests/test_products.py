"""Convolutions, products and pools, each by itself, against LiteRT's plain kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_cases import Case, bytes_of, check, const, f32, floats, i8, load, stored
from tflite_write import TableFields

from mace_core.ir import DType


def window(stride: int = 1, padding: int = 0, **fields: Any) -> TableFields:
    return {"StrideH": stride, "StrideW": stride, "Padding": padding, **fields}


def conv(kind: str = "Conv2DOptions", **fields: Any) -> tuple[str, TableFields]:
    return kind, window(**{"DilationHFactor": 1, "DilationWFactor": 1, **fields})


def depthwise(multiplier: int, **fields: Any) -> tuple[str, TableFields]:
    return conv("DepthwiseConv2DOptions", DepthMultiplier=multiplier, **fields)


def pool(**fields: Any) -> tuple[str, TableFields]:
    return "Pool2DOptions", window(**{"FilterHeight": 3, "FilterWidth": 2, **fields})


X = f32(2, 7, 9, 4)
QX = i8(2, 7, 9, 4)
BIAS = bytes_of(6, low=-900, high=900)
SCALES = [0.01, 0.02, 0.005, 0.03, 0.015, 0.01]
QW = stored(bytes_of(6, 3, 2, 4), SCALES)
QB = stored(BIAS, [s * 0.05 for s in SCALES], dtype="i4")
UX = i8(2, 7, 9, 4, zero=120, dtype=DType.U8)
UW = stored(bytes_of(6, 3, 2, 4, low=0, high=255), 0.01, 110, dtype="u1")
UB = stored(BIAS, 0.01 * 0.05, dtype="i4")
SX = i8(2, 7, 9, 4, scale=2**-10, zero=0, dtype=DType.I16)
SB = stored(BIAS, [s * 2**-10 for s in SCALES], dtype="i8")
CONV = (
    Case("conv", "CONV_2D", [X, floats(6, 3, 2, 4), floats(6)], conv()),
    Case(
        "conv clamped", "CONV_2D", [X, floats(6, 3, 2, 4), np.zeros(6, "f4")], conv(FusedActivationFunction=2)
    ),
    Case("conv same", "CONV_2D", [X, floats(6, 3, 2, 4), floats(6)], conv(stride=2, padding=0)),
    Case(
        "conv valid",
        "CONV_2D",
        [X, floats(6, 3, 2, 4), floats(6)],
        conv(stride=2, padding=1, FusedActivationFunction=3),
    ),
    Case(
        "conv dilated",
        "CONV_2D",
        [X, floats(6, 3, 2, 4), floats(6)],
        conv(DilationHFactor=2, DilationWFactor=3),
    ),
    Case("conv tanh", "CONV_2D", [X, floats(6, 3, 2, 4), floats(6)], conv(FusedActivationFunction=1)),
    Case("conv groups", "CONV_2D", [X, floats(6, 3, 2, 2), floats(6)], conv(padding=1)),
    Case("conv i8", "CONV_2D", [QX, QW, QB], conv(), [i8(scale=0.15)]),
    Case("conv i8 relu", "CONV_2D", [QX, QW, QB], conv(FusedActivationFunction=1), [i8(scale=0.15)]),
    Case(
        "conv i8 relu6",
        "CONV_2D",
        [QX, QW, QB],
        conv(padding=1, FusedActivationFunction=3),
        [i8(scale=0.04, zero=-100)],
    ),
    Case("conv u8", "CONV_2D", [UX, UW, UB], conv(stride=2), [i8(scale=0.2, zero=128, dtype=DType.U8)]),
    Case("conv i16", "CONV_2D", [SX, QW, SB], conv(), [i8(scale=2**-9, zero=0, dtype=DType.I16)]),
    Case("depthwise", "DEPTHWISE_CONV_2D", [X, floats(1, 3, 2, 8), floats(8)], depthwise(2, stride=2)),
    Case(
        "depthwise dilated",
        "DEPTHWISE_CONV_2D",
        [X, floats(1, 3, 2, 4), floats(4)],
        depthwise(1, DilationHFactor=2, DilationWFactor=2),
    ),
    Case(
        "depthwise i8",
        "DEPTHWISE_CONV_2D",
        [
            QX,
            stored(bytes_of(1, 3, 2, 4), SCALES[:4], axis=3),
            stored(BIAS[:4], [s * 0.05 for s in SCALES[:4]], dtype="i4"),
        ],
        depthwise(1, FusedActivationFunction=1),
        [i8(scale=0.04)],
    ),
    Case(
        "depthwise u8",
        "DEPTHWISE_CONV_2D",
        [
            UX,
            stored(bytes_of(1, 3, 2, 8, low=0, high=255), 0.01, 99, dtype="u1"),
            stored(bytes_of(8), 0.0005, dtype="i4"),
        ],
        depthwise(2),
        [i8(scale=0.04, dtype=DType.U8)],
    ),
    Case(
        "conv 3d",
        "CONV_3D",
        [f32(1, 4, 5, 6, 2), floats(2, 3, 2, 2, 3), floats(3)],
        ("Conv3DOptions", {"StrideD": 1, "StrideH": 2, "StrideW": 1}),
    ),
    Case(
        "conv 3d transposed",
        "CONV_3D_TRANSPOSE",
        [const(1, 8, 5, 6, 3), floats(2, 3, 2, 3, 2), f32(1, 4, 5, 6, 2)],
        ("Conv3DOptions", {"StrideD": 2, "StrideH": 1, "StrideW": 1, "Padding": 0}),
    ),
    Case(
        "transpose conv",
        "TRANSPOSE_CONV",
        [const(2, 14, 18, 5), floats(5, 3, 3, 4), X],
        ("TransposeConvOptions", window(2)),
    ),
    Case(
        "transpose conv valid",
        "TRANSPOSE_CONV",
        [const(2, 15, 19, 5), floats(5, 3, 3, 4), X, floats(5)],
        ("TransposeConvOptions", window(2, 1)),
    ),
    Case(
        "transpose conv wide",
        "TRANSPOSE_CONV",
        [const(2, 21, 27, 5), floats(5, 2, 2, 4), X],
        ("TransposeConvOptions", window(3, 0)),
    ),
    Case(
        "transpose conv odd",
        "TRANSPOSE_CONV",
        [const(2, 13, 17, 5), floats(5, 4, 4, 4), X],
        ("TransposeConvOptions", window(2)),
    ),
    Case(
        "transpose conv i8",
        "TRANSPOSE_CONV",
        [const(2, 14, 18, 6), QW, QX, QB],
        ("TransposeConvOptions", window(2)),
        [i8(scale=0.1)],
    ),
    Case("average pool", "AVERAGE_POOL_2D", [X], pool()),
    Case("average pool valid", "AVERAGE_POOL_2D", [X], pool(stride=2, padding=1, FusedActivationFunction=1)),
    Case("average pool i8", "AVERAGE_POOL_2D", [QX], pool(), [i8()]),
    Case("average pool u8", "AVERAGE_POOL_2D", [UX], pool(), [i8(zero=120, dtype=DType.U8)]),
    Case("max pool", "MAX_POOL_2D", [X], pool(stride=2)),
    Case("max pool i8", "MAX_POOL_2D", [QX], pool(stride=2, FusedActivationFunction=1), [i8()]),
    Case("l2 pool", "L2_POOL_2D", [X], pool(padding=1)),
)
FC = "FullyConnectedOptions"
PRODUCT = (
    Case("fully connected", "FULLY_CONNECTED", [f32(3, 8), floats(5, 8), floats(5)], (FC, {})),
    Case(
        "fully connected no bias",
        "FULLY_CONNECTED",
        [f32(3, 8), floats(5, 8), None],
        (FC, {"FusedActivationFunction": 1}),
    ),
    Case("fully connected of one", "FULLY_CONNECTED", [f32(3, 1), floats(5, 1), floats(5)], (FC, {})),
    Case("fully connected flat", "FULLY_CONNECTED", [f32(3, 2, 4), floats(5, 8), floats(5)], (FC, {})),
    Case(
        "fully connected rank 3",
        "FULLY_CONNECTED",
        [f32(3, 2, 8), floats(5, 8), floats(5)],
        (FC, {"KeepNumDims": True}),
    ),
    Case(
        "fully connected rank 3 as rows", "FULLY_CONNECTED", [f32(3, 2, 8), floats(5, 8), floats(5)], (FC, {})
    ),
    Case("fully connected of results", "FULLY_CONNECTED", [f32(3, 8), f32(5, 8)], (FC, {})),
    Case(
        "fully connected i8",
        "FULLY_CONNECTED",
        [i8(3, 8), stored(bytes_of(6, 8), 0.01), stored(BIAS, 0.0005, dtype="i4")],
        (FC, {}),
        [i8()],
    ),
    Case(
        "fully connected per row",
        "FULLY_CONNECTED",
        [i8(3, 8), stored(bytes_of(6, 8), SCALES), QB],
        (FC, {}),
        [i8()],
    ),
    Case(
        "fully connected u8",
        "FULLY_CONNECTED",
        [
            i8(3, 8, zero=128, dtype=DType.U8),
            stored(bytes_of(6, 8, low=0, high=255), 0.01, 99, dtype="u1"),
            stored(BIAS, 0.0005, dtype="i4"),
        ],
        (FC, {}),
        [i8(dtype=DType.U8)],
    ),
    Case(
        "fully connected i16",
        "FULLY_CONNECTED",
        [
            i8(3, 8, scale=2**-10, zero=0, dtype=DType.I16),
            stored(bytes_of(6, 8), 0.01),
            stored(BIAS, 0.01 * 2**-10, dtype="i8"),
        ],
        (FC, {}),
        [i8(scale=2**-9, zero=0, dtype=DType.I16)],
    ),
    Case("batch matmul", "BATCH_MATMUL", [f32(2, 3, 4), f32(2, 4, 5)], ("BatchMatMulOptions", {})),
    Case(
        "batch matmul adjoint",
        "BATCH_MATMUL",
        [f32(2, 4, 3), f32(1, 5, 4)],
        ("BatchMatMulOptions", {"AdjX": True, "AdjY": True}),
    ),
    Case(
        "batch matmul i8",
        "BATCH_MATMUL",
        [i8(2, 3, 4), i8(2, 4, 5)],
        ("BatchMatMulOptions", {}),
        [i8(scale=0.3)],
    ),
)
CASES = (*CONV, *PRODUCT)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_operator(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@pytest.mark.parametrize(
    ("largest", "dtype"),
    [(2**31 - 1, DType.I32), (2**31, DType.F32), (-(2**31), DType.F32), (1 - 2**31, DType.I32)],
)
def test_a_bias_of_64_bits_keeps_its_integers_if_they_fit_32(
    largest: int, dtype: DType, tmp_path: Path
) -> None:
    """A layer of 16-bit activations: its sums reach the bias, so the results say whether any bit is lost."""
    bias = np.array([largest, 5], np.int64)
    scale = 2.0**-20
    case = Case(
        "conv i16 of a large bias",
        "CONV_2D",
        [
            i8(1, 2, 2, 3, scale=2**-10, zero=0, dtype=DType.I16),
            stored(bytes_of(2, 1, 1, 3), 2**-10),
            stored(bias, scale, dtype="i8"),
        ],
        conv(padding=1),
        [i8(scale=0.25, zero=0, dtype=DType.I16)],
    )
    graph = load(tmp_path, case.written())
    operand = graph.nodes[-1].inputs[2]
    assert graph.tensors[operand].dtype is dtype
    real = graph.weights[operand] * (scale if dtype is DType.I32 else 1)
    np.testing.assert_allclose(real, bias * scale, rtol=2**-23)
    check(case, tmp_path)

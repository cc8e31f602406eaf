"""The versions of operators are those that TensorFlow's converter writes, by types, ranks, scales and options.

The tables restate tensorflow/compiler/mlir/lite/tools/versioning/op_version.cc of TensorFlow (commit
03f49db5a23ec2b22a59f3f3d72e5744469ea30b) for the types that the writer writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
import tflite

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Quant, Shape, Storage, Tensor
from mace_tflite_writer import write_tflite
from mace_tflite_writer.operator import OptionValue
from mace_tflite_writer.types import TYPES_TAKEN
from mace_tflite_writer.versions import version_of

ROWS = (
    ("CONV_2D DEPTHWISE_CONV_2D", "q-i8:3"),
    ("FULLY_CONNECTED", "q-i8:4"),
    # A bias is always stated, which asks for version 3.
    ("TRANSPOSE_CONV", "f32:3 f16:3 q-i8:3 q-u8:3 q-i16:3"),
    ("GATHER", "bool:3 i8:2 i16:4 q-i8:2 q-i16:4"),
    # Here of a product of scales below the scale of the result.
    ("MUL", "i64:5 q-i8:2 q-i16:4"),
    ("TRANSPOSE", "bool:3 i8:2 i16:5 q-i8:2 q-i16:5"),
    ("SPLIT", "i32:3 i8:2 i16:4 q-i8:2 q-i16:4"),
    ("SLICE", "i8:2 i16:4 q-i8:2 q-i16:4"),
    ("DEQUANTIZE", "f16:3 q-i8:2 q-i16:3"),
    ("QUANTIZE", "q-i16:2"),
    ("ABS", "q-i8:2 q-i16:3"),
    ("RELU", "q-i8:2 q-u8:2 q-i16:3"),
    ("STRIDED_SLICE", "bool:3 i8:2 q-i8:2"),
    ("RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR MAXIMUM MINIMUM", "q-i8:2 q-i16:4"),
    ("TILE", "i8:3 q-i8:3"),
    ("ADD", "i64:4 q-i8:2 q-i16:3"),
    ("SUB", "i64:4 q-i8:2 q-i16:5"),
    ("MAX_POOL_2D AVERAGE_POOL_2D TANH LOGISTIC PAD PADV2", "q-i8:2 q-i16:3"),
    ("CONCATENATION MIRROR_PAD", "i8:2 i16:3 q-i8:2 q-i16:3"),
    ("SOFTMAX MEAN REDUCE_MAX REDUCE_MIN RELU6 RSQRT", "q-i8:2 q-i16:3"),
    ("LEAKY_RELU", "q-i16:2"),
    ("SPACE_TO_DEPTH DEPTH_TO_SPACE SPLIT_V", "i8:2 q-i8:2"),
    ("LOG_SOFTMAX EXP LOG GELU", "q-i8:2"),
    ("CAST", "f16:5 i8:3"),
    ("SUM DIV POW NEG SQRT SIN COS FLOOR CEIL ROUND SIGN RESHAPE CONV_3D ELU PRELU HARD_SWISH", ""),
    ("RELU_N1_TO_1 RELU_0_TO_1", ""),
)
"""Operators; type of all their tensors ("q-" where they store real numbers) and version, where it is not 1."""

RESIZE_OPTIONS: Mapping[str, OptionValue] = {"HalfPixelCenters": False, "AlignCorners": False}
OPTIONS: Mapping[str, Mapping[str, OptionValue]] = {
    "DEPTHWISE_CONV_2D": {"DilationHFactor": 1, "DilationWFactor": 1},
    "FULLY_CONNECTED": {"KeepNumDims": False},
    "TRANSPOSE_CONV": {"FusedActivationFunction": 0},
    "RESIZE_BILINEAR": RESIZE_OPTIONS,
    "RESIZE_NEAREST_NEIGHBOR": RESIZE_OPTIONS,
}
"""Options on which a version depends, as they need no higher one."""


def versions_by_type() -> dict[str, dict[str, int]]:
    """Return the rows by operator and type."""
    table: dict[str, dict[str, int]] = {}
    for codes, cells in ROWS:
        pairs = [cell.split(":") for cell in cells.split()]
        table.update({code: {kind: int(number) for kind, number in pairs} for code in codes.split()})
    return table


def tensor(kind: str, shape: Shape = (1, 4, 4, 8), scale: float = 0.5) -> Tensor:
    dtype, is_stored = DType(kind.removeprefix("q-")), kind.startswith("q-")
    return Tensor("x", dtype, shape, Quant.of(scale) if is_stored else None)


def version(code: str, inputs: Sequence[Tensor], result: Tensor, **options: OptionValue) -> int:
    return version_of(code, inputs, [result], {**OPTIONS.get(code, {}), **options})


def kinds_of(code: str) -> list[str]:
    """The types that the writer writes of an operator; half precision beside all floats."""
    taken = TYPES_TAKEN[code]
    plain = [dtype.value for dtype in taken.plain]
    return [*plain, *(["f16"] if "f32" in plain else []), *(f"q-{dtype.value}" for dtype in taken.quantized)]


def test_the_table_has_every_operator_that_the_writer_writes() -> None:
    assert set(versions_by_type()) == set(TYPES_TAKEN)


@pytest.mark.parametrize("code", sorted(TYPES_TAKEN))
def test_versions_by_type(code: str) -> None:
    versions = versions_by_type()[code]
    for kind in kinds_of(code):
        # With a scale of 0.5 the product of two is 0.25, below that of the result.
        x = tensor(kind)
        expected = versions.get(kind, 1)
        assert version(code, [x, x], x) == expected, kind


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("f32", "q-i8", 1),
        ("f32", "q-u8", 1),
        ("f32", "q-i16", 2),
        ("q-i8", "q-i16", 2),
        ("q-u8", "q-i16", 2),
        ("q-i16", "q-i8", 1),
        ("q-i8", "q-u8", 1),
    ],
)
def test_versions_of_quantize_follow_the_result(before: str, after: str, expected: int) -> None:
    assert version("QUANTIZE", [tensor(before)], tensor(after)) == expected


CAST_RESULTS = {
    "f32": 1,
    "f16": 5,
    "f64": 5,
    "i8": 3,
    "u8": 1,
    "i16": 1,
    "u16": 4,
    "i32": 1,
    "u32": 2,
    "i64": 1,
}


@pytest.mark.parametrize("before", ["f32", "f16", "i8", "u8", "i16", "i32", "i64", "bool"])
def test_versions_of_cast_follow_operand_and_result(before: str) -> None:
    for after, expected in CAST_RESULTS.items():
        # op_version.cc asks for half and double precision first, then 16-bit unsigned, then 8-bit integers.
        wanted = max(expected, {"f16": 5, "i8": 3}.get(before, 1))
        assert version("CAST", [tensor(before)], tensor(after)) == wanted, after


@pytest.mark.parametrize(
    ("kind", "scales", "expected"),
    [
        ("q-i8", (0.5, 0.5, 0.5), 2),
        ("q-i8", (0.5, 0.5, 0.25), 3),
        ("q-i8", (0.5, 0.5, 0.125), 3),
        ("q-u8", (0.5, 0.5, 0.5), 1),
        ("q-u8", (0.5, 0.5, 0.25), 3),
        ("q-i16", (0.5, 0.5, 0.125), 4),
        # Just below 1 in double precision, and 1 in single, in which the converter computes.
        ("q-i8", (1.0, 1.0, 1.0 + 1e-9), 3),
    ],
)
def test_versions_of_products_follow_their_scales(
    kind: str, scales: tuple[float, float, float], expected: int
) -> None:
    a, b, y = (tensor(kind, scale=scale) for scale in scales)
    assert version("MUL", [a, b], y) == expected


@pytest.mark.parametrize(
    ("code", "kind", "rank", "expected"),
    [
        ("TRANSPOSE", "f32", 5, 4),
        ("TRANSPOSE", "q-i8", 5, 4),
        ("TRANSPOSE", "i16", 5, 5),
        ("TRANSPOSE", "bool", 6, 6),
        ("TRANSPOSE", "i16", 6, 6),
        ("SLICE", "f32", 5, 5),
        ("SLICE", "i16", 5, 5),
        ("STRIDED_SLICE", "f32", 5, 4),
        ("STRIDED_SLICE", "bool", 5, 4),
        ("PAD", "f32", 5, 4),
        ("PADV2", "q-i8", 5, 4),
        ("MAXIMUM", "f32", 5, 1),
        ("SUB", "q-i8", 5, 2),
    ],
)
def test_versions_by_number_of_axes(code: str, kind: str, rank: int, expected: int) -> None:
    x = tensor(kind, (2,) * rank)
    assert version(code, [x, x], x) == expected


def test_versions_by_options() -> None:
    floats, stored, wide = tensor("f32"), tensor("q-i8"), tensor("q-i16")
    dilated = {"DilationHFactor": 2}
    assert version("DEPTHWISE_CONV_2D", [floats, floats], floats, **dilated) == 2
    assert version("DEPTHWISE_CONV_2D", [stored, stored], stored, **dilated) == 3
    assert version("CONV_2D", [stored, tensor("q-i8", (4, 1, 1, 4))], stored) == 6
    assert version("FULLY_CONNECTED", [stored, stored], stored, KeepNumDims=True) == 5
    assert version("TRANSPOSE_CONV", [stored, stored], stored, FusedActivationFunction=1) == 4
    for x, expected in ((floats, 3), (stored, 3), (wide, 4)):
        assert version("RESIZE_BILINEAR", [x], x, HalfPixelCenters=True) == expected
        assert version("RESIZE_NEAREST_NEIGHBOR", [x], x, AlignCorners=True) == expected
    assert version("RESIZE_BILINEAR", [floats], floats, AlignCorners=True) == 1


def test_a_file_has_the_version_that_its_result_needs() -> None:
    builder = Builder("wide")
    builder.input("x", DType.F32, (4,))
    y = builder.reserve_output("y", Storage(DType.I16, Quant.of(0.5)))
    model = tflite.Model.GetRootAs(
        write_tflite(builder.finish([builder.one("Quantize", ["x"], outputs=[y])]))
    )
    assert [model.OperatorCodes(i).Version() for i in range(model.OperatorCodesLength())] == [2]


def test_sums_and_products_of_half_precision_stay_readable_for_older_runtimes() -> None:
    half = tensor("f16")
    # op_version.cc has 6 and 8, see the reason in `versions`.
    assert version("ADD", [half, half], half) == 1
    assert version("MUL", [half, half], half) == 1

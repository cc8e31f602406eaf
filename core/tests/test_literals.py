"""Numbers and tensors as generated C has them."""

from __future__ import annotations

import math

import pytest

from mace_core.emit.literals import describe_tensor, write_literal
from mace_core.ir import DType, Quant, Tensor
from mace_core.program import Arg

LITERALS: tuple[tuple[Arg, str, str], ...] = (
    (3, "i32", "3"), (True, "i32", "1"), ((1, -2), "i64[2]", "{1, -2}"), (0.1, "f32", "0x1.99999a0000000p-4f"),
    (0.1, "f64", "0x1.999999999999ap-4"), ((0.5, math.inf), "f32[2]", "{0x1.0000000000000p-1f, INFINITY}"),
    (-math.inf, "f64", "-INFINITY"), (math.nan, "f32", "NAN"), (-1e39, "f32", "-INFINITY"),
    (-(1 << 63), "i64", "INT64_MIN"),
)  # fmt: skip


@pytest.mark.parametrize(("value", "ctype", "text"), LITERALS)
def test_numbers_in_c(value: Arg, ctype: str, text: str) -> None:
    assert write_literal(value, ctype) == text


@pytest.mark.parametrize(
    ("shape", "quant", "text"),
    [
        ((), None, '{"t", MACE_U8, 0, {0}, 1, 0x0.0p+0f, 0}'),
        ((2, 3), Quant((0.5,), (7,)), '{"t", MACE_U8, 2, {2, 3}, 6, 0x1.0000000000000p-1f, 7}'),
        ((2, 1), Quant((0.5, 1.0), (7, 8), 0), '{"t", MACE_U8, 2, {2, 1}, 2, 0x0.0p+0f, 0}'),
        ((1, 2, 1, 1, 1, 1, 1, 3), None, '{"t", MACE_U8, 8, {1, 2, 1, 1, 1, 1, 1, 3}, 6, 0x0.0p+0f, 0}'),
        ((2, 3, 1, 1, 1, 1, 1, 1, 5), None, '{"t", MACE_U8, 8, {6, 1, 1, 1, 1, 1, 1, 5}, 30, 0x0.0p+0f, 0}'),
    ],
)
def test_tensors_in_c(shape: tuple[int, ...], quant: Quant | None, text: str) -> None:
    assert describe_tensor(Tensor("t", DType.U8, shape, quant)) == text


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((), "0, {0}"),
        ((2, 3), "2, {2, 3}"),
        ((1, 2, 3, 4, 5, 6, 7, 8), "8, {1, 2, 3, 4, 5, 6, 7, 8}"),
        ((2, 3, 4, 1, 1, 1, 1, 1, 1, 5), "8, {24, 1, 1, 1, 1, 1, 1, 5}"),
    ],
)
def test_leading_axes_of_too_many_are_one(shape: tuple[int, ...], axes: str) -> None:
    tensor = Tensor("x", DType.F32, shape)
    assert str(describe_tensor(tensor)) == f'{{"x", MACE_F32, {axes}, {tensor.bytes}, 0x0.0p+0f, 0}}'

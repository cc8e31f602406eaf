"""Factors as multipliers and shifts, as LiteRT divides them."""

from __future__ import annotations

import pytest

from mace_target_cpu.quantized.rounding import SHIFT_LIMIT, split_factor


@pytest.mark.parametrize(
    ("factor", "expected"),
    [
        (0.0, (0, 0)),
        (1.0, (1 << 30, 1)),
        (0.75, (3 << 29, 0)),
        # The fraction rounds up to 1, which 31 bits do not hold: half of it, and a shift more.
        (1 - 2.0**-40, (1 << 30, 1)),
        (2.0 ** -(SHIFT_LIMIT + 1), (1 << 30, -SHIFT_LIMIT)),
        (2.0 ** -(SHIFT_LIMIT + 2), (0, 0)),
    ],
)
def test_a_factor_is_a_multiplier_and_a_shift(factor: float, expected: tuple[int, int]) -> None:
    assert split_factor(factor) == expected

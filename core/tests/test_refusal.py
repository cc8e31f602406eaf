"""Refusals are data with a known code."""

from __future__ import annotations

import pytest

from mace_core.refusal import CODES, Refusal


@pytest.mark.parametrize("code", CODES)
def test_each_code_makes_a_refusal(code: str) -> None:
    assert str(Refusal(code, "no such thing")) == "no such thing"


def test_the_remedy_follows_the_reason() -> None:
    assert str(Refusal("dtype", "no f64", "convert the model to f32")) == "no f64; convert the model to f32"


def test_unknown_codes_and_empty_reasons_are_faults_of_the_target() -> None:
    with pytest.raises(ValueError, match="no refusal code 'because'"):
        Refusal("because", "of something")
    with pytest.raises(ValueError, match="without a reason"):
        Refusal("other", "  ")

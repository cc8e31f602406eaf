"""Resize of integers: to the nearest a pure move, linear cut towards 0 as in ONNX Runtime, bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from quantized_cases import check_compiled, check_steps
from runtime_cases import RuntimeCase

from mace_core.errors import MaceError


def resize(dtype: str, shape: tuple[int, ...], scales: list[float], attributes: str) -> RuntimeCase:
    """Return a Resize of integers over their whole range."""
    limits = np.iinfo(dtype)
    image = np.random.default_rng(1).integers(limits.min, limits.max, shape, endpoint=True)
    constants = {"scales": np.array(scales, np.float32)}
    body = f"y = Resize<{attributes}>(x, , scales)"
    return RuntimeCase(body, f"{dtype}{list(shape)} x", constants, values={"x": image})


LINEAR = 'mode="linear"'
FORMS: dict[str, tuple[tuple[int, ...], list[float], str]] = {
    "twice": ((1, 2, 5, 6), [1, 1, 2, 2], LINEAR),
    "half": ((2, 2, 6, 8), [1, 1, 0.5, 0.5], LINEAR),
    "more": ((1, 2, 5, 6), [1, 1, 8, 16], LINEAR),
    "channels_last": ((1, 5, 6, 3), [1, 4, 2, 1], LINEAR),
    "volume": ((1, 2, 3, 4, 5), [1, 1, 2, 2, 2], LINEAR),
    "asymmetric": ((1, 2, 5, 6), [1, 1, 2, 2], f'{LINEAR}, coordinate_transformation_mode="asymmetric"'),
    "nearest": ((1, 2, 5, 6), [1, 1, 1.5, 0.7], 'mode="nearest"'),
}
CASES = {
    f"{name}_{dtype}": resize(dtype, *form) for name, form in FORMS.items() for dtype in ("uint8", "int8")
}


@pytest.mark.parametrize("name", CASES)
def test_integers_have_the_bits_of_onnx_runtime(name: str, tmp_path: Path) -> None:
    check_steps(CASES[name], tmp_path / "m.onnx", CASES[name].values, steps=0)


@pytest.mark.slow
def test_libraries_have_the_bits_of_onnx_runtime(tmp_path: Path) -> None:
    check_compiled(CASES, tmp_path, steps=0)


def test_quantized_tensor_moves_as_it_is(tmp_path: Path) -> None:
    constants = {"s": np.float32(0.05), "z": np.uint8(7), "scales": np.array([1, 1, 2, 1.5], np.float32)}
    body = "q = QuantizeLinear(x, s, z) y = Resize(q, , scales)"
    x = np.random.default_rng(1).uniform(-0.3, 12, (1, 2, 5, 6)).astype(np.float32)
    ops = check_steps(
        RuntimeCase(body, "float[1,2,5,6] x", constants), tmp_path / "m.onnx", {"x": x}, steps=0
    )
    assert ops == ["Quantize", "Resize"]


@pytest.mark.parametrize("scales", [[1, 1, 3, 2], [1, 1, 2, 1.3]])
def test_weights_that_are_rounded_are_refused(scales: list[float], tmp_path: Path) -> None:
    message = (
        "linear interpolation of u8 with weights that are no fractions of few bits: .*; export the model"
    )
    with pytest.raises(MaceError, match=message):
        resize("uint8", (1, 2, 5, 6), scales, LINEAR).load(tmp_path / "m.onnx")

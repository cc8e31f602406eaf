"""Spectra with every optional input, against numpy and ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from runtime_cases import RuntimeCase, normal

from mace_core.errors import MaceError

SIGNAL = "float[2,12,1] x"
CASES = {
    "dft": RuntimeCase("y = DFT<axis=1>(x)", SIGNAL),
    "dft of length": RuntimeCase("y = DFT<axis=1>(x, n)", SIGNAL, {"n": np.array(16)}),
    "onesided": RuntimeCase("y = DFT<axis=1, onesided=1>(x)", SIGNAL),
    "inverse": RuntimeCase("y = DFT<axis=1, inverse=1>(x)", "float[2,12,2] x"),
    "dft of 20": RuntimeCase(
        "y = DFT(x, n, a)", "float[2,6,5,2] x", {"n": np.array(8), "a": np.array(1)}, 20
    ),
    "dft of 20 without axis": RuntimeCase("y = DFT(x)", "float[2,6,5,2] x", opset=20),
    "frames": RuntimeCase("y = STFT(x, s, w)", SIGNAL, {"s": np.array(3), "w": np.abs(normal(6))}),
    "frames of length": RuntimeCase(
        "y = STFT(x, s, w, n)", SIGNAL, {"s": np.array(2), "w": np.abs(normal(8)), "n": np.array(8)}
    ),
    "frames without window": RuntimeCase(
        "y = STFT<onesided=0>(x, s, , n)", SIGNAL, {"s": np.array(3), "n": np.array(4)}
    ),
    "mel": RuntimeCase(
        "a = MelWeightMatrix(n, l, r, e, f) y = MatMul(x, a)",
        "float[2,33] x",
        {
            "n": np.array(6),
            "l": np.array(64),
            "r": np.array(8000),
            "e": np.float32(100),
            "f": np.float32(3800),
        },
    ),
    "mel of narrow triangles": RuntimeCase(
        "a = MelWeightMatrix(n, l, r, e, f) y = MatMul(x, a)",
        "float[2,9] x",
        {
            "n": np.array(12),
            "l": np.array(16),
            "r": np.array(8000),
            "e": np.float32(0),
            "f": np.float32(4000),
        },
    ),
    "mel of doubles": RuntimeCase(
        "a = MelWeightMatrix<output_datatype=11>(n, l, r, e, f) y = MatMul(x, a)",
        "double[2,9] x",
        {"n": np.array(2), "l": np.array(16), "r": np.array(8000), "e": np.float32(0), "f": np.float32(4000)},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_spectrum_is_that_of_onnx_runtime(name: str, tmp_path: Path) -> None:
    CASES[name].check(tmp_path / "m.onnx", rtol=1e-4, atol=1e-5)


def test_half_a_spectrum_makes_the_whole_signal(tmp_path: Path) -> None:
    signal = normal(10)
    half = np.fft.rfft(signal)
    x = np.stack([half.real, half.imag], 1)[None].astype(np.float32)
    case = RuntimeCase("y = DFT(x, , a)", "float[1,6,2] x", {"a": np.array(1)}, 20, values={"x": x})
    body = "y = DFT<inverse=1, onesided=1>(x, , a)"
    y = RuntimeCase(body, case.ports, case.constants, 20, values={"x": x}).compute(tmp_path / "m.onnx")["y"]
    assert y.shape[:2] == (1, 10)
    np.testing.assert_allclose(y[0, :, 0], signal, rtol=1e-4, atol=1e-5)


def mel(low: float, high: float, length: int = 16, count: int = 2) -> RuntimeCase:
    numbers = {"n": count, "l": length, "r": 8000}
    constants = {name: np.array(value) for name, value in numbers.items()}
    constants |= {"e": np.float32(low), "f": np.float32(high)}
    return RuntimeCase("a = MelWeightMatrix(n, l, r, e, f) y = MatMul(x, a)", "float[2,9] x", constants)


@pytest.mark.parametrize(("low", "high", "fits"), [(0, 4000, True), (0, 9000, False), (-300, 4000, False)])
def test_edges_lie_inside_the_spectrum(low: float, high: float, fits: bool, tmp_path: Path) -> None:
    if fits:
        assert mel(low, high).load(tmp_path / "m.onnx").tensors["y"].shape == (2, 2)
        return
    with pytest.raises(MaceError, match="lie outside the spectrum of 8000 Hz"):
        mel(low, high).load(tmp_path / "m.onnx")

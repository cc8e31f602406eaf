"""Spectra against LiteRT: complex numbers stay inside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tflite
from tflite_cases import expected, load
from tflite_write import Step, Value, Written

from mace_core.errors import MaceError
from mace_core.ir import Shape
from mace_core.run.reference import execute
from mace_core.testing.compiled import check_graphs
from mace_target_cpu import Cpu

COMPLEX = tflite.TensorType.COMPLEX64


def spectrum(shape: Shape, lengths: tuple[int, int], last: str) -> Written:
    """A spectrum whose shape is changed, as of tf.signal.stft, and one real result of it."""
    made = (*shape[:-2], lengths[0], lengths[1] // 2 + 1)
    flat = (int(np.prod(made)),)
    values = [
        Value("x", shape=shape),
        Value.constant("lengths", np.array(lengths, np.int32)),
        Value("z", shape=made, kind=COMPLEX),
        Value.constant("flat", np.array(flat, np.int32)),
        Value("row", shape=flat, kind=COMPLEX),
        Value("y", shape=flat),
    ]
    steps = [
        Step("RFFT2D", ["x", "lengths"], ["z"]),
        Step("RESHAPE", ["z", "flat"], ["row"]),
        Step(last, ["row"], ["y"]),
    ]
    return Written(values, steps, ["x"], ["y"])


@pytest.mark.parametrize("last", ["COMPLEX_ABS", "REAL", "IMAG"])
@pytest.mark.parametrize(
    ("shape", "lengths"), [((1, 16), (1, 16)), ((3, 4, 8), (4, 8)), ((2, 4, 8), (2, 4)), ((2, 3, 5), (4, 8))]
)
def test_a_spectrum(last: str, shape: Shape, lengths: tuple[int, int], tmp_path: Path) -> None:
    graph = load(tmp_path, spectrum(shape, lengths, last))
    x = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    np.testing.assert_allclose(execute(graph, x)["y"], expected(tmp_path, x)["y"], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_the_library_computes_it(tmp_path: Path) -> None:
    check_graphs(Cpu(), [load(tmp_path, spectrum((3, 4, 8), (4, 8), "COMPLEX_ABS"))], tmp_path / "library")


def test_other_operators_on_complex_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MaceError, match=r"'y' \(NEG\): only RFFT2D"):
        load(tmp_path, spectrum((1, 16), (1, 16), "NEG"))


def test_a_complex_output_is_refused(tmp_path: Path) -> None:
    from dataclasses import replace

    with pytest.raises(
        MaceError, match="output 'z': it is of complex numbers; name their REAL and IMAG parts"
    ):
        load(tmp_path, replace(spectrum((1, 16), (1, 16), "REAL"), outputs=["z"]))

"""Weights and biases as arrays: the maker's unit networks beside the memories of the programs that he makes of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from manifest import MODELS

from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_ai8x.checkpoint import Form, load_arrays

UNIT = MODELS / "ai8x" / "unit"

real = pytest.mark.skipif(not UNIT.exists(), reason=f"no models in {UNIT}; MACE_MODELS names another folder")


def loaded(test: str, forms: Sequence[Form]) -> tuple[list[Array], list[Array | None]]:
    """Weights and biases of a unit network."""
    folder = UNIT / test
    (weights,) = folder.glob("weights_*.npy")
    layers = load_arrays(weights, forms, next(folder.glob("bias_*.npy"), None)).layers
    return [layer.weights for layer in layers], [layer.bias for layer in layers]


def reference(test: str) -> Any:
    """The program that the maker's tool made."""
    return json.loads((UNIT / test / "reference-MAX78002.json").read_text())


@real
@pytest.mark.parametrize(
    ("test", "bits"),
    [("test-widein-bias-q4", 4), ("test-widein-bias-q2", 2), ("test-widein-q1", 1), ("test-wideout", 8)],
)
def test_narrow_weights(test: str, bits: int) -> None:
    """The first bits of the first word of weight memory are the first kernel's upper bits."""
    (weights,), _ = loaded(test, [Form(4, bits)])
    (_, words), *_ = reference(test)["weights"]["first"]
    memory = b"".join(word.to_bytes(4, "big") for word in words)[:9]
    assert [byte & (1 << bits) - 1 for byte in memory] == (weights[0, 0].ravel() & (1 << bits) - 1).tolist()


@real
def test_binary_weights() -> None:
    (weights,), _ = loaded("test-binary", [Form(4, 1, binary=True)])
    assert set(weights.ravel().tolist()) == {-1, 1}
    (_, words), *_ = reference("test-binary")["weights"]["first"]
    memory = b"".join(word.to_bytes(4, "big") for word in words)[:9]
    assert [[byte >> channel & 1 for byte in memory] for channel in range(3)] == (
        weights[:, 0].reshape(3, -1) < 0
    ).tolist()


@real
def test_biases() -> None:
    """They are bytes, one array for each layer."""
    _, biases = loaded("test-flatten-bias", [Form(4), Form(2)])
    assert [bias.tolist() for bias in biases if bias is not None] == [[1], [0, 0, 5]]
    assert reference("test-flatten-bias")["bias"]["BIAS_0"] == [1, 0, 0, 5]


@real
def test_axes() -> None:
    """One array of all layers, one for each, with and without an axis of layers.

    Linear layers with a kernel of one element.
    """
    assert [w.shape for w in loaded("test-layers", [Form(4)] * 32)[0]] == [(3, 3, 3, 3)] * 32
    assert [w.shape for w in loaded("test-conv1d-multilayer", [Form(3)] * 9)[0]] == [
        (3, 3, n) for n in range(9, 0, -1)
    ]
    assert [w.shape for w in loaded("test-conv1d-1", [Form(3)])[0]] == [(33, 2, 1)]
    assert [w.shape for w in loaded("test-mpflatten-128", [Form(4), Form(2)])[0]] == [
        (128, 3, 3, 3),
        (2, 4480),
    ]
    assert [w.shape for w in loaded("test-mlpflatten12to17", [Form(2)])[0]] == [(17, 12)]


def test_layouts(tmp_path: Path) -> None:
    """All types of integers and both orders of axes."""
    expected = np.arange(24).reshape(2, 3, 4)
    with (tmp_path / "w.npy").open("wb") as file:
        for dtype in ("i1", "u1", "<i2", ">i4", "<u4", ">i8"):
            np.save(file, expected.astype(dtype))
        np.save(file, np.asfortranarray(expected))
    layers = load_arrays(tmp_path / "w.npy", [Form(3)] * 7).layers
    assert [(layer.name, layer.weight_bits, layer.bias) for layer in layers] == [
        (str(i), 8, None) for i in range(7)
    ]
    for layer in layers:
        assert layer.weights.dtype == np.int64
        np.testing.assert_array_equal(layer.weights, expected)


def test_transposed_convolutions_are_turned_into_those_of_a_model(tmp_path: Path) -> None:
    """The hardware runs a plain convolution; the model's kernel is mirrored, with input and output channels exchanged."""
    stored = np.random.default_rng(0).integers(-128, 128, (2, 4, 3, 3))
    np.save(tmp_path / "w.npy", stored)
    (layer,) = load_arrays(tmp_path / "w.npy", [Form(4, transposed=True)]).layers
    assert layer.weights.shape == (4, 2, 3, 3)
    for i, o, row, column in np.ndindex(4, 2, 3, 3):
        assert layer.weights[i, o, row, column] == stored[o, i, 2 - row, 2 - column]


@pytest.mark.parametrize(
    ("array", "problem"),
    [
        (
            np.zeros((2, 2), np.int8),
            "array 0 has shape [2, 2]; the layer's weights have 4 axes; order the arrays as the layers are",
        ),
        (
            np.zeros((1, 2, 2, 3, 3), np.int8),
            "has weights for 1 layers; 2 layers need them; add the arrays, or remove layers",
        ),
        (np.full((1, 1, 1, 1), 128), "array 0 has values from 128 to 128, wider than 8 bits; write integers"),
        (np.zeros((1, 1, 1, 1), np.float32), "holds no array of integers at byte 0; write integers"),
        (np.zeros((1, 1, 1, 1), object), "holds no array of integers at byte 0; write integers"),
        (np.zeros((1, 0, 1, 1), np.int8), "holds an array of shape [1, 0, 1, 1]; write integers"),
    ],
)
def test_faults(tmp_path: Path, array: Array, problem: str) -> None:
    np.save(tmp_path / "w.npy", array)
    with pytest.raises(MaceError) as error:
        load_arrays(tmp_path / "w.npy", [Form(4), Form(4)])
    assert str(error.value).startswith(f"{tmp_path / 'w.npy'}: {problem}")


def test_missing_and_cut_files(tmp_path: Path) -> None:
    with pytest.raises(
        MaceError, match=r"cannot be read: No such file or directory; name a file of numpy arrays \(.npy\)"
    ):
        load_arrays(tmp_path / "w.npy", [Form(4)])
    np.save(tmp_path / "w.npy", np.zeros((1, 1, 3, 3), np.int8))
    (tmp_path / "w.npy").write_bytes((tmp_path / "w.npy").read_bytes()[:-1])
    with pytest.raises(MaceError, match="is cut off; copy or download it again"):
        load_arrays(tmp_path / "w.npy", [Form(4)])


def test_arrays_of_no_layer_are_told(tmp_path: Path) -> None:
    weights, bias = tmp_path / "weights.npy", tmp_path / "bias.npy"
    for path, shape in ((weights, (2, 3)), (bias, (2,))):
        with path.open("wb") as file:
            for _ in range(3):
                np.save(file, np.ones(shape, np.int64))
    assert load_arrays(weights, [Form(2)] * 2, bias).notes == (
        f"{weights}: the last 1 arrays belong to no layer, and are not used",
        f"{bias}: the last 1 arrays belong to no layer, and are not used",
    )
    assert load_arrays(weights, [Form(2)] * 3, bias).notes == ()

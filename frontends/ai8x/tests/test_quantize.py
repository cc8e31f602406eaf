"""Quantization: the maker's quantized checkpoints bit for bit, and the ways of clipping by their definitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from manifest import MODELS

from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_ai8x.checkpoint import Clip, Settings, load_checkpoint, quantize_file
from mace_frontend_ai8x.checkpoint.quantize import quantize
from mace_frontend_ai8x.checkpoint.state import CheckpointState, read_state
from mace_frontend_ai8x.checkpoint.write import write_state
from mace_frontend_ai8x.description import read_weight_bits


def quantized(path: Path) -> Path:
    """The maker's quantized checkpoint beside the one that training wrote."""
    return path.with_name(path.name.replace(".pth.tar", "-q.pth.tar"))


PAIRS = tuple(path for path in sorted((MODELS / "ai8x").glob("*/*.pth.tar")) if quantized(path).exists())

real = pytest.mark.skipif(not PAIRS, reason=f"no models in {MODELS}/ai8x; MACE_MODELS names another folder")
each = pytest.mark.parametrize("path", PAIRS, ids=lambda path: path.parent.name)


def trained(**changes: Array | None) -> CheckpointState:
    """A layer as training for quantization leaves it, with changes of its tensors; None for one left out."""
    rng = np.random.default_rng(3)
    tensors: dict[str, Array | None] = {
        "weight_bits": np.array([8], np.int64),
        "bias_bits": np.array([8], np.int64),
        "output_shift": np.array([3], np.float32),
        "quantize_activation": np.array([True]),
        "adjust_output_shift": np.array([True]),
        "shift_quantile": np.array([1], np.float32),
        "weight": rng.normal(0, 0.1, (16, 8, 3, 3)).astype(np.float32),
        "bias": rng.normal(0, 0.1, 16).astype(np.float32),
    }
    parts = {name: values for name, values in (tensors | changes).items() if values is not None}
    return CheckpointState(
        Path("model"),
        {f"conv.{'op.' * (name in ('weight', 'bias'))}{name}": values for name, values in parts.items()},
    )


def untrained(**changes: Array | None) -> CheckpointState:
    """The same of a model that was not trained for quantization."""
    return trained(
        weight_bits=None,
        bias_bits=None,
        output_shift=None,
        adjust_output_shift=None,
        shift_quantile=None,
        **changes,
    )


@real
@each
def test_real_checkpoints(path: Path) -> None:
    """All tensors, their types and their order, and what is told of the way."""
    expected, actual = read_state(quantized(path)), quantize(read_state(path), Settings())
    assert list(actual.tensors) == list(expected.tensors)
    for name, values in expected.tensors.items():
        assert actual.tensors[name].dtype == values.dtype
        np.testing.assert_array_equal(actual.tensors[name], values, err_msg=name)
    assert (actual.arch, actual.epoch, actual.extras) == (expected.arch, expected.epoch, expected.extras)


@real
@each
def test_real_files(path: Path, tmp_path: Path) -> None:
    """Quantized to a file or on the way, the program's parameters are those of the maker's file."""
    quantize_file(path, tmp_path / "made")
    one, two, three = (load_checkpoint(file) for file in (quantized(path), tmp_path / "made", path))
    assert (one.quantized, two.quantized, three.quantized) == (True, True, False)
    assert (
        three.notes[-1] == "the checkpoint was not quantized: its weights were quantized now (MAX_BIT_SHIFT)"
    )
    for expected, *found in zip(one.layers, two.layers, three.layers, strict=True):
        for layer in found:
            assert (layer.name, layer.weight_bits, layer.output_shift) == (
                expected.name,
                expected.weight_bits,
                expected.output_shift,
            )
            np.testing.assert_array_equal(layer.weights, expected.weights)
            assert (layer.bias is None) == (expected.bias is None)
            np.testing.assert_array_equal(
                layer.bias if layer.bias is not None else (),
                expected.bias if expected.bias is not None else (),
            )


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("size", [1e-3, 0.3, 1.0, 40.0])
def test_all_widths(bits: int, size: float) -> None:
    """Weights use their range, and weights, biases and shift mean what they meant, to half a step where nothing is clipped."""
    before = trained(weight_bits=np.array([bits], np.int64))
    scaled = {
        name: values * np.float32(size) if ".op." in name else values
        for name, values in before.tensors.items()
    }
    after = quantize(before.with_tensors(scaled), Settings())
    shift, step = after.number("conv", "output_shift"), 2.0 ** (1 - bits)
    assert shift is not None
    weights, bias = after.tensors["conv.op.weight"], after.tensors["conv.op.bias"]
    assert 0.5 <= np.abs(weights).max() * step <= 1
    for made, scale, limit, name in (
        (weights, 1.0, 1 - step, "weight"),
        (bias, step, 128 * step - step, "bias"),
    ):
        meant = np.minimum(scaled[f"conv.op.{name}"] / 2.0**shift, limit)
        assert np.abs(made * scale * step - meant).max() <= step / 2
    assert after.tensors["conv.weight_bits"] == bits


def test_quantile() -> None:
    """Weights beyond the quantile are clipped, so that the others keep more bits."""
    weights = np.full((10, 10, 1, 1), 0.2, np.float32)
    weights[0, 0] = 0.9
    whole, most = (
        quantize(trained(weight=weights, bias=None, shift_quantile=np.array([q], np.float32)), Settings())
        for q in (1.0, 0.98)
    )
    assert [s.number("conv", "output_shift") for s in (whole, most)] == [0, -2]
    assert [s.tensors["conv.op.weight"].max() for s in (whole, most)] == [115, 127]


@pytest.mark.parametrize(
    ("settings", "factor"),
    [
        (Settings(Clip.SCALE), lambda w: 0.85),
        (Settings(Clip.SCALE, scale=1.5), lambda w: 1.5),
        (Settings(Clip.STDDEV), lambda w: w.mean() + 2 * w.std(ddof=1)),
        (Settings(Clip.STDDEV, deviations=100), lambda w: np.abs(w).max()),
        (Settings(Clip.AVGMAX), lambda w: max(-w.min((1, 2, 3)).mean(), w.max((1, 2, 3)).mean())),
        (Settings(Clip.AVG), lambda w: np.abs(w).max((1, 2, 3)).mean()),
    ],
    # The same in every worker.
    ids=["scale", "larger scale", "deviations", "many deviations", "mean of extremes", "mean"],
)
def test_clipping(settings: Settings, factor: Any) -> None:
    """The definition, written out in 64-bit floats.

    A sum that lies on the edge of two steps may fall either way.
    """
    before = untrained(weight=untrained().tensors["conv.op.weight"] * 3 + np.float32(0.2))
    after = quantize(before, settings)
    weights, bias = (before.tensors[f"conv.op.{name}"].astype(np.float64) for name in ("weight", "bias"))
    scale = float(factor(weights))
    exact = np.clip(weights * scale * 128, -128, 127)
    assert np.abs(after.tensors["conv.op.weight"] - exact).max() <= 0.5 + 1e-4
    assert (
        np.abs(after.tensors["conv.op.bias"] / 128 - np.clip(bias * scale * 128, -128, 127)).max()
        <= 0.5 + 1e-4
    )
    assert "conv.output_shift" not in after.tensors
    assert after.extras["clipping_method"] == settings.clip.value
    assert after.extras.get("clipping_scale") == (settings.scale if settings.clip is Clip.SCALE else None)


def test_documented_figure() -> None:
    """AVGMAX as the maker's document shows it for a layer of his MNIST network."""
    path = MODELS / "ai8x" / "mnist" / "ai85-mnist-qat8.pth.tar"
    if not path.exists():
        pytest.skip(f"no {path}; MACE_MODELS names another folder")
    tensors = {name: values for name, values in read_state(path).tensors.items() if name == "conv1.op.weight"}
    made = quantize(CheckpointState(path, tensors), Settings(Clip.AVGMAX)).tensors["conv1.op.weight"]
    np.testing.assert_array_equal(
        made, np.floor(tensors["conv1.op.weight"] * np.float32(0.34562021 * 128) + np.float32(0.5))
    )


def describe_layers(path: Path, *layers: str) -> Path:
    """Write a network description whose layers have these keys besides those that each must have."""
    text = "".join(f"  - {{processors: 1{', ' if keys else ''}{keys}}}\n" for keys in layers)
    path.write_text(f"arch: x\ndataset: x\nlayers:\n{text}")
    return path


def test_bits_of_layers(tmp_path: Path) -> None:
    """From a network's description, as the maker's tools take them; layers without weights have none."""
    path = describe_layers(
        tmp_path / "net.yaml",
        *("op: conv2d, quantization: 2", "operation: Passthrough", "op: add, quantization: 4"),
        *("op: bitwise_xor", "quantization: 4", "weight_source: 0", "op: mlp"),
    )
    bits = read_weight_bits(path)
    assert bits == (2, 4, None)
    weights = {f"layer{i}.op.weight": np.full((1, 1), 0.9, np.float32) for i in range(3)}
    result = quantize(CheckpointState(tmp_path, weights), Settings(bits=bits))
    assert [result.number(f"layer{i}", "weight_bits") for i in range(3)] == [2, 4, 8]
    assert [result.tensors[name].item() for name in weights] == [1, 7, 115]
    twice = weights | {f"module.{name}": values for name, values in weights.items()}
    result = quantize(CheckpointState(tmp_path, twice), Settings(bits=bits))
    assert [result.tensors[name].item() for name in twice] == [1, 7, 115] * 2


def test_bits_follow_sequence_numbers(tmp_path: Path) -> None:
    """As the layers of the checkpoint do; one that only passes its input on has no weights."""
    path = describe_layers(
        tmp_path / "net.yaml",
        *("sequence: 4, quantization: 8", "sequence: 1, quantization: 2", "quantization: 4"),
        *("bypass: true, quantization: 1", "sequence: 0"),
    )
    assert read_weight_bits(path) == (None, 2, 4, 8)


def test_all_bad_bits_are_reported_with_their_lines(tmp_path: Path) -> None:
    layers = ("sequence: 1", "sequence: 1", "quantization: 3", "quantization: binary")
    path = describe_layers(tmp_path / "net.yaml", *layers)
    with pytest.raises(MaceError) as error:
        read_weight_bits(path)
    problems = (
        f"{path}:5: sequence: 1 belongs to the layer in line 4; give each layer its own number",
        f"{path}:6: layer 2: quantization: '3' is not one of 1, 2, 4, 8, bin, binary; correct the value",
        f"{path}:7: layer 3: quantization: weights of -1 and +1 come from training alone; write 1, 2, 4 or 8",
    )
    assert sorted(str(error.value).splitlines()) == list(problems)


def test_faults() -> None:
    """All at once."""
    state = trained(
        weight=np.array([[np.nan]], np.float32),
        bias=np.array([], np.float32),
        weight_bits=np.array([5], np.int64),
        output_shift=np.array([0.5], np.float32),
        shift_quantile=np.array([2], np.float32),
        activation_threshold=np.array([1], np.float32),
    )
    normalized = state.with_tensors({**state.tensors, "conv.bn.running_mean": np.zeros(1, np.float32)})
    with pytest.raises(MaceError) as error:
        quantize(normalized, Settings(Clip.SCALE, scale=0, bits=(8, 8)))
    assert str(error.value).splitlines() == [
        "model: has batch normalization, which the hardware lacks; fuse it into the weights first",
        "model: was trained for quantization; leave out the clipping method SCALE",
        "model: cannot be scaled by 0 or clipped at 2 deviations; give numbers above 0",
        "model: has 1 layers with weights, bits are given for 2; give as many as there are layers",
        "model: conv.op.weight holds other values than weights of a trained model; train it again",
        "model: conv.op.bias holds other values than weights of a trained model; train it again",
        "model: conv was trained with an activation threshold; quantize it with the tools that trained it",
        "model: conv.weight_bits is 5; it must be 1, 2, 4 or 8",
        "model: conv.output_shift is 0.5; it must be an integer up to 30",
        "model: conv.shift_quantile is 2; it must be from 0 to 1",
    ]


def test_no_second_time(tmp_path: Path) -> None:
    write_state(quantize(trained(), Settings()), tmp_path / "once")
    with pytest.raises(
        MaceError, match="once: is quantized already; name the checkpoint that training wrote"
    ):
        quantize_file(tmp_path / "once", tmp_path / "twice")
    assert not (tmp_path / "twice").exists()


def test_flags_that_a_layer_has_say_that_it_is_quantized() -> None:
    flags = {"bias_bits": 4, "quantize_activation": 0, "adjust_output_shift": 0}
    before = trained(**{name: np.array([value], np.float32) for name, value in flags.items()})
    after = quantize(before, Settings())
    assert {name: after.number("conv", name) for name in flags} == {
        "bias_bits": 8,
        "quantize_activation": 1,
        "adjust_output_shift": 0,
    }
    bare = {name: values for name, values in before.tensors.items() if ".op." in name}
    changed = quantize(CheckpointState(before.path, bare), Settings()).tensors
    assert sorted(set(changed) - set(bare)) == ["conv.output_shift", "conv.weight_bits"]

"""Quantizes weights and biases to the integers of the hardware.

A layer's weights w become floor(w * s * 2^(bits - 1) + 1/2), clipped to the bits.  The factor s is the power
of two that uses the range of the integers best; the output shift -log2(s) undoes it.  With the other methods
of clipping s is any number, and nothing undoes it.  Biases become bytes b * s * 2^(bits - 1), and are stored
times 2^(bits - 1), by which the reader of a checkpoint divides them.

Source: the vendor's quantized checkpoints, and its document on training and synthesis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np

from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_ai8x.checkpoint.fuse import needs_fusing
from mace_frontend_ai8x.checkpoint.state import PARALLEL, CheckpointState, read_state
from mace_frontend_ai8x.checkpoint.write import write_state

BITS = (1, 2, 4, 8)

MAX_WEIGHT = 1e6
"""The largest magnitude of a weight; trained weights are about 1, so larger ones come from damage."""

EXPONENTS = (-7, 23)
"""The smallest and the largest exponent of s, before the bits of the weights are subtracted."""


class Clip(Enum):
    """How s is chosen for a model that was not trained for quantization; the names are the vendor's.

    MAX_BIT_SHIFT: the largest power of two that keeps the weights, up to the layer's quantile of them, in
    range.
    SCALE: a number.  STDDEV: the mean of the weights and so many standard deviations, at most the largest
    weight.
    AVGMAX: the mean of all channels' largest weights or of their smallest, whichever is larger.
    AVG: the mean of all channels' largest magnitudes; the vendor's document names it and does not define it.
    """

    MAX_BIT_SHIFT = "MAX_BIT_SHIFT"
    SCALE = "SCALE"
    STDDEV = "STDDEV"
    AVGMAX = "AVGMAX"
    AVG = "AVG"


@dataclass(frozen=True)
class Settings:
    """How to quantize.

    scale: s of the method SCALE.  deviations: standard deviations of the method STDDEV.
    bits: of the weights of each layer that has any, in the order of the model; None leaves them to the
    checkpoint, and they are 8 where that says nothing.
    """

    clip: Clip = Clip.MAX_BIT_SHIFT
    scale: float = 0.85
    deviations: float = 2.0
    bits: Sequence[int | None] | None = None


def quantize_file(source: Path, target: Path, settings: Settings | None = None) -> None:
    """Write the network of a checkpoint file with quantized weights.

    MaceError if the source is damaged, quantized already or does not fit the settings, or if the target
    cannot be written.
    """
    write_state(quantize(read_state(source), settings or Settings()), target)


def quantize(state: CheckpointState, settings: Settings) -> CheckpointState:
    """Return the same network with integers as weights and biases, stored as 32-bit floats for PyTorch.

    MaceError with every fault: it is quantized already, was trained in another way than the settings say, or
    has values that are not those of a trained model.
    """
    faults = _faults(state, settings)
    if faults:
        raise MaceError.of(f"{state.path}: {fault}" for fault in faults)
    tensors = dict(state.tensors)
    bits = dict(zip(_names(state), settings.bits or (), strict=False))
    for layer, operation in state.layers():
        tensors |= _quantize(state, layer, operation, bits.get(layer.removeprefix(PARALLEL)), settings)
    extras = {**state.extras, "clipping_method": settings.clip.value}
    if settings.clip is Clip.SCALE:
        extras["clipping_scale"] = settings.scale
    if settings.clip is Clip.STDDEV:
        extras["clipping_nstds"] = settings.deviations
    return state.with_tensors(tensors, extras=extras)


def _names(state: CheckpointState) -> list[str]:
    """Return the layers' plain names; a file that has all layers twice has each name once."""
    return list(dict.fromkeys(layer.removeprefix(PARALLEL) for layer, _ in state.layers()))


def _faults(state: CheckpointState, settings: Settings) -> list[str]:
    """Return why a checkpoint cannot be quantized with these settings."""
    faults, layers = [], list(state.layers())
    if state.quantized:
        faults.append("is quantized already; name the checkpoint that training wrote")
    if needs_fusing(state):
        faults.append("has batch normalization, which the hardware lacks; fuse it into the weights first")
    if settings.clip is not Clip.MAX_BIT_SHIFT and any(
        state.number(layer, "adjust_output_shift") for layer, _ in layers
    ):
        faults.append(f"was trained for quantization; leave out the clipping method {settings.clip.value}")
    if not (settings.scale > 0 and settings.deviations > 0):
        problem = f"scaled by {settings.scale:g} or clipped at {settings.deviations:g} deviations"
        faults.append(f"cannot be {problem}; give numbers above 0")
    if settings.bits and len(settings.bits) > (count := len(_names(state))):
        problem = f"has {count} layers with weights, bits are given for {len(settings.bits)}"
        faults.append(f"{problem}; give as many as there are layers")
    for layer, operation in layers:
        faults += _faults_of_layer(state, layer, operation)
    return faults


def _faults_of_layer(state: CheckpointState, layer: str, operation: str) -> Iterator[str]:
    for name in (f"{operation}.weight", f"{operation}.bias"):
        values = state.tensors.get(name)
        if values is not None and not (
            values.size and values.dtype.kind == "f" and np.abs(values).max() <= MAX_WEIGHT
        ):
            yield f"{name} holds other values than weights of a trained model; train it again"
    if state.number(layer, "activation_threshold"):
        yield f"{layer} was trained with an activation threshold; quantize it with the tools that trained it"
    for name, allowed, expected in (
        ("weight_bits", (None, 0, *BITS), "must be 1, 2, 4 or 8"),
        ("output_shift", (None, *range(-30, 31)), "must be an integer up to 30"),
    ):
        if (value := state.number(layer, name)) not in allowed:
            yield f"{layer}.{name} is {value:g}; it {expected}"
    if not 0 <= (quantile := state.number(layer, "shift_quantile") or 0.0) <= 1:
        yield f"{layer}.shift_quantile is {quantile:g}; it must be from 0 to 1"


def _quantize(
    state: CheckpointState, layer: str, operation: str, stated_bits: int | None, settings: Settings
) -> dict[str, Array]:
    """Return the tensors of a layer that quantization changes.

    stated_bits: of the settings; None to leave them to the checkpoint.
    """
    bits = stated_bits or int(state.number(layer, "weight_bits") or 0) or 8
    # All in 32-bit floats, as the vendor's tool computes: near a half, a 64-bit product may round otherwise.
    weights = state.tensors[f"{operation}.weight"].astype(np.float32)
    bias = state.tensors.get(f"{operation}.bias")
    half, changed = 1 << (bits - 1), {}
    has_trained_shift = settings.clip is Clip.MAX_BIT_SHIFT and _has_trained_shift(state, layer)
    if settings.clip is Clip.MAX_BIT_SHIFT:
        trained_shift = state.number(layer, "output_shift") or 0.0
        shift = trained_shift if has_trained_shift else _shift(state, layer, (weights, bias), bits)
        changed[f"{layer}.output_shift"] = np.array([shift], np.float32)
        factor = np.float32(half * 2.0**-shift)
    else:
        factor = np.float32(half * _saturation(weights, settings))
    changed[f"{operation}.weight"] = np.clip(_round_half_up(weights * factor), -half, half - 1)
    if bias is not None:
        # Such biases are clipped to all their bits; the others to bytes first.
        precision = half if has_trained_shift else 1
        rounded = _round_half_up(bias.astype(np.float32) * (factor * precision))
        clipped = np.clip(rounded, -128 * precision, 128 * precision - 1)
        changed[f"{operation}.bias"] = clipped * np.float32(half // precision)
        changed |= _flag(state, layer, "bias_bits", 8)
    if stated_bits or f"{layer}.weight_bits" not in state.tensors:
        changed[f"{layer}.weight_bits"] = np.array([bits], np.float32)
    return (
        changed
        | _flag(state, layer, "quantize_activation", 1)
        | _flag(state, layer, "adjust_output_shift", 0)
    )


def _round_half_up(values: Array) -> Array:
    # Not np.rint, which rounds halves to even; the vendor's tool rounds them up.
    return np.floor(values + np.float32(0.5))


def _flag(state: CheckpointState, layer: str, name: str, value: int) -> dict[str, Array]:
    """Return a parameter with a value, if the layer has such a parameter."""
    key = f"{layer}.{name}"
    return {key: np.array([value], np.float32)} if key in state.tensors else {}


def _has_trained_shift(state: CheckpointState, layer: str) -> bool:
    """Return whether the output shift is the one that training found.

    Versions of the training tools that adjusted the output shift did not yet store the quantile from which
    it follows.  Their biases keep as many more bits as the weights have; the reader of a checkpoint cuts
    them off.
    """
    return bool(state.number(layer, "adjust_output_shift")) and state.number(layer, "shift_quantile") is None


def _shift(state: CheckpointState, layer: str, values: tuple[Array, Array | None], bits: int) -> float:
    """Return -log2(s), computed in 32-bit floats as the vendor's tool does."""
    magnitudes = np.concatenate([np.abs(v).ravel().astype(np.float32) for v in values if v is not None])
    quantile = state.number(layer, "shift_quantile")
    largest = (
        magnitudes.max() if quantile in (None, 1.0) else np.quantile(magnitudes, quantile).astype(np.float32)
    )
    low, high = (limit - bits for limit in EXPONENTS)
    # Weights of zero fit any scale, and the logarithm has none for them.
    exponent = high if largest == 0 else np.clip(np.floor(np.log2(np.float32(1) / largest)), low, high)
    return -float(exponent)


def _saturation(weights: Array, settings: Settings) -> float:
    """Return s for the methods of clipping other than MAX_BIT_SHIFT."""
    channels = weights.reshape(len(weights), -1)
    if settings.clip is Clip.SCALE:
        return settings.scale
    if settings.clip is Clip.AVGMAX:
        return float(max(abs(channels.min(1).mean()), abs(channels.max(1).mean())))
    if settings.clip is Clip.AVG:
        return float(np.abs(channels).max(1).mean())
    # PyTorch's std divides by n - 1, numpy's own default by n.
    mean, deviation = weights.mean(), settings.deviations * weights.std(ddof=1)
    return float(max(abs(max(weights.min(), mean - deviation)), abs(min(weights.max(), mean + deviation))))

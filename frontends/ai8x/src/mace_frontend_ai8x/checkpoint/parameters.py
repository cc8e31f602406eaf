"""Holds a network's parameters as integers, as the weight and bias memories of the chip have them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_ai8x.checkpoint.fuse import fuse, needs_fusing, without_batch_normalization
from mace_frontend_ai8x.checkpoint.quantize import Settings, quantize
from mace_frontend_ai8x.checkpoint.state import PARALLEL, CheckpointState, read_state

BITS = (1, 2, 4, 8)
SHIFTS = range(-30, 31)
"""Shifts that a checkpoint may have: more than the hardware has, whose own limit is checked later."""


@dataclass(frozen=True, eq=False)
class LayerParameters:
    """A layer's parameters.

    name: as the model has it; of arrays the number.
    weights: int64, in the model's order of axes (see `network.Weights`): [out, in / groups, rows, columns],
    Conv1d [out, in, length], linear [out, in], ConvTranspose2d [in, out, rows, columns].
    bias: int64 bytes; the sum gets 128 times as much.  None where the layer has none.
    weight_bits: what the weights were quantized to; None where the checkpoint does not say.
    output_shift: as the checkpoint has it, without the 8 - bits that narrow weights add.
    final_scale: the results must be multiplied by 2 to this power to have their size in training; 0 but for a
    network's last layer.
    """

    name: str
    weights: Array
    bias: Array | None = None
    weight_bits: int | None = None
    output_shift: int = 0
    final_scale: int = 0


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The parameters of all layers that have weights, in the model's order.

    arch: the model's name.  quantized: whether the file held integers already.  notes: what the user should
    know.
    """

    layers: tuple[LayerParameters, ...]
    arch: str | None = None
    epoch: int | None = None
    quantized: bool = True
    notes: tuple[str, ...] = ()


def load_checkpoint(path: Path, settings: Settings | None = None, ignore_bn: bool = False) -> Checkpoint:
    """Read a checkpoint file; batch normalization is fused and weights are quantized where they are not yet.

    ignore_bn: leave out batch normalization as if it was not there.
    MaceError if the file cannot be read, if it has batch normalization beside quantized weights, into which
    it can no longer be fused, or with all weights, biases and shifts that do not fit the hardware.
    """
    state, notes = _single(read_state(path))
    quantized = state.quantized
    if needs_fusing(state) and ignore_bn:
        state = without_batch_normalization(state)
        notes += ("batch normalization of the checkpoint was ignored, as asked for",)
    elif needs_fusing(state) and quantized:
        problem = "holds batch normalization beside quantized weights, and the hardware has none"
        remedy = (
            "fuse the trained checkpoint (mace-ai8x fuse) and quantize it again, "
            "or give ignore-bn to leave it out"
        )
        raise MaceError(path, problem, remedy)
    # In this order: quantization finds the range of the fused weights.
    if not quantized:
        if needs_fusing(state):
            state = fuse(state)
            notes += ("batch normalization was fused into the weights",)
        state = quantize(state, settings or Settings())
        method = state.extras["clipping_method"]
        notes += (f"the checkpoint was not quantized: its weights were quantized now ({method})",)
    faults: list[str] = []
    layers = tuple(_layer(state, layer, operation, faults) for layer, operation in state.layers())
    if faults:
        raise MaceError.of(faults)
    return Checkpoint(layers, state.arch, state.epoch, quantized, notes)


def _single(state: CheckpointState) -> tuple[CheckpointState, tuple[str, ...]]:
    """Return the state with each layer once and under its plain name, and notes for the user.

    Of layers that a file has twice, with and without PARALLEL, the first are used: the vendor's loader counts
    layers in the order of the file, and so uses them too.
    """
    operations = [operation for _, operation in state.layers()]
    parallel_names = {name.removeprefix(PARALLEL) for name in operations if name.startswith(PARALLEL)}
    twice = parallel_names & set(operations)
    if not twice:
        plain = {name.removeprefix(PARALLEL): values for name, values in state.tensors.items()}
        return state.with_tensors(plain), ()
    is_parallel_first = operations[0].startswith(PARALLEL)
    tensors = {
        name.removeprefix(PARALLEL): values
        for name, values in state.tensors.items()
        if name.startswith(PARALLEL) == is_parallel_first
    }
    lost = sum(f"{name}.bias" in state.tensors and f"{name}.bias" not in tensors for name in twice)
    note = (
        f"the checkpoint holds {len(twice)} layers twice, with and without '{PARALLEL}'; "
        f"those from {operations[0]} on are used"
    )
    if lost:
        note += f", which lack {lost} biases that the others have"
    return state.with_tensors(tensors), (note,)


def _layer(state: CheckpointState, layer: str, operation: str, faults: list[str]) -> LayerParameters:
    """Return one layer; its faults are added to `faults`."""
    bits = _read_integer(state, f"{layer}.weight_bits", faults, range(9)) or 8
    if bits not in BITS:
        faults.append(f"{state.path}: {layer} has weights of {bits} bits; quantize it to 1, 2, 4 or 8")
    bias = state.tensors.get(f"{operation}.bias")
    weights = _bytes(state, f"{operation}.weight", 1, faults)
    return LayerParameters(
        layer,
        weights,
        None if bias is None else _bytes(state, f"{operation}.bias", 1 << bits - 1, faults),
        # Zeros need one bit, as in the vendor's loader; their bias was quantized for the stated bits.
        bits if weights.any() else 1,
        _read_integer(state, f"{layer}.output_shift", faults),
        _read_integer(state, f"{layer}.final_scale", faults),
    )


def _read_integer(state: CheckpointState, name: str, faults: list[str], within: range = SHIFTS) -> int:
    """Return a parameter that is an integer; 0 where there is none, or with a fault."""
    layer, _, parameter = name.rpartition(".")
    value = state.number(layer, parameter) or 0.0
    if value not in within:
        expected = f"an integer from {within[0]} to {within[-1]}"
        faults.append(f"{state.path}: {name} is {value:g}; it must be {expected}, quantize again")
        return 0
    return int(value)


def _bytes(state: CheckpointState, name: str, divisor: int, faults: list[str]) -> Array:
    """Return values divided by a number; zeros and a fault if they do not fit into 8 bits then."""
    # The vendor's loader rounds a bias down when it cuts off the bits that its weights lack.
    values = np.floor(state.tensors[name] / np.float32(divisor))
    if values.size and not (values.min() >= -128 and values.max() <= 127):
        span = f"from {values.min():g} to {values.max():g}"
        faults.append(f"{state.path}: {name} is {span}, wider than 8 bits; quantize again")
        return np.zeros(values.shape, np.int64)
    return values.astype(np.int64)

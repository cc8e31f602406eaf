"""Folds batch normalization into the convolution before it, because the hardware has none.

The layers of the vendor's training tools divide the results of batch normalization by 4, so that they lie
within the range of data:

    y = ((w * x + b - mean) / sqrt(var + eps) * gamma + beta) / 4

Source: section 3.2 of https://arxiv.org/abs/1712.05877, and the training tools' pull requests 63 and 108.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_ai8x.checkpoint.state import CheckpointState, read_state
from mace_frontend_ai8x.checkpoint.write import write_state

DIVISOR = 4.0
"""By which the vendor's layers divide normalized values."""

EPSILON = 1e-5
"""PyTorch's default for what is added to the variance; checkpoints do not have it."""

MEAN = ".bn.running_mean"


def needs_fusing(state: CheckpointState) -> bool:
    """Return whether a checkpoint has batch normalization, also one that belongs to no convolution."""
    return any(name.rpartition(".")[2] == "running_mean" for name in state.tensors)


def without_batch_normalization(state: CheckpointState) -> CheckpointState:
    """Return the same state without the tensors of batch normalization."""
    norms = {name.rpartition(".")[0] for name in state.tensors if name.rpartition(".")[2] == "running_mean"}
    tensors = {
        name: values
        for name, values in state.tensors.items()
        if ".bn." not in name and name.rpartition(".")[0] not in norms
    }
    return state.with_tensors(tensors)


def fuse(state: CheckpointState, arch: str | None = None, divisor: float = DIVISOR) -> CheckpointState:
    """Return the same network without batch normalization.

    arch: the name of the architecture without it.
    divisor: by which the model divides normalized values; 1 for models that are not the vendor's.
    MaceError with all layers whose convolution is missing or does not have the normalized channels as first
    axis of its weights.
    """
    tensors = dict(state.tensors)
    # One of another name may stand anywhere in the model: left out, its network would be another.
    faults = [
        f"{state.path}: {name} is that of a batch normalization that belongs to no layer's convolution"
        for name in state.tensors
        if name.rpartition(".")[2] == "running_mean" and not name.endswith(MEAN)
    ]
    for layer in [name.removesuffix(MEAN) for name in state.tensors if name.endswith(MEAN)]:
        weights = state.tensors.get(f"{layer}.op.weight")
        channels = state.tensors[layer + MEAN].shape
        kinds = [state.tensors.get(f"{layer}.bn.{kind}") for kind in ("running_var", "weight", "bias")]
        if weights is None or weights.shape[:1] != channels or kinds[0] is None:
            actual = "none" if weights is None else f"weights {list(weights.shape)}"
            faults.append(
                f"{state.path}: {layer}.bn normalizes {list(channels)} channels "
                f"and needs a convolution to them, found {actual}"
            )
            continue
        per_channel = [
            values for values in (*kinds, state.tensors.get(f"{layer}.op.bias")) if values is not None
        ]
        if any(values.shape != channels for values in per_channel):
            faults.append(
                f"{state.path}: values of {layer}.bn and the bias "
                f"have other shapes than its mean {list(channels)}"
            )
            continue
        # A negative variance, as damage leaves it, has no root, and large values overflow float32.
        tensors = _fuse(tensors, layer, divisor)
        if not all(np.isfinite(tensors[f"{layer}.op.{kind}"]).all() for kind in ("weight", "bias")):
            faults.append(f"{state.path}: values of {layer}.bn and its convolution give no finite weights")
    if faults:
        raise MaceError.of(f"{fault}; fuse it with the tool that trained it" for fault in faults)
    return state.with_tensors(tensors, arch=arch or state.arch)


def _fuse(tensors: dict[str, Array], layer: str, divisor: float) -> dict[str, Array]:
    """Return all tensors, with one layer's batch normalization folded into its weights and bias.

    It is computed in 64-bit floats and rounded once, as float32.
    """

    def values(name: str, default: float) -> Array:
        return (
            tensors[f"{layer}.{name}"].astype(np.float64)
            if f"{layer}.{name}" in tensors
            else np.full(mean.shape, default)
        )

    mean, weights = tensors[layer + MEAN].astype(np.float64), tensors[f"{layer}.op.weight"]
    with np.errstate(all="ignore"):  # the caller refuses results that are not finite
        factor = values("bn.weight", 1) / np.sqrt(values("bn.running_var", 1) + EPSILON) / divisor
        fused = (weights * factor.reshape(-1, *(1,) * (weights.ndim - 1))).astype(np.float32)
        bias = ((values("op.bias", 0) - mean) * factor + values("bn.bias", 0) / divisor).astype(np.float32)
    result: dict[str, Array] = {}
    for name, values_of_name in tensors.items():
        if name == f"{layer}.op.weight":
            result[name] = fused
            # The bias comes right behind the weights, where PyTorch has it.
            result[f"{layer}.op.bias"] = bias
        elif not name.startswith(f"{layer}.bn.") and name != f"{layer}.op.bias":
            result[name] = values_of_name
    return result


def fuse_file(source: Path, target: Path, arch: str | None = None) -> None:
    """Write the network of a checkpoint file without batch normalization.

    MaceError if the source is damaged or has no batch normalization to fuse, or the target cannot be written.
    """
    state = read_state(source)
    if not needs_fusing(state):
        raise MaceError(source, "has no batch normalization", "use it as it is")
    write_state(fuse(state, arch), target)

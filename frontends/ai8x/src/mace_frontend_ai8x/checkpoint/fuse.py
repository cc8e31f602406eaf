"""Batch normalization folded into the convolution before it, which is needed where a model was not trained for quantization.

The layers of the vendor's training tools divide what batch normalization gives by 4, so that it lies within
the range of data:

    y = ((w * x + b - mean) / sqrt(var + eps) * gamma + beta) / 4

Source: section 3.2 of https://arxiv.org/abs/1712.05877, and the training tools' pull requests 63 and 108.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_ai8x.checkpoint.state import State, read_state
from mace_frontend_ai8x.checkpoint.write import write_state

DIVISOR = 4.0
EPSILON = 1e-5
"""What PyTorch adds to the variance where a model does not say; checkpoints do not hold it."""

MEAN = ".bn.running_mean"


def needs_fusing(state: State) -> bool:
    """Whether a checkpoint has batch normalization."""
    return any(name.endswith(MEAN) for name in state.tensors)


def without_batch_normalization(state: State) -> State:
    """The same state without the tensors of batch normalization."""
    return state.with_tensors({name: values for name, values in state.tensors.items() if ".bn." not in name})


def fuse(state: State, arch: str | None = None, divisor: float = DIVISOR) -> State:
    """The same network without batch normalization.

    arch: the name of the architecture without it.  divisor: by which the model divides what it gives; 1 for
    other models than the vendor's.
    MaceError: a convolution is missing, or is not one along whose first axis the channels are that are
    normalized; all such at once.
    """
    tensors, faults = dict(state.tensors), []
    for layer in [name.removesuffix(MEAN) for name in state.tensors if name.endswith(MEAN)]:
        weights = state.tensors.get(f"{layer}.op.weight")
        channels = state.tensors[layer + MEAN].shape
        kinds = [state.tensors.get(f"{layer}.bn.{kind}") for kind in ("running_var", "weight", "bias")]
        if weights is None or weights.shape[:1] != channels or kinds[0] is None:
            found = "none" if weights is None else f"weights {list(weights.shape)}"
            faults.append(
                f"{state.path}: {layer}.bn normalises {list(channels)} channels and needs a convolution to them, found {found}"
            )
            continue
        if any(
            values is not None and values.shape != channels
            for values in (*kinds, state.tensors.get(f"{layer}.op.bias"))
        ):
            faults.append(
                f"{state.path}: values of {layer}.bn and the bias have other shapes than its mean {list(channels)}"
            )
            continue
        tensors = _fuse(tensors, layer, divisor)
        if not all(np.isfinite(tensors[f"{layer}.op.{kind}"]).all() for kind in ("weight", "bias")):
            faults.append(f"{state.path}: values of {layer}.bn and its convolution give no finite weights")
    if faults:
        raise MaceError.of(f"{fault}; fuse it with the tool that trained it" for fault in faults)
    return state.with_tensors(tensors, arch=arch or state.arch)


def _fuse(tensors: dict[str, Array], layer: str, divisor: float) -> dict[str, Array]:
    """All tensors, with one layer's weights and bias changed and what batch normalization had removed.

    Sums as 64-bit floats.
    """

    def values(name: str, default: float) -> Array:
        return (
            tensors[f"{layer}.{name}"].astype(np.float64)
            if f"{layer}.{name}" in tensors
            else np.full(mean.shape, default)
        )

    mean, weights = tensors[layer + MEAN].astype(np.float64), tensors[f"{layer}.op.weight"]
    with np.errstate(all="ignore"):  # what becomes of damaged numbers is looked at afterwards
        factor = values("bn.weight", 1) / np.sqrt(values("bn.running_var", 1) + EPSILON) / divisor
        fused = (weights * factor.reshape(-1, *(1,) * (weights.ndim - 1))).astype(np.float32)
        bias = ((values("op.bias", 0) - mean) * factor + values("bn.bias", 0) / divisor).astype(np.float32)
    rest: dict[str, Array] = {}
    for name, held in tensors.items():
        if name == f"{layer}.op.weight":
            rest[name] = fused
            rest[f"{layer}.op.bias"] = bias
        elif not name.startswith(f"{layer}.bn.") and name != f"{layer}.op.bias":
            rest[name] = held
    return rest


def fuse_file(source: Path, target: Path, arch: str | None = None) -> None:
    """Write a checkpoint file's network without batch normalization.

    MaceError: the source is damaged or has no batch normalization that can be fused, or the target cannot be
    written.
    """
    state = read_state(source)
    if not needs_fusing(state):
        raise MaceError(source, "has no batch normalization", "use it as it is")
    write_state(fuse(state, arch), target)

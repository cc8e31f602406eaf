"""Real numbers that are stored as integers: the meaning of `Tensor.quant`.

real = scale * (stored - zero point), with one scale and zero point for a tensor, or for each index of an
axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array, DType, Quant, Storage, Tensor
from mace_core.ops.op import Op
from mace_core.ops.transpose import TransposeAttributes

STORED = (DType.I8, DType.U8, DType.I16, DType.U16, DType.I32)
"""The integer types in which real numbers can be stored."""


def dequantize(integers: Array, quant: Quant) -> Array:
    """Return the real numbers, in float64, of stored integers."""
    # In float64 the difference and the product of 32-bit integers and float32 scales are nearly exact, so
    # that kernels are compared with real numbers and not with another rounding.
    zero_point = _broadcast(quant.zero_point, quant, integers.ndim)
    scale = _broadcast(quant.scale, quant, integers.ndim)
    return np.asarray((integers.astype(np.float64) - zero_point) * scale)


def quantize(real: Array, storage: Storage) -> Array:
    """Return the stored integers nearest to real numbers, saturated; NaN becomes the lowest."""
    # Ties to even, as ONNX's QuantizeLinear and IEEE 754; TFLite rounds ties away from zero, which differs by
    # one step in rare cases. The zero point is added after the rounding: before it, it would move ties.
    quant = storage.quant
    steps = np.asarray(real, np.float64) / _broadcast(quant.scale, quant, np.ndim(real))
    # 1e300 instead of infinity: the sum with a zero point stays a number, and is clipped like any other.
    rounded = np.rint(np.nan_to_num(steps, nan=-1e300, posinf=1e300, neginf=-1e300)) + _broadcast(
        quant.zero_point, quant, np.ndim(real)
    )
    limits = np.iinfo(storage.dtype.numpy)
    return np.asarray(np.clip(rounded, limits.min, limits.max).astype(storage.dtype.numpy))


def fault(tensor: Tensor) -> str | None:
    """Return what is wrong with a tensor's quantization; None if nothing is."""
    quant = tensor.quant
    if quant is None:
        return None
    if tensor.dtype not in STORED:
        return f"elements of type {tensor.dtype.value} cannot stand for real numbers"
    if quant.axis is not None and not 0 <= quant.axis < len(tensor.shape):
        return f"its scales lie along axis {quant.axis} of {len(tensor.shape)}"
    count = 1 if quant.axis is None else tensor.shape[quant.axis]
    if (len(quant.scale), len(quant.zero_point)) != (count, count):
        counts = f"{len(quant.scale)} scales and {len(quant.zero_point)} zero points"
        return f"it has {counts}, expected {count} of each"
    return _values_fault(quant, tensor.dtype)


def _values_fault(quant: Quant, dtype: DType) -> str | None:
    if not all(0 < s < np.inf for s in quant.scale):
        return f"its scale is {min(quant.scale)}; every scale must be positive and finite"
    limits = np.iinfo(dtype.numpy)
    if quant.zero_point and not limits.min <= min(quant.zero_point) <= max(quant.zero_point) <= limits.max:
        return f"its zero point is no {dtype.value}"
    return None


def propagate_storage(op: Op, inputs: Sequence[Tensor | None], attrs: Attributes) -> Storage | None:
    """Return the default storage of an op's outputs: its input's if the op only moves data, else None."""
    # Several inputs, as of Concat, must have one storage: integers of different scales cannot be mixed.
    first = inputs[0].storage if inputs and inputs[0] else None
    if first is None or not op.moves or any(t and t.quant and t.storage != first for t in inputs):
        return None
    if first.quant.axis is None:
        return first
    # Scales along an axis follow a Transpose. Other ops that move data may merge or divide that axis, after
    # which no axis has one scale for each index.
    if not isinstance(attrs, TransposeAttributes):
        return None
    return replace(first, quant=replace(first.quant, axis=attrs.perm.index(first.quant.axis)))


def compute(
    op: Op, attrs: Attributes, inputs: Sequence[tuple[Tensor, Array] | None], outputs: Sequence[Tensor]
) -> tuple[Array, ...]:
    """Compute a node on stored elements: the op on real numbers, rounded once to each output's storage.

    inputs: each tensor with its elements; None for an absent one.
    """
    # The weights of most models are transposed: their integers are what would come back from real numbers.
    first = inputs[0] if inputs else None
    if isinstance(attrs, TransposeAttributes) and first:
        tensor, elements = first
        if tensor.storage and outputs[0].storage == propagate_storage(op, [tensor], attrs):
            return tuple(op.compute([elements], attrs))
    # This is the definition of a quantized node. Kernels that compute in integers may differ from it by one
    # step.
    reals = [i and (dequantize(i[1], i[0].quant) if i[0].quant else i[1]) for i in inputs]
    return tuple(_store(r, t) for r, t in zip(op.compute(reals, attrs), outputs, strict=False))


def _store(result: Array, tensor: Tensor) -> Array:
    elements = (
        quantize(result, tensor.storage) if tensor.storage else result.astype(tensor.dtype.numpy, copy=False)
    )
    return elements.reshape(tensor.shape)


def _broadcast(values: Sequence[float], quant: Quant, rank: int) -> Array:
    """Return the values in a shape that broadcasts along the axis of a tensor of this rank."""
    array = np.asarray(values, np.float64)
    return array.reshape([-1 if i == quant.axis else 1 for i in range(rank)])

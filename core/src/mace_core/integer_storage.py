"""Scales and constants of quantized tensors, as lowerings to integer kernels of any target read them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mace_core.ir import Array, DType, Tensor
from mace_core.lowering import Lowering, Refused

EIGHT_BITS = (DType.I8, DType.U8)
NARROW = (*EIGHT_BITS, DType.I16)
"""Elements whose products are summed in 32 bits, and which a float holds exactly."""


@dataclass(frozen=True)
class Scale:
    """One scale and zero point for a whole tensor; 1 and 0 for one of floats."""

    step: float
    zero: int

    @classmethod
    def from_tensor(cls, tensor: Tensor) -> Scale:
        """Return those of a tensor; raises Refused where they differ along an axis."""
        if tensor.quant is None:
            return cls(1.0, 0)
        if len(tensor.quant.scale) != 1:
            reason = f"{tensor.name} has a scale for every index of axis {tensor.quant.axis}"
            raise Refused(reason, code="quantization")
        return cls(tensor.quant.scale[0], tensor.quant.zero_point[0])


def need_stored(lowering: Lowering, name: str, dtypes: tuple[DType, ...]) -> Tensor:
    """Return a quantized tensor; raises Refused if it is none or its elements are of other types."""
    tensor = lowering.tensors[name]
    if tensor.quant is None or tensor.dtype not in dtypes:
        suffix = ", quantized" if tensor.quant else ""
        reason = f"{name} is {tensor.dtype.value}{suffix}; no integer kernel reads that"
        raise Refused(reason, code="quantization")
    return tensor


def need_room(tensor: Tensor, count: int) -> None:
    """Raise Refused unless sums of so many elements, less their zero point, surely fit 32 bits.

    Also if there are none.
    """
    # count * 2^bits bounds the sum of elements less their zero point.
    if not 0 < count << (8 * tensor.dtype.size) <= 1 << 31:
        reason = f"a sum of {count} elements of {tensor.name} may not fit 32 bits, or has none"
        raise Refused(reason, code="too-large")


@dataclass(frozen=True)
class IntegerWeights:
    """A constant factor: its integers as int8, one zero point, a scale for each output channel."""

    values: Array
    zero: int
    scale: Array
    _totals: dict[tuple[str, tuple[int, ...]], Array] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_constant(cls, name: str, lowering: Lowering) -> IntegerWeights:
        """Return those of a constant; raises Refused for what no kernel multiplies with."""
        return lowering.compute_once(("integer weights", name), lambda: cls._read(name, lowering))

    @classmethod
    def _read(cls, name: str, lowering: Lowering) -> IntegerWeights:
        tensor, values = need_stored(lowering, name, EIGHT_BITS), lowering.constant(name)
        quant = tensor.quant
        assert quant is not None
        if values is None:
            raise Refused(f"{name} is computed, not a constant", code="other")
        # Kernels take the zero point out of the sums by one number for all columns.
        if len({*quant.zero_point}) != 1:
            raise Refused(f"{name} has several zero points", code="quantization")
        # All weights are int8, so that one kernel serves both types.
        shift = 128 if tensor.dtype is DType.U8 else 0
        shifted = (values.astype(np.int16) - shift).astype(np.int8)
        return cls(shifted, quant.zero_point[0] - shift, np.array(quant.scale, np.float64))

    def sums(self, axes: tuple[int, ...]) -> Array:
        """Return for every output channel the sum of its weights less their zero point, over some axes."""
        return self._total("sums", axes)

    def reach(self, axes: tuple[int, ...]) -> Array:
        """Return for every output channel the sum of its weights' magnitudes, over some axes."""
        return self._total("reach", axes)

    def _total(self, kind: str, axes: tuple[int, ...]) -> Array:
        if (kind, axes) not in self._totals:
            values = self.values.astype(np.int64) - self.zero
            total: Array = (values if kind == "sums" else np.abs(values)).sum(axes).reshape(-1)
            # All candidates of a node share it.
            total.setflags(write=False)
            self._totals[kind, axes] = total
        return self._totals[kind, axes]

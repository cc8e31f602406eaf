"""What quantized products share: weights as int8 in panels of pairs, a bias and a factor for every column."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mace_core.integer_storage import IntegerWeights
from mace_core.ir import Array, DType, Node, Tensor
from mace_core.lowering import Lowering, Refused
from mace_core.program import Arg
from mace_target_cpu.isa import Packing, packing, panel_width
from mace_target_cpu.lower.gemm import optional
from mace_target_cpu.lower.igemm import pack_bytes, packed_bytes_shape
from mace_target_cpu.quantized.rounding import Rounding, choose_rounding, encode_factors, multiply_scales
from mace_target_cpu.quantized.storage import (
    NARROW,
    RESULT,
    Scale,
    clamp,
    need_stored,
    pad_columns,
    result,
    round_away,
    round_even,
)

BIAS_TOLERANCE = 2.0**-10
"""Steps of the result that a bias may lose to leave room for the sum."""


def factor(node: Node, lowering: Lowering) -> Tensor:
    """The left factor; Refused for one whose windows cannot be filled with zeros byte by byte."""
    x = need_stored(lowering, node.inputs[0], NARROW)
    # Padding is written as bytes: of 16 bits only 0 has two equal ones for certain.
    if x.dtype is DType.I16 and Scale.from_tensor(x).zero:
        raise Refused(f"{x.name} has sixteen bits and a zero point", code="quantization")
    return x


PRODUCT_RESULT = (*RESULT, ("rounding", "i32"))
"""Arguments that say how the results of products are rounded and stored."""


@dataclass(frozen=True)
class ColumnScales:
    """For every output channel what its sums begin with, and what they are multiplied with.

    factor: as `encode_factors` returns it.
    """

    bias: Array
    factor: Array
    rounding: Rounding = Rounding.SINGLE

    @classmethod
    def from_node(cls, node: Node, lowering: Lowering, weights: IntegerWeights, reach: Array) -> ColumnScales:
        """From the node's third input and the scales of its factors and result.

        Refused where sums can be too large for 32 bits.

        reach: of the weights, for every output channel.
        """
        x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
        rounding = choose_rounding(node, lowering)
        unit = np.broadcast_to(multiply_scales(node, x, weights.scale, rounding), reach.shape)
        if y.dtype is DType.I32 and not np.allclose(unit, Scale.from_tensor(y).step, rtol=1e-6, atol=0):
            raise Refused(
                f"{y.name} has steps of {Scale.from_tensor(y).step}, its sums of {unit[0]}",
                code="quantization",
            )
        bias = _read_bias(optional(node, 2), lowering, unit, rounding)
        factor = unit / Scale.from_tensor(y).step
        limits, zero = np.iinfo(x.dtype.numpy), Scale.from_tensor(x).zero
        largest = max(limits.max - zero, zero - limits.min)
        # |sum| <= sum of |w| times the largest |x|; what is left of 2^31 is for the bias.
        room = (1 << 31) - 1 - reach * largest
        # Only a channel whose scale is next to nothing has a bias beyond that; it loses what no step shows.
        limited = np.clip(bias, -np.maximum(room, 0), np.maximum(room, 0))
        if (room < 0).any() or (np.abs(bias - limited) * factor).max(initial=0) > BIAS_TOLERANCE:
            raise Refused(f"sums of {y.name} can be too large for 32 bits", code="too-large")
        return cls(limited.astype(np.int32), encode_factors(factor, rounding), rounding)

    def result(self, node: Node, y: Tensor) -> dict[str, Arg]:
        """Return the arguments of PRODUCT_RESULT for the node's clamp."""
        rule = round_away if self.rounding is not Rounding.SINGLE else round_even
        return {**result(y, *clamp(node), rule=rule), "rounding": int(self.rounding)}

    def without_zero_point(self, x: Tensor, sums: Array, order: Packing) -> ColumnScales:
        """Return what sums begin with where kernels multiply bytes of x with their zero point in them.

        order: says whether as signed or as unsigned ones.  sums: of the weights of every output channel. The
        sum of (x - zero) w is that of x w less zero times the sum of w.
        """
        if x.dtype is DType.I16:
            return self
        zero = Scale.from_tensor(x).zero + order.shift(x.dtype is DType.I8)
        # Kernels add modulo 2^32, so only the final sum has to fit, and that was proven of the true bias.
        start = (self.bias.astype(np.int64) - zero * sums).astype(np.uint64) & np.uint64(0xFFFFFFFF)
        return replace(self, bias=start.astype(np.uint32).view(np.int32))


def _read_bias(name: str, lowering: Lowering, unit: Array, rounding: Rounding) -> Array:
    """The bias in the units of the sums, as float64, which holds every integer of 32 bits."""
    if not name:
        return np.zeros(unit.shape)
    tensor, values = lowering.tensors[name], lowering.constant(name)
    if values is None:
        raise Refused(f"{name} is computed, not a constant", code="other")
    if tensor.quant is None:
        steps = values / unit
    elif rounding is not Rounding.SINGLE:
        # The interpreter adds the stored integers, whatever their scale is.
        steps = values.astype(np.float64) - tensor.quant.zero_point[0]
    else:
        steps = (values.astype(np.float64) - tensor.quant.zero_point[0]) * np.array(tensor.quant.scale) / unit
    return np.rint(steps)


def pack_once(name: str, matrices: Array, lowering: Lowering, form: str = "packed") -> str:
    """Make a weight of a constant's matrices, packed, if no node has yet; returns its name.

    form: tells matrices of one constant apart that differ in more than their shape.
    """
    # Asked for here, not when the weight is written: another level may have other panels, and its own packed
    # weight.
    order = packing(lowering)
    shape = packed_bytes_shape(matrices.shape, order)
    return lowering.once(
        (name, shape, form),
        lambda: lowering.weight(f"{name}_{form}", shape, "int8", lambda: pack_bytes(matrices, order)),
    )


def column_weights(lowering: Lowering, stem: str, columns: ColumnScales, groups: int) -> tuple[str, str]:
    """Make weights of biases and factors, each group padded to whole panels; returns their names."""
    panel = panel_width(lowering)
    bias = pad_columns(columns.bias, groups, panel)
    factor = pad_columns(columns.factor, groups, panel)

    def add(name: str, values: Array) -> str:
        # Several candidates may compute the node, each at its own levels, from the same numbers.
        key = (name, values.tobytes())
        return lowering.once(
            key, lambda: lowering.weight(name, values.shape, str(values.dtype), lambda: values)
        )

    return add(f"{stem}.bias", bias), add(f"{stem}.factor", factor)

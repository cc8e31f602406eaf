"""What quantized products share: weights as int8 in panels of pairs, a bias and a factor for every column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mace_core.ir import Array, DType, Node, Tensor
from mace_core.lowering import Lowering, Refused
from mace_target_cpu.isa import KERNELS, panel_width
from mace_target_cpu.lower.gemm import BLOCK, GEMM, MOST_ROWS, optional
from mace_target_cpu.quantized.storage import (
    EIGHT_BITS,
    INTEGER,
    NARROW,
    REQUANTIZE,
    Scale,
    need_stored,
    padded,
)

TRIFLE = 2.0**-10
"""Of a step of the result: what a bias may lose to leave room for the sum."""

IGEMM = (GEMM, INTEGER, REQUANTIZE, KERNELS / "igemm.h.in")
"""Helpers of kernels that multiply matrices of integers."""


@dataclass(frozen=True)
class Weights:
    """A constant factor: its integers as int8, one zero point, a scale for each output channel."""

    values: Array
    zero: int
    scale: Array

    @classmethod
    def of(cls, name: str, to: Lowering) -> Weights:
        """Of a constant whose output channels are its first axis.

        Refused for what no kernel multiplies with.
        """
        tensor, values = need_stored(to, name, EIGHT_BITS), to.constant(name)
        quant = tensor.quant
        assert quant is not None
        if values is None:
            raise Refused(f"{name} is computed, not a constant", code="other")
        if len(set(quant.zero_point)) != 1:
            raise Refused(f"{name} has several zero points", code="quantization")
        shift = 128 if tensor.dtype is DType.U8 else 0
        shifted = (values.astype(np.int16) - shift).astype(np.int8)
        return cls(shifted, quant.zero_point[0] - shift, np.array(quant.scale, np.float64))

    def reach(self, axes: tuple[int, ...]) -> Array:
        """For every output channel the sum of its weights' absolute values, over the axes that are multiplied with."""
        totals: Array = np.abs(self.values.astype(np.int64) - self.zero).sum(axes)
        return totals.reshape(-1)


def factor(node: Node, to: Lowering) -> Tensor:
    """The left factor; Refused for one whose windows cannot be filled with zeros byte by byte."""
    x = need_stored(to, node.inputs[0], NARROW)
    if x.dtype is DType.I16 and Scale.of(x).zero:
        raise Refused(f"{x.name} has sixteen bits and a zero point", code="quantization")
    return x


@dataclass(frozen=True)
class Columns:
    """For every output channel what its sums begin with, and what they are multiplied with."""

    bias: Array
    factor: Array

    @classmethod
    def of(cls, node: Node, to: Lowering, weights: Weights, reach: Array) -> Columns:
        """From the node's third input and the scales of its factors and result.

        Refused where sums can be too large for 32 bits.

        reach: of the weights, for every output channel.
        """
        x, y = to.tensors[node.inputs[0]], to.tensors[node.outputs[0]]
        unit = np.broadcast_to(Scale.of(x).step * weights.scale, reach.shape)
        if y.dtype is DType.I32 and not np.allclose(unit, Scale.of(y).step, rtol=1e-6, atol=0):
            raise Refused(
                f"{y.name} has steps of {Scale.of(y).step}, its sums of {unit[0]}", code="quantization"
            )
        bias, limits, factor = (
            _bias(optional(node, 2), to, unit),
            np.iinfo(x.dtype.numpy),
            unit / Scale.of(y).step,
        )
        room = (1 << 31) - 1 - reach * max(limits.max - Scale.of(x).zero, Scale.of(x).zero - limits.min)
        # Of a channel whose scale is next to nothing.
        held = np.clip(bias, -np.maximum(room, 0), np.maximum(room, 0))
        if (room < 0).any() or (np.abs(bias - held) * factor).max(initial=0) > TRIFLE:
            raise Refused(f"sums of {y.name} can be too large for 32 bits", code="too-large")
        return cls(held.astype(np.int32), factor.astype(np.float32))


def _bias(name: str, to: Lowering, unit: Array) -> Array:
    """The bias in the units of the sums, as float64, which holds every integer of 32 bits."""
    if not name:
        return np.zeros(unit.shape)
    tensor, values = to.tensors[name], to.constant(name)
    if values is None:
        raise Refused(f"{name} is computed, not a constant", code="other")
    if tensor.quant is None:
        steps = values / unit
    else:
        steps = (values.astype(np.float64) - tensor.quant.zero_point[0]) * np.array(tensor.quant.scale) / unit
    return np.rint(steps)


def pack_pairs(matrices: Array, panel: int) -> Array:
    """Arrange int8 [count, depth, columns] as [count, panels, depth / 2, panel, 2], with zeros for what is not there."""
    count, depth, columns = matrices.shape
    panels, pairs = -(-columns // panel), -(-depth // 2)
    whole = np.zeros((count, 2 * pairs, panels * panel), np.int8)
    whole[:, :depth, :columns] = matrices
    return np.ascontiguousarray(whole.reshape(count, pairs, 2, panels, panel).transpose(0, 3, 1, 4, 2))


def pack_once(name: str, matrices: Array, to: Lowering) -> str:
    """Make a weight of a constant's matrices, packed, if no node has yet; returns its name."""
    # Asked for here, not when the weight is written: another level may have other panels, and its own packed
    # weight.
    panel = panel_width(to)
    panels, pairs = -(-matrices.shape[2] // panel), -(-matrices.shape[1] // 2)
    shape = (matrices.shape[0], panels, pairs, panel, 2)
    return to.once(
        (name, shape), lambda: to.weight(f"{name}_packed", shape, "int8", lambda: pack_pairs(matrices, panel))
    )


def block_rows(rows: int, depth: int) -> int:
    """Return the rows of a left factor that are worked on at a time."""
    return max(MOST_ROWS, min(rows, BLOCK // max(1, depth)))


def block_bytes(rows: int, depth: int, gathered: int) -> int:
    """Return the bytes of scratch for so many rows: their sums, their elements in 16 bits, and as they are gathered.

    gathered: bytes of an element; 0 if none are.
    """
    return rows * (4 + 2 * (depth + depth % 2) + depth * gathered)


def column_weights(to: Lowering, stem: str, columns: Columns, groups: int) -> tuple[str, str]:
    """Make weights of biases and factors, each group padded to whole panels; returns their names."""
    panel = panel_width(to)
    bias = padded(columns.bias, groups, panel)
    factor = padded(columns.factor, groups, panel)
    made = to.weight(f"{stem}.bias", bias.shape, "int32", lambda: bias)
    return made, to.weight(f"{stem}.factor", factor.shape, "float32", lambda: factor)

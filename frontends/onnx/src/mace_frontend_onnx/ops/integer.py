"""Convolutions and products of integers, written out in real numbers.

Sums of products are whole numbers; in single precision they are exact up to 2**24, beyond that to 24 bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

import numpy as np

from mace_core.importer import to_last
from mace_core.ir import Array, DType
from mace_frontend_onnx.importer import Held
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler
from mace_frontend_onnx.ops.conv import convolved

FLOAT = DType.F32.value


def _shifted(node: OnnxNode, index: int, zero: int) -> str:
    """Input `index` less its zero point, in single precision."""
    if node.array_is_constant(index) and (not node.has(zero) or node.array_is_constant(zero)):
        return node.derived(
            index, ("shifted", zero), lambda a: a.astype(np.float32) - _floats(node, zero, a.ndim)
        )
    tensor = node.emit("Cast", [node.input(index)], {"to": FLOAT}, tag="float")
    if not node.has(zero):
        return tensor
    point = node.emit("Cast", [node.input(zero)], {"to": FLOAT}, tag="zero")
    return node.emit("Sub", [tensor, point], tag="shift")


def _floats(node: OnnxNode, index: int, rank: int) -> Array:
    """A constant zero point; one per row of matrices has the rank that broadcasts with them."""
    if not node.has(index):
        return np.zeros((), np.float32)
    points = node.constant(index, "zero point").astype(np.float32)
    return (
        points.reshape(()) if points.size == 1 else points.reshape(points.shape + (1,) * (rank - points.ndim))
    )


def _conv_weights(node: OnnxNode, index: int, zero: int) -> str:
    """[O, I / group, *k] less the zero points, as [O, *k, I / group]."""
    perm = to_last(len(node.shape(index)))
    node.refuse_unless(
        node.array_is_constant(index), "its weights are computed at run time; export the model with constants"
    )

    def make(weights: Array) -> Array:
        points = _floats(node, zero, 1).reshape(-1, *(1,) * (weights.ndim - 1))
        return np.transpose(weights.astype(np.float32) - points, perm)

    return node.derived(index, ("shifted", perm, zero), make)


def _requantised(node: OnnxNode, sums: str, factor: str, zero: int) -> str:
    """Compute saturate(round(sums * factor) + zero point), before the cast to the type of the zero point."""
    steps = node.emit("Round", [node.emit("Mul", [sums, factor], tag="steps")], tag="round")
    shift = node.emit("Cast", [node.input(zero)], {"to": FLOAT}, tag="zero")
    limits = np.iinfo(node.dtype(zero).numpy)
    moved = node.emit("Add", [steps, shift], tag="shift")
    clipped = node.emit("Clip", [moved], {"min": float(limits.min), "max": float(limits.max)}, tag="saturate")
    return node.emit("Cast", [clipped], {"to": node.dtype(zero).value}, tag="integers")


def _factor(node: OnnxNode, scales: tuple[int, int, int]) -> str:
    """Divide scale of x times scale of w by scale of y."""
    x, w, y = (
        node.emit("Cast", [node.input(i)], {"to": FLOAT}, tag="scale") if _half(node, i) else node.input(i)
        for i in scales
    )
    return node.emit("Div", [node.emit("Mul", [x, w], tag="scale"), y], tag="scale")


def _half(node: OnnxNode, index: int) -> bool:
    return node.dtype(index) is not DType.F32


def qlinear_conv(node: OnnxNode) -> Sequence[Held]:
    """Multiply, add up and round, scales as they come."""
    x = node.channels_last(_shifted(node, 0, 2))
    bias = [node.emit("Cast", [node.input(8)], {"to": FLOAT}, tag="bias")] if node.has(8) else []
    sums = convolved(
        node, [x, _conv_weights(node, 3, 5), *bias], tuple(node.attr("kernel_shape") or node.shape(3)[2:])
    )
    return node.channels_first(_requantised(node, sums, _factor(node, (1, 4, 6)), 7))


def _conv_integer(node: OnnxNode) -> Sequence[Held]:
    x = node.channels_last(_shifted(node, 0, 2))
    sums = convolved(
        node, [x, _conv_weights(node, 1, 3)], tuple(node.attr("kernel_shape") or node.shape(1)[2:])
    )
    return node.channels_first(node.emit("Cast", [sums], {"to": DType.I32.value}, tag="integers"))


def qlinear_matmul(node: OnnxNode) -> Sequence[Held]:
    """Multiply, add up and round, scales as they come."""
    sums = node.emit("MatMul", [_shifted(node, 0, 2), _shifted(node, 3, 5)])
    return [_requantised(node, sums, _factor(node, (1, 4, 6)), 7)]


def _matmul_integer(node: OnnxNode) -> Sequence[Held]:
    if all(not node.has(zero) or prod(node.shape(zero)) == 1 for zero in (2, 3)):
        return node.done("MatMulInteger", [node.input(i) if i < node.count else "" for i in range(4)])
    sums = node.emit("MatMul", [_shifted(node, 0, 2), _shifted(node, 1, 3)])
    return node.done("Cast", [sums], {"to": DType.I32.value})


def qlinear_add(node: OnnxNode) -> Sequence[Held]:
    """Add the two operands' real values (ONNX Runtime's contrib operators, QLinearAdd)."""
    terms = [node.emit("Mul", [_shifted(node, i, i + 2), node.input(i + 1)], tag="real") for i in (0, 3)]
    one = node.add_constant(1, DType.F32, "one")
    return [
        _requantised(node, node.emit("Add", terms), node.emit("Div", [one, node.input(6)], tag="scale"), 7)
    ]


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {"ConvInteger": _conv_integer, "MatMulInteger": _matmul_integer}
)

"""Convolutions and products of integers, computed in real numbers.

Sums of products are integers; in single precision they are exact up to 2**24, beyond that to 24 bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

import numpy as np

from mace_core.importer import to_last
from mace_core.ir import Array, DType
from mace_core.ops.shapes import broadcast
from mace_frontend_onnx.importer import Result
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler
from mace_frontend_onnx.ops.conv import emit_conv

FLOAT = DType.F32.value

ROWS, COLUMNS = -2, -1
"""Axes of a matrix that have a scale or zero point of their own for each index."""

X_ZERO, W_ZERO, Y_SCALE, Y_ZERO = 2, 5, 6, 7
"""Inputs of the QLinear operators: zero points of both operands, scale and zero point of the result."""


def _subtract_zero_point(node: OnnxNode, index: int, zero: int, axis: int = COLUMNS) -> str:
    """Return input `index` less its zero point, in single precision.

    axis: what several zero points in a vector are for, ROWS or COLUMNS.
    """
    if node.is_constant(index) and (not node.has(zero) or node.is_constant(zero)):
        points = _constant_zero_points(node, zero, axis)
        return node.derive_constant(index, ("shifted", zero), lambda a: a.astype(np.float32) - points)
    tensor = node.emit("Cast", [node.input(index)], {"to": FLOAT}, tag="float")
    if not node.has(zero):
        return tensor
    point = node.emit("Cast", [_for_axis(node, zero, axis)], {"to": FLOAT}, tag="zero")
    return node.emit("Sub", [tensor, point], tag="shift")


def _constant_zero_points(node: OnnxNode, index: int, axis: int = COLUMNS) -> Array:
    """Return a constant zero point as floats that broadcast with its operand; 0 if it is absent."""
    if not node.has(index):
        return np.zeros((), np.float32)
    points = node.constant(index, "zero point").astype(np.float32)
    if points.size == 1:
        return points.reshape(())
    return points.reshape(-1, 1) if axis == ROWS and points.ndim == 1 else points


def _for_axis(node: OnnxNode, index: int, axis: int) -> str:
    """Return a scale or zero point as a tensor that broadcasts with its operand."""
    # MatMulInteger, QLinearMatMul: a vector is one number for each row of A, or for each column of B. With
    # more axes, such as [D, M, 1], it broadcasts as it is.
    shape = node.shape(index)
    if axis == ROWS and len(shape) == 1 and shape[0] > 1:
        return node.emit("Reshape", [node.input(index)], {"shape": (shape[0], 1)}, tag="by-rows")
    return node.input(index)


def _conv_weights(node: OnnxNode, index: int, zero: int) -> str:
    """Return weights [O, I / group, *kernel] less the zero points, as [O, *kernel, I / group]."""
    perm = to_last(len(node.shape(index)))
    problem = "its weights are computed at run time"
    node.refuse_unless(node.is_constant(index), f"{problem}; export the model with constants")

    def make(weights: Array) -> Array:
        # QLinearConv, ConvInteger: several zero points are one for each output channel.
        points = _constant_zero_points(node, zero).reshape(-1, *(1,) * (weights.ndim - 1))
        return np.transpose(weights.astype(np.float32) - points, perm)

    return node.derive_constant(index, ("shifted", perm, zero), make)


def _requantize(node: OnnxNode, sums: str, factor: str, zero: int) -> str:
    """Return saturate(round(sums * factor) + zero point) in the type of the zero point, else of input 0."""
    # QuantizeLinear: rounded half to even before the zero point is added, so that an odd one does not change
    # which way a half goes.
    moved = node.emit("Round", [node.emit("Mul", [sums, factor], tag="steps")], tag="round")
    # QLinearAdd: the zero point of the result may be absent; operands and result have one type.
    dtype = node.dtype(zero if node.has(zero) else 0)
    if node.has(zero):
        shift = node.emit("Cast", [node.input(zero)], {"to": FLOAT}, tag="zero")
        moved = node.emit("Add", [moved, shift], tag="shift")
    limits = np.iinfo(dtype.numpy)
    # C leaves a cast of what the type does not hold undefined, so the limits come first.
    clipped = node.emit("Clip", [moved], {"min": float(limits.min), "max": float(limits.max)}, tag="saturate")
    return node.emit("Cast", [clipped], {"to": dtype.value}, tag="integers")


def _requantization_factor(node: OnnxNode) -> str:
    """Return scale of x * scale of w / scale of y of a QLinear operator."""
    scales = []
    for index in (1, 4, Y_SCALE):
        scale = _for_axis(node, index, ROWS if index == 1 else COLUMNS)
        # QLinearMatMul: from operator set 21 on scales may be of half precision.
        if node.dtype(index) is not DType.F32:
            scale = node.emit("Cast", [scale], {"to": FLOAT}, tag="scale")
        scales.append(scale)
    x, w, y = scales
    return node.emit("Div", [node.emit("Mul", [x, w], tag="scale"), y], tag="scale")


def qlinear_conv(node: OnnxNode) -> Sequence[Result]:
    """Compute QLinearConv in real numbers, with scales that are computed at run time."""
    x = node.channels_last(_subtract_zero_point(node, 0, X_ZERO))
    bias = [node.emit("Cast", [node.input(8)], {"to": FLOAT}, tag="bias")] if node.has(8) else []
    kernel = tuple(node.attr("kernel_shape") or node.shape(3)[2:])
    sums = emit_conv(node, [x, _conv_weights(node, 3, W_ZERO), *bias], kernel)
    return node.channels_first(_requantize(node, sums, _requantization_factor(node), Y_ZERO))


def _conv_integer(node: OnnxNode) -> Sequence[Result]:
    x = node.channels_last(_subtract_zero_point(node, 0, 2))
    kernel = tuple(node.attr("kernel_shape") or node.shape(1)[2:])
    sums = emit_conv(node, [x, _conv_weights(node, 1, 3)], kernel)
    return node.channels_first(node.emit("Cast", [sums], {"to": DType.I32.value}, tag="integers"))


def qlinear_matmul(node: OnnxNode) -> Sequence[Result]:
    """Compute QLinearMatMul in real numbers, with scales that are computed at run time."""
    results = [node.shape(index) for index in (Y_SCALE, Y_ZERO) if node.has(index)]
    # No page says which axis several scales of the result would be for; ONNX Runtime refuses them as well.
    problem = "several scales of its result; export the model with one"
    node.refuse_unless(all(prod(shape) == 1 for shape in results), problem)
    factors = [_subtract_zero_point(node, 0, X_ZERO, ROWS), _subtract_zero_point(node, 3, W_ZERO)]
    return [_requantize(node, node.emit("MatMul", factors), _requantization_factor(node), Y_ZERO)]


def _matmul_integer(node: OnnxNode) -> Sequence[Result]:
    a_zero, b_zero = _single_zero_point(node, 2), _single_zero_point(node, 3)
    # The IR's op has one zero point for each operand.
    if a_zero is not None and b_zero is not None:
        return node.done("MatMulInteger", [*_integer_factors(node), a_zero, b_zero])
    factors = [_subtract_zero_point(node, 0, 2, ROWS), _subtract_zero_point(node, 1, 3)]
    product = node.emit("MatMul", factors)
    return node.done("Cast", [product], {"to": DType.I32.value})


def _single_zero_point(node: OnnxNode, index: int) -> str | None:
    """Return a zero point as a tensor of one element, "" if it is absent; None if there are several."""
    if not node.has(index) or prod(node.shape(index)) == 1:
        return node.input(index) if node.has(index) else ""
    points = node.constant(index, "zero point") if node.is_constant(index) else None
    # Quantizers of weights write one for each column, all 0 where they quantize symmetrically.
    if points is None or points.size == 0 or (points != points.reshape(-1)[0]).any():
        return None
    return node.derive_constant(index, "single", lambda array: array.reshape(-1)[0])


def _integer_factors(node: OnnxNode) -> list[str]:
    """Return both operands of a MatMulInteger, of equal batches unless one of them is single."""
    shapes = [node.shape(index) for index in (0, 1)]
    batches = [shape[:-2] for shape in shapes]
    # Kernels take one factor for all products, or one for each; what lies between is repeated.
    if batches[0] == batches[1] or 1 in map(prod, batches):
        return [node.input(index) for index in (0, 1)]
    batch = broadcast(batches)
    return [
        node.input(index)
        if shape[:-2] == batch
        else node.emit("Expand", [node.input(index)], {"shape": (*batch, *shape[-2:])}, tag="batches")
        for index, shape in enumerate(shapes)
    ]


def qlinear_add(node: OnnxNode) -> Sequence[Result]:
    """Add the real values of two operands (com.microsoft, QLinearAdd)."""
    terms = []
    for index in (0, 3):
        integers = _subtract_zero_point(node, index, index + 2)
        terms.append(node.emit("Mul", [integers, node.input(index + 1)], tag="real"))
    factor = node.emit("Div", [node.add_float(1, "one"), node.input(Y_SCALE)], tag="scale")
    return [_requantize(node, node.emit("Add", terms), factor, Y_ZERO)]


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {"ConvInteger": _conv_integer, "MatMulInteger": _matmul_integer}
)

"""QLinear operators: ONNX's and ONNX Runtime's, over tensors that store real numbers as integers.

Where a scale or zero point is computed at run time, the arithmetic is done in real numbers instead, see
`integer`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from math import prod
from types import MappingProxyType
from typing import Any, NoReturn

import numpy as np

from mace_core.importer import RefusedError, to_last
from mace_core.ir import Array, Quant, Storage
from mace_frontend_onnx.importer import Result
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler
from mace_frontend_onnx.ops.conv import conv_attributes
from mace_frontend_onnx.ops.integer import qlinear_add, qlinear_conv, qlinear_matmul
from mace_frontend_onnx.ops.pool import quantized_average_attributes
from mace_frontend_onnx.quantization import find_storage, output_dtype, quantized_bias, quantized_input

Operand = tuple[int, int, int]
"""Numbers of the inputs that hold integers, their scale and their zero point."""

X, W = (0, 1, 2), (3, 4, 5)
Y_SCALE, Y_ZERO = 6, 7
BIAS = 8
WHERE_INPUTS = 9
GEMM_BIAS, GEMM_Y_SCALE, GEMM_Y_ZERO = 6, 7, 8

SOFTMAX_BY_AXIS = 13
"""The operator set from which on Softmax normalizes one axis."""

COMPUTED_STORAGE = (
    "its scale or zero point (input {}) is computed at run time; export the model with constants"
)
UNREADABLE_STORAGE = "one of its scales is not a single positive number; quantize the model again"


def _storages(
    node: OnnxNode, operands: Sequence[Operand], y: tuple[int, int], axis: int | None = None
) -> list[Storage] | None:
    """Return how the operands and the result are stored; None if any of it is not known before run time.

    y: numbers of the inputs that hold the scale and the zero point of the result.
    axis: the axis of the last operand that several scales belong to.
    """
    storages = []
    for i, (x, scale, zero) in enumerate(operands):
        scales_axis = axis if i == len(operands) - 1 else None
        storages.append(find_storage(node, scale, zero, node.dtype(x), scales_axis))
    # All of them state one type for operands and result, so that without a zero point it is that of x.
    dtype = node.dtype(y[1] if node.has(y[1]) else operands[0][0])
    storages.append(find_storage(node, *y, dtype))
    known = list(filter(None, storages))
    return known if len(known) == len(storages) else None


def _constant_storages(node: OnnxNode, operands: Sequence[Operand], y: tuple[int, int]) -> list[Storage]:
    """Return how the operands and the result are stored; RefusedError if any is not known before run time."""
    storages = _storages(node, operands, y)
    if storages is None:
        _refuse_storages(node, operands, y)
    return storages


def _refuse_storages(node: OnnxNode, operands: Sequence[Operand], y: tuple[int, int]) -> NoReturn:
    """Raise RefusedError for the first scale or zero point that is not known before run time."""
    for index in (*chain.from_iterable(operand[1:] for operand in operands), *y):
        is_known = not node.has(index) or node.is_constant(index)
        node.refuse_unless(is_known, COMPUTED_STORAGE.format(index))
    raise RefusedError(UNREADABLE_STORAGE)


def _conv(node: OnnxNode) -> Sequence[Result]:
    storages = _storages(node, (X, W), (Y_SCALE, Y_ZERO), 0)
    is_constant = node.is_constant(W[0]) and (not node.has(BIAS) or node.is_constant(BIAS))
    if not storages or not is_constant:
        return qlinear_conv(node)
    x, w, y = storages
    # QLinearConv: the bias is integers in units of scale of x * scale of w, so that it is added to the sums
    # as it is.
    unit = [x.quant.scale[0] * scale for scale in w.quant.scale]
    weights = quantized_input(node, W[0], w, to_last(len(node.shape(W[0]))))
    inputs = [node.channels_last(quantized_input(node, X[0], x)), weights, *quantized_bias(node, BIAS, unit)]
    attrs = conv_attributes(node, tuple(node.attr("kernel_shape") or node.shape(W[0])[2:]))
    return node.channels_first(node.emit_quantized("Conv", inputs, y, attrs))


def _matmul(node: OnnxNode) -> Sequence[Result]:
    # QLinearMatMul: several scales of the second operand are one per column.
    storages = _storages(node, (X, W), (Y_SCALE, Y_ZERO), max(0, len(node.shape(W[0])) - 1))
    if not storages:
        return qlinear_matmul(node)
    x, w, y = storages
    return node.done_quantized("MatMul", [quantized_input(node, X[0], x), quantized_input(node, W[0], w)], y)


def _gemm(node: OnnxNode) -> Sequence[Result]:
    """Compute alpha * (A' @ B' + C) of quantized A and B (com.microsoft, QGemm); floats if y has no scale."""
    alpha = node.attr_or("alpha", 1.0)
    node.refuse_unless(alpha > 0, f"alpha is {alpha}; export the model with a positive one")
    columns_axis = 0 if node.attr("transB") else 1
    a, b, *result = _gemm_storages(node, columns_axis)
    a_tensor = quantized_input(node, X[0], a)
    if node.attr("transA"):
        a_tensor = node.emit_quantized("Transpose", [a_tensor], a, {"perm": (1, 0)}, tag="rows")
    # C has the unit of the sums, so a factor of B is one of C as well.
    b = Storage(b.dtype, Quant(tuple(alpha * s for s in b.quant.scale), b.quant.zero_point, b.quant.axis))
    inputs = [
        a_tensor,
        _gemm_columns(node, b),
        *_gemm_bias(node, [a.quant.scale[0] * s for s in b.quant.scale]),
    ]
    if result:
        return node.done_quantized("MatMul", inputs, result[0])
    return node.done("MatMul", [node.emit("Dequantize", [tensor], tag="real") for tensor in inputs])


def _gemm_storages(node: OnnxNode, columns_axis: int) -> list[Storage]:
    """Return how A, B and, if it has a scale, the result are stored."""
    storages = [
        find_storage(node, 1, 2, node.dtype(0)),
        find_storage(node, 4, 5, node.dtype(3), columns_axis),
    ]
    if node.has(GEMM_Y_SCALE):
        storages.append(find_storage(node, GEMM_Y_SCALE, GEMM_Y_ZERO, output_dtype(node, GEMM_Y_ZERO)))
    known = [storage for storage in storages if storage is not None]
    if len(known) != len(storages):
        _refuse_storages(node, (X, W), (GEMM_Y_SCALE, GEMM_Y_ZERO))
    return known


def _gemm_columns(node: OnnxNode, storage: Storage) -> str:
    """Return B of a QGemm as [K, N]."""
    if not node.attr("transB"):
        return quantized_input(node, W[0], storage)
    if node.is_constant(W[0]):
        return quantized_input(node, W[0], storage, (1, 0))
    tensor, quant = quantized_input(node, W[0], storage), storage.quant
    axis = None if quant.axis is None else 1 - quant.axis
    columns = Storage(storage.dtype, Quant(quant.scale, quant.zero_point, axis))
    return node.emit_quantized("Transpose", [tensor], columns, {"perm": (1, 0)}, tag="columns")


def _gemm_bias(node: OnnxNode, unit: Sequence[float]) -> list[str]:
    """Return C of a QGemm, integers in units of its sums, as one for each column; nothing if it is absent."""
    if not node.has(GEMM_BIAS):
        return []
    columns = node.shape(W[0])[0 if node.attr("transB") else 1]
    node.refuse_unless(
        node.is_constant(GEMM_BIAS) and prod(node.shape(GEMM_BIAS)) in (1, columns),
        "its C is no constant with one number for each column; add it by an operator of its own",
    )
    quant = Quant(tuple(np.broadcast_to(unit, columns).tolist()), (0,) * columns, 0)

    def make(numbers: Array) -> Array:
        return np.broadcast_to(numbers.reshape(-1), (columns,))

    return [node.derive_constant(GEMM_BIAS, ("columns", quant), make, quant)]


def _binary(op: str, fallback: Callable[[OnnxNode], Sequence[Result]] | None = None) -> Handler:
    """Return a handler of an operator of two quantized tensors.

    fallback: computes it where scales are computed at run time; None to refuse that.
    """

    def handle(node: OnnxNode) -> Sequence[Result]:
        storages = _storages(node, (X, W), (Y_SCALE, Y_ZERO))
        if storages:
            a, b, y = storages
            return node.done_quantized(
                op, [quantized_input(node, X[0], a), quantized_input(node, W[0], b)], y
            )
        if fallback is None:
            _refuse_storages(node, (X, W), (Y_SCALE, Y_ZERO))
        return fallback(node)

    return handle


def _unary(op: str, attrs: Callable[[OnnxNode], Mapping[str, Any]] = lambda _: {}) -> Handler:
    """Return a handler of an operator of one quantized tensor: x, scale, zero point, those of the result."""

    def handle(node: OnnxNode) -> Sequence[Result]:
        x, y = _constant_storages(node, (X,), (3, 4))
        return node.done_quantized(op, [quantized_input(node, X[0], x)], y, attrs(node))

    return handle


def _global_average(node: OnnxNode) -> Mapping[str, Any]:
    rank = len(node.shape(0))
    if node.attr("channels_last"):
        return {"axes": tuple(range(1, rank - 1))}
    return {"axes": tuple(range(2, rank))}


def _average_pool(node: OnnxNode) -> Sequence[Result]:
    # ONNX Runtime 1.32 rounds after it has added the zero point (qlinear_pool.cc), QuantizeLinear before:
    # with an odd one a tie goes the other way. Its optimizer makes this operator of an AveragePool between
    # DequantizeLinear and QuantizeLinear, so that it gives both for one file. Here both are QuantizeLinear's.
    x, y = _constant_storages(node, (X,), (3, 4))
    tensor, shape = quantized_input(node, X[0], x), node.shape(X[0])
    if node.attr("channels_last"):
        return node.done_quantized(
            "AveragePool", [tensor], y, quantized_average_attributes(node, shape[1:-1])
        )
    attrs = quantized_average_attributes(node, shape[2:])
    pooled = node.emit_quantized("AveragePool", [node.channels_last(tensor)], y, attrs)
    return node.channels_first(pooled)


def _softmax(node: OnnxNode) -> Sequence[Result]:
    x, y = _constant_storages(node, (X,), (3, 4))
    tensor, shape = quantized_input(node, X[0], x), node.shape(X[0])
    # QLinearSoftmax: `opset` says which Softmax it stands for. Before operator set 13 all axes from `axis` on
    # are normalized together.
    is_by_axis = node.attr_or("opset", SOFTMAX_BY_AXIS) >= SOFTMAX_BY_AXIS
    axis = node.axis(node.attr_or("axis", -1), len(shape))
    if is_by_axis or prod(shape[axis:]) == shape[axis]:
        return node.done_quantized("Softmax", [tensor], y, {"axis": axis})
    rows = (prod(shape[:axis]), prod(shape[axis:]))
    flat = node.emit_quantized("Reshape", [tensor], x, {"shape": rows}, tag="flat")
    result = node.emit_quantized("Softmax", [flat], y, {"axis": 1}, tag="rows")
    return node.done_quantized("Reshape", [result], y, {"shape": shape})


def _alpha(node: OnnxNode) -> Mapping[str, Any]:
    return {"alpha": node.attr_or("alpha", 0.01)}


def _concat(node: OnnxNode) -> Sequence[Result]:
    # QLinearConcat(y_scale, y_zero, x0, x0_scale, x0_zero, x1, ...): unlike the others, the result comes
    # first.
    parts: list[Operand] = [(i, i + 1, i + 2) for i in range(2, node.input_count, 3)]
    *storages, y = _constant_storages(node, parts, (0, 1))
    pairs = zip(parts, storages, strict=True)
    inputs = [quantized_input(node, part[0], storage) for part, storage in pairs]
    return node.done_quantized("Concat", inputs, y, {"axis": node.attr("axis")})


def _where(node: OnnxNode) -> Sequence[Result]:
    # QLinearWhere: the condition comes first, and is not quantized. Unlike the other operators it states all
    # zero points (quantization_defs.cc), so that an absent one is a damaged file and no 0.
    absent = [i for i in range(WHERE_INPUTS) if not node.has(i)]
    node.refuse_unless(not absent, f"its input {absent[:1]} is absent; export the model again")
    a, b, y = _constant_storages(node, ((1, 2, 3), (4, 5, 6)), (7, 8))
    choices = [quantized_input(node, 1, a), quantized_input(node, 4, b)]
    return node.done_quantized("Where", [node.input(0), *choices], y)


CONTRIB = MappingProxyType(
    {
        "QGemm": _gemm,
        "QLinearAdd": _binary("Add", qlinear_add),
        "QLinearMul": _binary("Mul"),
        "QLinearSigmoid": _unary("Sigmoid"),
        "QLinearLeakyRelu": _unary("LeakyRelu", _alpha),
        "QLinearSoftmax": _softmax,
        "QLinearAveragePool": _average_pool,
        "QLinearGlobalAveragePool": _unary("ReduceMean", _global_average),
        "QLinearConcat": _concat,
        "QLinearWhere": _where,
    }
)
HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "QLinearConv": _conv,
        "QLinearMatMul": _matmul,
        **{f"com.microsoft::{name}": handler for name, handler in CONTRIB.items()},
    }
)

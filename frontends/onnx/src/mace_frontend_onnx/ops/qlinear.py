"""QLinear operators: ONNX's and ONNX Runtime's, over tensors that store real numbers as integers.

Where a scale or zero point is computed at run time, the arithmetic is written out in real numbers instead
(see `integer`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from mace_core.importer import to_last
from mace_core.ir import Storage
from mace_frontend_onnx.importer import Held
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler
from mace_frontend_onnx.ops.conv import convolution
from mace_frontend_onnx.ops.integer import qlinear_add, qlinear_conv, qlinear_matmul
from mace_frontend_onnx.quantization import bias, output_type, real, storage

Operand = tuple[int, int, int]
"""Numbers of the inputs that hold integers, their scale and their zero point."""

X, W, Y_SCALE, Y_ZERO = (0, 1, 2), (3, 4, 5), 6, 7


def _storages(
    node: OnnxNode, operands: Sequence[Operand], y: tuple[int, int], axis: int | None = None
) -> list[Storage] | None:
    """How the operands and the result are stored; None if any is not known before run time.

    axis: of the last operand's scales.
    """
    last = len(operands) - 1
    found = [
        storage(node, s, z, node.dtype(x), axis if i == last else None)
        for i, (x, s, z) in enumerate(operands)
    ]
    found.append(storage(node, *y, output_type(node, y[1])))
    known = [f for f in found if f]
    return known if len(known) == len(found) else None


def _conv(node: OnnxNode) -> Sequence[Held]:
    how = _storages(node, (X, W), (Y_SCALE, Y_ZERO), 0)
    if not how or not node.array_is_constant(3) or (node.has(8) and not node.array_is_constant(8)):
        return qlinear_conv(node)
    x, w, y = how
    rank = len(node.shape(3))
    unit = [x.quant.scale[0] * s for s in w.quant.scale]
    inputs = [node.channels_last(real(node, 0, x)), real(node, 3, w, to_last(rank)), *bias(node, 8, unit)]
    attrs = convolution(node, tuple(node.attr("kernel_shape") or node.shape(3)[2:]))
    return node.channels_first(node.emit_stored("Conv", inputs, y, attrs))


def _matmul(node: OnnxNode) -> Sequence[Held]:
    how = _storages(node, (X, W), (Y_SCALE, Y_ZERO), max(0, len(node.shape(3)) - 1))
    if not how:
        return qlinear_matmul(node)
    return node.done_stored("MatMul", [real(node, 0, how[0]), real(node, 3, how[1])], how[2])


def _binary(op: str, fallback: Callable[[OnnxNode], Sequence[Held]] | None = None) -> Handler:
    def handle(node: OnnxNode) -> Sequence[Held]:
        how = _storages(node, (X, W), (Y_SCALE, Y_ZERO))
        if how:
            return node.done_stored(op, [real(node, 0, how[0]), real(node, 3, how[1])], how[2])
        node.refuse_unless(
            fallback is not None, "its scales are computed at run time; export the model with constants"
        )
        assert fallback is not None
        return fallback(node)

    return handle


def _unary(
    op: str, attrs: Callable[[OnnxNode], Mapping[str, Any]] = lambda _: {}, y: tuple[int, int] = (3, 4)
) -> Handler:
    def handle(node: OnnxNode) -> Sequence[Held]:
        how = _storages(node, (X,), y)
        if how is None:
            node.refuse_unless(False, "its scales are computed at run time; export the model with constants")
        assert how is not None
        return node.done_stored(op, [real(node, 0, how[0])], how[1], attrs(node))

    return handle


def _global_average(node: OnnxNode) -> Mapping[str, Any]:
    rank, last = len(node.shape(0)), bool(node.attr("channels_last"))
    return {"axes": tuple(range(1, rank - 1)) if last else tuple(range(2, rank))}


def _softmax_axis(node: OnnxNode) -> Mapping[str, Any]:
    axis = node.attr("axis")
    return {"axis": -1 if axis is None else axis}


def _alpha(node: OnnxNode) -> Mapping[str, Any]:
    alpha = node.attr("alpha")
    return {"alpha": 0.01 if alpha is None else alpha}


def _concat(node: OnnxNode) -> Sequence[Held]:
    """QLinearConcat(y_scale, y_zero, x0, x0_scale, x0_zero, x1, ...)."""
    parts: list[Operand] = [(i, i + 1, i + 2) for i in range(2, node.count, 3)]
    how = _storages(node, parts, (0, 1))
    node.refuse_unless(
        how is not None, "its scales are computed at run time; export the model with constants"
    )
    assert how is not None
    inputs = [real(node, part[0], stored) for part, stored in zip(parts, how[:-1], strict=True)]
    return node.done_stored("Concat", inputs, how[-1], {"axis": node.attr("axis")})


CONTRIB = MappingProxyType(
    {
        "QLinearAdd": _binary("Add", qlinear_add),
        "QLinearMul": _binary("Mul"),
        "QLinearSigmoid": _unary("Sigmoid"),
        "QLinearLeakyRelu": _unary("LeakyRelu", _alpha),
        "QLinearSoftmax": _unary("Softmax", _softmax_axis),
        "QLinearGlobalAveragePool": _unary("ReduceMean", _global_average),
        "QLinearConcat": _concat,
    }
)
HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "QLinearConv": _conv,
        "QLinearMatMul": _matmul,
        **{f"com.microsoft::{name}": handler for name, handler in CONTRIB.items()},
    }
)

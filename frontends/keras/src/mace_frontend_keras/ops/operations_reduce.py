"""Operations of keras.ops that compute over axes: reductions, running sums, products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.ir import DType
from mace_frontend_keras.node import KerasNode
from mace_frontend_keras.ops import Handler
from mace_frontend_keras.ops.dense import einsum
from mace_frontend_keras.ops.norm import done_unit_length
from mace_frontend_keras.ops.operations import first_operand, operand_pair

REDUCTIONS: Mapping[str, str] = MappingProxyType(
    {
        "Sum": "ReduceSum",
        "Mean": "ReduceMean",
        "Max": "ReduceMax",
        "Min": "ReduceMin",
        "Prod": "ReduceProd",
        "Amax": "ReduceMax",
        "Amin": "ReduceMin",
        "Logsumexp": "ReduceLogSumExp",
    }
)

SMALLEST_LENGTH = 1e-7
"""The default of the smallest divisor of the operation Normalize (keras.backend.epsilon)."""


def axes_of(node: KerasNode, x: str) -> dict[str, Any]:
    """Return the axes of a reduction, and whether they stay with a size of 1."""
    axes = node.axes(node.setting("axis"), len(node.shape(x)))
    return {"axes": axes, "keepdims": bool(node.setting("keepdims", default=False))}


def _reduction(op: str) -> Handler:
    def handle(node: KerasNode) -> Sequence[str]:
        x = first_operand(node)
        # Sums and means of integers and booleans are computed as floats; a maximum of integers stays exact.
        if op not in ("ReduceMax", "ReduceMin") or node.builder.tensors[x].dtype is DType.BOOL:
            x = node.to_float(x)
        attrs = axes_of(node, x)
        return node.done(op, [x], attrs) if attrs["axes"] else node.done("Identity", [x])

    return handle


def _variance(node: KerasNode) -> Sequence[str]:
    is_deviation = node.layer.kind.endswith(("Std", "reduce_std"))
    x = node.to_float(first_operand(node))
    attrs = axes_of(node, x)
    # The mean is subtracted first: the difference of two means of squares would lose all digits of small
    # variances.
    mean = node.emit("ReduceMean", [x], {"axes": attrs["axes"], "keepdims": True})
    centered = node.emit("Sub", [x, mean])
    squares = node.emit("Mul", [centered, centered])
    if is_deviation:
        return node.done("Sqrt", [node.emit("ReduceMean", [squares], attrs)])
    return node.done("ReduceMean", [squares], attrs)


def _extreme(op: str) -> Handler:
    def handle(node: KerasNode) -> Sequence[str]:
        x, axis = first_operand(node), node.setting("axis")
        # Without an axis the elements are numbered as one row, as numpy does.
        if axis is None:
            x = _flat(node, x)
        axis = node.axis(0 if axis is None else axis, len(node.shape(x)))
        attrs = {"axis": axis, "keepdims": bool(node.setting("keepdims", default=False))}
        place = node.emit(op, [x], attrs)
        # Keras numbers in 32 bits, the IR's op in 64.
        return node.done("Cast", [place], {"to": "i32"})

    return handle


def _flat(node: KerasNode, x: str) -> str:
    return node.emit("Reshape", [x], {"shape": (int(np.prod(node.shape(x), dtype=np.int64)),)}, tag="flat")


def _running(op: str) -> Handler:
    def handle(node: KerasNode) -> Sequence[str]:
        x, axis = first_operand(node), node.setting("axis")
        x = _flat(node, x) if axis is None else x
        return node.done(op, [x], {"axis": node.axis(0 if axis is None else axis, len(node.shape(x)))})

    return handle


def _matmul(node: KerasNode) -> Sequence[str]:
    operands = [node.to_float(tensor) for tensor in operand_pair(node)]
    # Settings of tf.matmul; keras.ops.matmul has none.
    for side, key in enumerate(("transpose_a", "transpose_b")):
        # Of real numbers the adjoint is the transpose.
        if node.flag(key) or node.flag(key.replace("transpose", "adjoint")):
            rank = len(node.shape(operands[side]))
            perm = (*range(rank - 2), rank - 1, rank - 2)
            operands[side] = node.emit("Transpose", [operands[side]], {"perm": perm}, tag="turned")
    return node.done("MatMul", operands)


def _dot(node: KerasNode) -> Sequence[str]:
    a, b = (node.to_float(t) for t in operand_pair(node))
    node.refuse_unless(len(node.shape(b)) <= 2, "a dot product of tensors of higher rank; use matmul")
    return node.done("MatMul", [a, b])


def _einsum(node: KerasNode) -> Sequence[str]:
    # keras.ops names the equation as a setting, tf.einsum as its first argument.
    operands = [node.to_float(node.operand(v)) for v in node.call.args if not isinstance(v, str)]
    setting = node.setting("subscripts", "equation", default="")
    equation = next((v for v in node.call.args if isinstance(v, str)), setting)
    node.refuse_unless(
        len(operands) == 2, f"einsum of {len(operands)} tensors; write it with matmul and transpose"
    )
    return node.done_all([einsum(node, str(equation), *operands)])


def _normalize(node: KerasNode) -> Sequence[str]:
    x = node.to_float(first_operand(node))
    node.require_supported(node.setting("order", default=2) == 2, "it has a norm of another order than 2")
    axes = node.axes(node.setting("axis", default=-1), len(node.shape(x)))
    return done_unit_length(node, x, axes, float(node.setting("epsilon", default=SMALLEST_LENGTH)))


REDUCING: Mapping[str, Handler] = MappingProxyType(
    {
        **{name: _reduction(op) for name, op in REDUCTIONS.items()},
        **dict.fromkeys(("Var", "Std"), _variance),
        "Argmax": _extreme("ArgMax"),
        "Argmin": _extreme("ArgMin"),
        "Cumsum": _running("CumSum"),
        "Cumprod": _running("CumProd"),
        "Matmul": _matmul,
        "Dot": _dot,
        "Einsum": _einsum,
        "Normalize": _normalize,
    }
)
HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {f"ops.{name}": handler for name, handler in REDUCING.items()}
)

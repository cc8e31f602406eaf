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
from mace_frontend_keras.ops.norm import unit
from mace_frontend_keras.ops.operations import first, pair

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


def axes_of(node: KerasNode, x: str) -> dict[str, Any]:
    """Axes of a reduction, and whether they stay."""
    axes = node.axes(node.setting("axis"), len(node.shape(x)))
    return {"axes": axes, "keepdims": bool(node.setting("keepdims", default=False))}


def _reduction(op: str) -> Handler:
    def handle(node: KerasNode) -> Sequence[str]:
        x = first(node)
        if op not in ("ReduceMax", "ReduceMin") or node.builder.tensors[x].dtype is DType.BOOL:
            x = node.to_float(x)
        how = axes_of(node, x)
        return node.done(op, [x], how) if how["axes"] else node.done("Identity", [x])

    return handle


def _variance(node: KerasNode) -> Sequence[str]:
    root = node.layer.kind.endswith("Std") or node.layer.kind.endswith("reduce_std")
    x = node.to_float(first(node))
    how = axes_of(node, x)
    centred = node.emit("Sub", [x, node.emit("ReduceMean", [x], {"axes": how["axes"], "keepdims": True})])
    squares = node.emit("Mul", [centred, centred])
    return (
        node.done("Sqrt", [node.emit("ReduceMean", [squares], how)])
        if root
        else node.done("ReduceMean", [squares], how)
    )


def _extreme(op: str) -> Handler:
    def handle(node: KerasNode) -> Sequence[str]:
        x, axis = first(node), node.setting("axis")
        if axis is None:
            x = _flat(node, x)
        axis = node.axis(0 if axis is None else axis, len(node.shape(x)))
        place = node.emit(op, [x], {"axis": axis, "keepdims": bool(node.setting("keepdims", default=False))})
        return node.done("Cast", [place], {"to": "i32"})

    return handle


def _flat(node: KerasNode, x: str) -> str:
    return node.emit("Reshape", [x], {"shape": (int(np.prod(node.shape(x), dtype=np.int64)),)}, tag="flat")


def _running(op: str) -> Handler:
    def handle(node: KerasNode) -> Sequence[str]:
        x, axis = first(node), node.setting("axis")
        x = _flat(node, x) if axis is None else x
        return node.done(op, [x], {"axis": node.axis(0 if axis is None else axis, len(node.shape(x)))})

    return handle


def _matmul(node: KerasNode) -> Sequence[str]:
    a, b = (node.to_float(t) for t in pair(node))
    for key, side in (("transpose_a", 0), ("transpose_b", 1)):
        if node.flag(key):
            turned = (a, b)[side]
            rank = len(node.shape(turned))
            turned = node.emit(
                "Transpose", [turned], {"perm": (*range(rank - 2), rank - 1, rank - 2)}, tag="turned"
            )
            a, b = (turned, b) if side == 0 else (a, turned)
    return node.done("MatMul", [a, b])


def _dot(node: KerasNode) -> Sequence[str]:
    a, b = (node.to_float(t) for t in pair(node))
    node.refuse_unless(len(node.shape(b)) <= 2, "a dot product of tensors of higher rank; use matmul")
    return node.done("MatMul", [a, b])


def _einsum(node: KerasNode) -> Sequence[str]:
    operands = [node.to_float(node.operand(v)) for v in node.call.args if not isinstance(v, str)]
    written = next(
        (v for v in node.call.args if isinstance(v, str)), node.setting("subscripts", "equation", default="")
    )
    node.refuse_unless(
        len(operands) == 2, f"einsum of {len(operands)} tensors; write it with matmul and transpose"
    )
    return node.named([einsum(node, str(written), *operands)])


def _normalize(node: KerasNode) -> Sequence[str]:
    x = node.to_float(first(node))
    node.refuse_unless(node.setting("order", default=2) == 2, "a norm of another order than 2")
    return unit(
        node,
        x,
        node.axes(node.setting("axis", default=-1), len(node.shape(x))),
        float(node.setting("epsilon", default=1e-12)),
    )


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

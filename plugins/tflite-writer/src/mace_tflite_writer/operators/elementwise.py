"""Arithmetic and activations, element by element."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import tflite

from mace_core.lowering import Refused
from mace_core.ops.unary_attrs import ClipAttributes
from mace_tflite_writer.operator import BuiltinOperator, NodeView, OperatorOptions, need, need_same_storage
from mace_tflite_writer.storage import need_one_scale

if TYPE_CHECKING:
    from mace_tflite_writer.operators import Statement

MAX_BROADCAST_RANK = 4
"""Axes of operands of different shapes that all kernels of the format take."""

NONE = tflite.ActivationFunctionType.NONE


def need_operands_alike(view: NodeView) -> None:
    """Raise Refused unless all inputs and outputs have one type, all of them quantized or none."""
    tensors = [*view.inputs(), *view.graph.outputs_of(view.node)]
    first = tensors[0]
    for tensor in tensors:
        need_one_scale(tensor)
    need(
        all(t.dtype is first.dtype and bool(t.quant) == bool(first.quant) for t in tensors),
        f"its tensors are {', '.join(map(str, tensors))}; the format's operator has one type for all",
        "quantization",
        "quantize all of its tensors to one type (rewrite `requantize_inputs`)",
    )


def _arithmetic(view: NodeView, code: str, table: str) -> BuiltinOperator:
    need_operands_alike(view)
    _check_broadcast(view)
    fields = {"FusedActivationFunction": NONE}
    if code in ("ADD", "SUB"):
        # The schema's default is a scheme of old whose 16-bit scales are powers of two.
        fields["PotScaleInt16"] = False
    return view.operator(code, options=OperatorOptions(table, fields))


def _check_broadcast(view: NodeView) -> None:
    shapes = {t.shape for t in view.inputs()}
    rank = max(map(len, shapes))
    need(
        len(shapes) == 1 or rank <= MAX_BROADCAST_RANK,
        f"its operands of different shapes have {rank} axes; the format broadcasts {MAX_BROADCAST_RANK}",
        "shape",
        "reshape them to fewer axes",
    )


def _clip(view: NodeView) -> BuiltinOperator:
    attrs = view.attributes(ClipAttributes)
    need_operands_alike(view)
    code = _CLAMPS.get((float(attrs.min), float(attrs.max)))
    if code is None:
        raise Refused(
            f"the format has no activation that clamps to {attrs.min:g} ... {attrs.max:g}",
            code="attribute",
            remedy="clamp by Maximum and Minimum (rewrite `clips_as_limits`)",
        )
    return view.operator(code)


_CLAMPS = {
    (0.0, math.inf): "RELU",
    (0.0, 6.0): "RELU6",
    (-1.0, 1.0): "RELU_N1_TO_1",
    (0.0, 1.0): "RELU_0_TO_1",
}


def _relu(view: NodeView) -> BuiltinOperator:
    need_operands_alike(view)
    return view.operator("RELU")


def _prelu(view: NodeView) -> BuiltinOperator:
    need(view.y.shape == view.x.shape, "its slopes broadcast its input, which the format's operator does not")
    need_operands_alike(view)
    _check_broadcast(view)
    return view.operator("PRELU")


def _limit(view: NodeView, code: str) -> BuiltinOperator:
    # The kernels compare stored integers.
    need_same_storage(view)
    need_operands_alike(view)
    _check_broadcast(view)
    return view.operator(code, options=OperatorOptions("MaximumMinimumOptions"))


def _pow(view: NodeView) -> BuiltinOperator:
    need_operands_alike(view)
    _check_broadcast(view)
    exponent = view.constant(1)
    # kernels/pow.cc of LiteRT fails when it runs; the IR gives powers of integers without their fraction.
    need(
        exponent is None or exponent.dtype.kind == "f" or not np.any(exponent < 0),
        "the format's operator takes no negative powers of integers",
        "attribute",
        "let the model cast to f32 before this node",
    )
    return view.operator("POW", options=OperatorOptions("PowOptions"))


STATEMENTS: Mapping[str, Statement] = MappingProxyType(
    {
        "Add": lambda view: _arithmetic(view, "ADD", "AddOptions"),
        "Sub": lambda view: _arithmetic(view, "SUB", "SubOptions"),
        "Mul": lambda view: _arithmetic(view, "MUL", "MulOptions"),
        "Div": lambda view: _arithmetic(view, "DIV", "DivOptions"),
        "Maximum": lambda view: _limit(view, "MAXIMUM"),
        "Minimum": lambda view: _limit(view, "MINIMUM"),
        "Pow": _pow,
        "PRelu": _prelu,
        "Relu": _relu,
        "Clip": _clip,
    }
)

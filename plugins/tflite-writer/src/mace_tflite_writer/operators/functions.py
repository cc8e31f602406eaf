"""Functions of one operand, element by element."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from mace_core.ir import DType
from mace_core.ops.unary_attrs import AlphaAttributes, GeluAttributes, LeakyReluAttributes
from mace_tflite_writer.operator import BuiltinOperator, NodeView, OperatorOptions, need
from mace_tflite_writer.operators.axes import need_storage
from mace_tflite_writer.operators.elementwise import need_operands_alike

if TYPE_CHECKING:
    from mace_tflite_writer.operators import Statement

CODES: Mapping[str, str] = MappingProxyType(
    {
        "Abs": "ABS",
        "Ceil": "CEIL",
        "Cos": "COS",
        "Exp": "EXP",
        "Floor": "FLOOR",
        "Log": "LOG",
        "Neg": "NEG",
        "Round": "ROUND",
        "Rsqrt": "RSQRT",
        "Sign": "SIGN",
        "Sin": "SIN",
        "Sqrt": "SQRT",
    }
)

TANH_STORAGE: Mapping[DType, tuple[float, int]] = MappingProxyType(
    {DType.I8: (1 / 128, 0), DType.U8: (1 / 128, 128), DType.I16: (1 / 32768, 0)}
)
SIGMOID_STORAGE: Mapping[DType, tuple[float, int]] = MappingProxyType(
    {DType.I8: (1 / 256, -128), DType.U8: (1 / 256, 0), DType.I16: (1 / 32768, 0)}
)
"""Scales and zero points of results, which the kernels assume (kernels/activations.cc)."""


def _function(view: NodeView, code: str) -> BuiltinOperator:
    need_operands_alike(view)
    return view.operator(code)


def _sigmoidal(view: NodeView, code: str, storages: Mapping[DType, tuple[float, int]]) -> BuiltinOperator:
    need_operands_alike(view)
    need_storage(view, storages)
    return view.operator(code)


def _elu(view: NodeView) -> BuiltinOperator:
    alpha = view.attributes(AlphaAttributes).alpha
    need(alpha == 1.0, f"its alpha is {alpha:g}; the format's ELU has 1")
    return _function(view, "ELU")


def _leaky_relu(view: NodeView) -> BuiltinOperator:
    need_operands_alike(view)
    fields = {"Alpha": view.attributes(LeakyReluAttributes).alpha}
    return view.operator("LEAKY_RELU", options=OperatorOptions("LeakyReluOptions", fields))


def _gelu(view: NodeView) -> BuiltinOperator:
    need_operands_alike(view)
    fields = {"Approximate": view.attributes(GeluAttributes).approximate == "tanh"}
    return view.operator("GELU", options=OperatorOptions("GeluOptions", fields))


def _hard_swish(view: NodeView) -> BuiltinOperator:
    need_operands_alike(view)
    if view.x.quant is not None and view.y.quant is not None:
        # The kernel shifts by this ratio to the right only (HardSwishPrepare in kernels/activations.cc).
        ratio = view.x.quant.scale[0] / 128 / view.y.quant.scale[0]
        need(
            # A little less than 1, because the kernel computes the ratio in single precision.
            ratio < 1 - 2**-20,
            "the scale of its result is below a 128th of that of its input, which the kernel does not take",
            "quantization",
            "quantize its result with a larger scale",
        )
    return view.operator("HARD_SWISH")


STATEMENTS: Mapping[str, Statement] = MappingProxyType(
    {
        **{op: partial(_function, code=code) for op, code in CODES.items()},
        "Tanh": lambda view: _sigmoidal(view, "TANH", TANH_STORAGE),
        "Sigmoid": lambda view: _sigmoidal(view, "LOGISTIC", SIGMOID_STORAGE),
        "Elu": _elu,
        "LeakyRelu": _leaky_relu,
        "Gelu": _gelu,
        "HardSwish": _hard_swish,
    }
)

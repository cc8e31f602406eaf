"""Element-wise ops of one input."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mace_core.attributes import values_of
from mace_core.emit.text import Code
from mace_core.ir import DType, Node
from mace_core.lowering import Lower, Lowering
from mace_core.ops.cast import CastAttributes
from mace_core.ops.unary_attrs import ClipAttributes, GeluAttributes
from mace_target_opencl.lower.maps import Map, enqueue_map
from mace_target_opencl.steps import ElementStep
from mace_target_opencl.types import (
    C_TYPES,
    RAW_TYPES,
    c_type,
    integer_literal,
    literal,
    refuse_type,
    storage_type,
)
from mace_target_opencl.views import View

FLOAT: Mapping[str, str] = {
    **{
        op: f"{op.lower()}(x)"
        for op in ("Exp", "Log", "Sqrt", "Ceil", "Floor", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan")
    },
    **{op: f"{op.lower()}(x)" for op in ("Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Tanh", "Erf")},
    "Abs": "fabs(x)",
    "Neg": "-x",
    # Halves become the even integer, as ONNX defines Round.
    "Round": "rint(x)",
    "Sign": "x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x",
    "Rsqrt": "1.0f / sqrt(x)",
    "Reciprocal": "mace_divide(1.0f, x)",
    "Sigmoid": "1.0f / (1.0f + exp(-x))",
    # Not fmax, which would make a number of NaN.
    "Relu": "x < 0.0f ? 0.0f : x",
    "HardSwish": "x * clamp(x * (1.0f / 6.0f) + 0.5f, 0.0f, 1.0f)",
    # log1p(exp(-|x|)) neither overflows nor loses small results, as log(1 + exp(x)) would.
    "Mish": "x * tanh(fmax(x, 0.0f) + log1p(exp(-fabs(x))))",
    "Softplus": "fmax(x, 0.0f) + log1p(exp(-fabs(x)))",
    "Softsign": "x / (1.0f + fabs(x))",
    "Elu": "x > 0.0f ? x : alpha * expm1(x)",
    "Celu": "x > 0.0f ? x : alpha * expm1(x / alpha)",
    "Selu": "gamma * (x > 0.0f ? x : alpha * expm1(x))",
    "LeakyRelu": "x < 0.0f ? x * alpha : x",
    "ThresholdedRelu": "x > alpha ? x : 0.0f",
    "HardSigmoid": "x * alpha + beta > 1.0f ? 1.0f : x * alpha + beta < 0.0f ? 0.0f : x * alpha + beta",
    "Swish": "x / (1.0f + exp(-x * alpha))",
    "Shrink": "x < -lambd ? x + bias : x > lambd ? x - bias : 0.0f",
    "GeluNone": "0.5f * x * (1.0f + erf(x * 0.70710678118654752f))",
    "GeluTanh": "0.5f * x * (1.0f + tanh((x + 0.044715f * x * x * x) * 0.79788456080286536f))",
    "IsNaN": "x != x",
    "IsInf": "(negative && x == -INFINITY) || (positive && x == INFINITY)",
}
"""The result from one float x, and the attributes by name."""

ROUNDING = ("Round", "Floor", "Ceil", "Sign")
"""Ops whose results jump where a float changes by one unit in the last place."""

INTEGER: Mapping[str, str] = {
    # Computed without sign, where overflow wraps: the least integer is its own opposite.
    "Abs": "x > 0 ? (WRAP)x : (WRAP)0 - (WRAP)x",
    "Neg": "(WRAP)0 - (WRAP)x",
    "Sign": "x > 0 ? 1 : x == 0 ? 0 : -1",
    "Relu": "x > 0 ? x : 0",
    "BitwiseNot": "~x",
}
"""The result from one integer x."""

BOOL: Mapping[str, str] = {"Not": "!x", "BitwiseNot": "!x"}
"""True is 1 in every tensor, so its complement is not ~1."""


def wrap_type(dtype: DType) -> str:
    """Return the unsigned type in which integers of a type are computed, so that overflow wraps."""
    return "ulong" if dtype.size > 4 else "uint"


def unary(node: Node, lowering: Lowering) -> None:
    """Any op of the tables above."""
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    form = node.op.name
    if isinstance(node.attrs, GeluAttributes):
        form += node.attrs.approximate.capitalize()
    table = {DType.BOOL: BOOL, DType.F32: FLOAT}.get(x.dtype, INTEGER)
    expression = "" if x.dtype in RAW_TYPES else table.get(form, "").replace("WRAP", wrap_type(x.dtype))
    if not expression:
        raise refuse_type(node.op.name, x.dtype)
    for name, value in values_of(node.attrs).items():
        if isinstance(value, int | float):
            expression = re.sub(rf"\b{name}\b", literal(float(value)), expression)
    enqueue_unary(lowering, node, Code(expression), c_type(y), rounds=form in ROUNDING)


def enqueue_unary(
    lowering: Lowering, node: Node, expression: Code, kind: Code, *, rounds: bool = False
) -> None:
    """Append the map of one operand that an expression of x computes.

    kind: C type of the result.  rounds: whether the result jumps where x changes by one unit.
    """
    x = lowering.tensors[node.inputs[0]]
    identity = View.of([(x.elements, 1)])
    step = ElementStep(expression, (None,), kind)
    enqueue_map(lowering, node, Map(x.name, identity, (step,), rounds=rounds))


def clip(node: Node, lowering: Lowering) -> None:
    """Bound the elements; where min is above max, the result is max."""
    x = lowering.tensors[node.inputs[0]]
    attrs = node.attributes(ClipAttributes)
    kind = c_type(x)
    if x.dtype.is_float:
        bounds = literal(float(attrs.min)), literal(float(attrs.max))
    else:
        low, high = attrs.integer_bounds(x.dtype)
        bounds = integer_literal(low, x.dtype), integer_literal(high, x.dtype)
    low_text, high_text = bounds
    raised = f"(x < {low_text} ? {low_text} : x)"
    enqueue_unary(lowering, node, Code(f"{raised} > {high_text} ? {high_text} : {raised}"), kind)


def cast(node: Node, lowering: Lowering) -> None:
    """Convert: floats saturate as integers, wide integers keep their low bits, all but 0 is true."""
    x, dtype = lowering.tensors[node.inputs[0]], node.attributes(CastAttributes).dtype
    if x.dtype is dtype:
        enqueue_unary(lowering, node, Code("x"), storage_type(x))
        return
    # Loaded and stored by vload_half and vstore_half, which need no cl_khr_fp16.
    half = Code("half")
    if {x.dtype, dtype} == {DType.F16, DType.F32}:
        name = "x" if x.dtype is DType.F16 else "y"
        identity = View.of([(x.elements, 1)])
        enqueue_map(lowering, node, Map(x.name, identity, types={name: half}))
        return
    for kind in (x.dtype, dtype):
        if kind not in C_TYPES:
            raise refuse_type(node.op.name, kind)
    result = C_TYPES[dtype]
    is_saturating = x.dtype.is_float and not dtype.is_float
    expression = f"convert_{result}_sat_rtz(x)" if is_saturating else f"({result})x"
    if dtype is DType.BOOL:
        expression = "x != 0"
    enqueue_unary(lowering, node, Code(expression), result, rounds=is_saturating)


OPS = {*FLOAT, *INTEGER, *BOOL, "Gelu"} - {"GeluNone", "GeluTanh"}
LOWERINGS: Mapping[str, Lower] = {**dict.fromkeys(sorted(OPS), unary), "Clip": clip, "Cast": cast}

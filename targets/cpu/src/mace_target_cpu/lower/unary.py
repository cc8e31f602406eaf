"""Element-wise ops of one input."""

from __future__ import annotations

from collections.abc import Mapping

from mace_core.attributes import values_of
from mace_core.emit.text import CIdentifier, Code
from mace_core.ir import DType, Node
from mace_core.lowering import Lower, Lowering
from mace_core.ops.unary_attrs import GeluAttributes
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.types import c_type, refuse_type, wrap_type

MATH = KERNELS / "math.h.in"

VECTOR: Mapping[str, str] = {
    "Abs": "vf_abs(x)",
    "Neg": "-x",
    "Sqrt": "vf_sqrt(x)",
    "Rsqrt": "1.0f / vf_sqrt(x)",
    "Reciprocal": "1.0f / x",
    "Round": "vf_round(x)",
    "Exp": "vf_exp(x)",
    "Log": "vf_log(x)",
    "Tanh": "vf_tanh(x)",
    "Sigmoid": "vf_sigmoid(x)",
    "Erf": "vf_erf(x)",
    "Relu": "vf_select(x < 0.0f, vf_set(0.0f), x)",
    "HardSwish": "x * vf_min(vf_set(1.0f), vf_max(vf_set(0.0f), x * (1.0f / 6.0f) + 0.5f))",
    "Mish": "vf_mish(x)",
    "Softsign": "x / (1.0f + vf_abs(x))",
    "Softplus": "vf_softplus(x)",
    "LeakyRelu": "vf_select(x < 0.0f, x * alpha, x)",
    "ThresholdedRelu": "vf_select(x > alpha, x, vf_set(0.0f))",
    "HardSigmoid": "vf_min(vf_set(1.0f), vf_max(vf_set(0.0f), x * alpha + beta))",
    "Swish": "x * vf_sigmoid(x * alpha)",
    "Shrink": "vf_select(x < -lambd, x + bias, vf_select(x > lambd, x - bias, vf_set(0.0f)))",
    "Clip": "vf_min(vf_set(max), vf_max(vf_set(min), x))",
    "GeluNone": "x * 0.5f * (1.0f + vf_erf(x * 0.70710678118654752f))",
    "GeluTanh": "x * 0.5f * (1.0f + vf_tanh((x + x * x * x * 0.044715f) * 0.79788456080286536f))",
}
"""The result from a vector x of floats and the attributes by name."""

SCALAR: Mapping[str, str] = {
    "Ceil": "ceilf(x)",
    "Floor": "floorf(x)",
    "Sign": "x > 0 ? 1 : x < 0 ? -1 : x",
    "Sin": "sinf(x)",
    "Cos": "cosf(x)",
    "Tan": "tanf(x)",
    "Asin": "asinf(x)",
    "Acos": "acosf(x)",
    "Atan": "atanf(x)",
    "Sinh": "sinhf(x)",
    "Cosh": "coshf(x)",
    "Asinh": "asinhf(x)",
    "Acosh": "acoshf(x)",
    "Atanh": "atanhf(x)",
    "Elu": "x > 0 ? x : alpha * expm1f(x)",
    "Celu": "x > 0 ? x : alpha * expm1f(x / alpha)",
    "Selu": "gamma * (x > 0 ? x : alpha * expm1f(x))",
    "IsNaN": "x != x",
    "IsInf": "(negative && x == -INFINITY) || (positive && x == INFINITY)",
}
"""The result from one float x."""

DOUBLE: Mapping[str, str] = {
    **{
        op: f"{op.lower()}(x)"
        for op in ("Sqrt", "Exp", "Log", "Tanh", "Erf", "Ceil", "Floor", "Sin", "Cos", "Tan")
    },
    **{op: f"{op.lower()}(x)" for op in ("Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh")},
    **{op: SCALAR[op] for op in ("Sign", "IsNaN", "IsInf")},
    "Abs": "fabs(x)",
    "Neg": "-x",
    "Rsqrt": "1 / sqrt(x)",
    "Reciprocal": "1 / x",
    "Round": "rint(x)",
    "Sigmoid": "1 / (1 + exp(-x))",
    "Relu": "x < 0 ? 0 : x",
    "HardSwish": "x * (x > 3 ? 1 : x < -3 ? 0 : x / 6 + 0.5)",
    "Mish": "x * tanh(fmax(x, 0) + log1p(exp(-fabs(x))))",
    "Softsign": "x / (1 + fabs(x))",
    "Softplus": "fmax(x, 0) + log1p(exp(-fabs(x)))",
    "LeakyRelu": "x < 0 ? x * alpha : x",
    "ThresholdedRelu": "x > alpha ? x : 0",
    "HardSigmoid": "x * alpha + beta > 1 ? 1 : x * alpha + beta < 0 ? 0 : x * alpha + beta",
    "Swish": "x / (1 + exp(-x * alpha))",
    "Shrink": "x < -lambd ? x + bias : x > lambd ? x - bias : 0",
    "Clip": "x < min && min < max ? min : x > max || x < min ? max : x",
    "GeluNone": "x * 0.5 * (1 + erf(x * 0.70710678118654752440))",
    "GeluTanh": "x * 0.5 * (1 + tanh((x + 0.044715 * x * x * x) * 0.79788456080286535588))",
    "Elu": "x > 0 ? x : alpha * expm1(x)",
    "Celu": "x > 0 ? x : alpha * expm1(x / alpha)",
    "Selu": "gamma * (x > 0 ? x : alpha * expm1(x))",
}
"""The result from one double x, by the C library: plain, for models in double precision are rare."""

INTEGER: Mapping[str, str] = {
    "Abs": "x > 0 ? (WRAP)x : (WRAP)0 - (WRAP)x",
    "Neg": "(WRAP)0 - (WRAP)x",
    "Sign": "x > 0 ? 1 : 0 - (x != 0)",
    "Relu": "x > 0 ? x : 0",
    "BitwiseNot": "~x",
}
"""The result from one integer x. WRAP: see `wrap_type`; the least integer is its own opposite."""


def _scalars(dtype: DType) -> Mapping[str, str]:
    if dtype is DType.BOOL:  # true is 1 in every tensor, so its complement is not ~1
        return {"Not": "!x", "BitwiseNot": "!x"}
    if not dtype.is_float:
        return INTEGER
    return {DType.F32: SCALAR, DType.F64: DOUBLE}.get(dtype, {})


def read_numbers(node: Node) -> dict[str, float]:
    """Return the attributes that become fields of the kernel's arguments, under their own names."""
    values = values_of(node.attrs)
    # Words have no place there: an op that has one chooses its expression by it, as Gelu does below.
    return {name: float(value) for name, value in values.items() if isinstance(value, int | float)}


def unary(node: Node, lowering: Lowering) -> None:
    """Lower any op of the tables above."""
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    form = node.op.name
    if isinstance(node.attrs, GeluAttributes):
        form += node.attrs.approximate.capitalize()
    # f32 has vector kernels; other types are rare and take the scalar expression.
    vector = VECTOR.get(form, "") if x.dtype is DType.F32 else ""
    scalar = _scalars(x.dtype).get(form, "").replace("WRAP", wrap_type(x.dtype))
    if not vector and not scalar:
        raise refuse_type(node.op.name, x.dtype)
    attrs = read_numbers(node)
    wide = x.dtype is DType.F64
    params = {
        "ctype": c_type(x),
        "result": c_type(y),
        "vector": Code(vector),
        "scalar": Code(scalar),
        "attrs": [*map(CIdentifier, attrs)],
        "attr_type": Code("double" if wide else "float"),
    }
    fields = (("n", "i64"), *((k, "f64" if wide else "f32") for k in attrs))
    kernel = Kernel(f"{form.lower()}_{x.dtype.value}", KERNELS / "unary.c.in", fields, params, (MATH,))
    lowering.call(
        node, Call(kernel, {"n": x.elements, **attrs}, node.inputs, node.outputs, inplace=x.dtype is y.dtype)
    )


OPS = {*VECTOR, *SCALAR, *INTEGER, "Gelu", "Not"} - {"GeluNone", "GeluTanh"}
LOWERINGS: Mapping[str, Lower] = dict.fromkeys(sorted(OPS), unary)

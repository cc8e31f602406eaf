"""Element-wise ops of one input."""

from __future__ import annotations

from collections.abc import Mapping

from mace_core.emit.text import CIdentifier, Code
from mace_core.ir import DType, Node
from mace_core.kernel_target import Lower
from mace_core.program import Call, Kernel, Lowering, Refused
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.types import c_type

MATH = KERNELS / "math.h.in"

VECTOR: Mapping[str, str] = {
    "Abs": "vf_abs(x)",
    "Neg": "-x",
    "Sqrt": "vf_sqrt(x)",
    "Rsqrt": "1.0f / vf_sqrt(x)",
    "Reciprocal": "1.0f / x",
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
    "Round": "rintf(x)",
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

INTEGER: Mapping[str, str] = {
    "Abs": "x > 0 ? x : 0 - x",
    "Neg": "0 - x",
    "Sign": "x > 0 ? 1 : 0 - (x != 0)",
    "Relu": "x > 0 ? x : 0",
    "Not": "!x",
    "BitwiseNot": "~x",
}
"""The result from one integer x; bool counts as one."""


def unary(node: Node, to: Lowering) -> None:
    """Any op of the tables above."""
    x, y = to.tensors[node.inputs[0]], to.tensors[node.outputs[0]]
    form = node.op.name + (str(node.attrs["approximate"]).capitalize() if node.op.name == "Gelu" else "")
    floats = x.dtype is DType.F32
    vector = VECTOR.get(form, "") if floats else ""
    scalar = (SCALAR if floats else INTEGER).get(form, "")
    if (not vector and not scalar) or (x.dtype.is_float and not floats):
        raise Refused(f"no kernel computes {node.op.name} of {x.dtype.value}")
    attrs = {k: float(v) for k, v in node.attrs.items() if not isinstance(v, str | tuple)}
    params = {"ctype": c_type(x), "result": c_type(y), "vector": Code(vector), "scalar": Code(scalar), "attrs": [*map(CIdentifier, attrs)]}
    fields = (("n", "i64"), *((k, "f32") for k in attrs))
    kernel = Kernel(f"{form.lower()}_{x.dtype.value}", KERNELS / "unary.c.in", fields, params, (MATH,))
    to.call(node, Call(kernel, {"n": x.elements, **attrs}, node.inputs, node.outputs, inplace=x.dtype is y.dtype))


OPS = {*VECTOR, *SCALAR, *INTEGER, "Gelu"} - {"GeluNone", "GeluTanh"}
LOWERINGS: Mapping[str, Lower] = dict.fromkeys(sorted(OPS), unary)

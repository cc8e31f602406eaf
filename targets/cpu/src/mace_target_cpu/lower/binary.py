"""Element-wise ops of two inputs, and Where."""

from __future__ import annotations

from collections.abc import Mapping

from mace_core.emit.text import Code
from mace_core.ir import DType, Node
from mace_core.kernel_target import Lower
from mace_core.program import Call, Kernel, Lowering, Refused
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.broadcast import collapse
from mace_target_cpu.lower.types import c_type, unsigned

MATH, POWER = KERNELS / "math.h.in", KERNELS / "power.h.in"

VECTOR: Mapping[str, str] = {
    "Add": "x + y",
    "Sub": "x - y",
    "Mul": "x * y",
    "Div": "x / y",
    "Minimum": "vf_select((x < y) | (x != x), x, y)",
    "Maximum": "vf_select((x > y) | (x != x), x, y)",
    "PRelu": "vf_select(x < 0.0f, x * y, x)",
}
"""Of two vectors of floats; the extremes are NaN where either is."""

COMPARISON: Mapping[str, str] = {
    "Equal": "x == y",
    "Less": "x < y",
    "LessEqual": "x <= y",
    "Greater": "x > y",
    "GreaterEqual": "x >= y",
}

FLOAT: Mapping[str, str] = {
    **COMPARISON,
    "Pow": "mace_powf(x, (float)y)",
    "ModC": "fmodf(x, y)",
    "ModFloor": "fmodf(x, y) + ((fmodf(x, y) != 0 && (fmodf(x, y) < 0) != (y < 0)) ? y : 0)",
}

INTEGER: Mapping[str, str] = {
    **COMPARISON,
    "Add": "x + y",
    "Sub": "x - y",
    "Mul": "x * y",
    "Div": "y == 0 ? 0 : x / y",
    "Minimum": "x < y ? x : y",
    "Maximum": "x > y ? x : y",
    "PRelu": "x > 0 ? x : x * y",
    "Pow": "mace_powf((float)x, (float)y)",
    "ModC": "y == 0 ? 0 : x % y",
    "ModFloor": "y == 0 ? 0 : x % y != 0 && ((x % y > 0) != (y > 0)) ? x % y + y : x % y",
    "BitShiftLeft": "(uint64_t)y >= 8 * sizeof x ? 0 : (uint64_t)x << y",
    "BitShiftRight": "(uint64_t)y < 8 * sizeof x ? x >> y : x > 0 || x == 0 ? 0 : -1",
    "And": "x && y",
    "Or": "x || y",
    "Xor": "!x != !y",
    "BitwiseAnd": "x & y",
    "BitwiseOr": "x | y",
    "BitwiseXor": "x ^ y",
}
"""Of two integers; division by 0 is 0."""


def _form(node: Node) -> str:
    if node.op.name == "Mod":
        return "ModC" if node.attrs["fmod"] else "ModFloor"
    if node.op.name == "BitShift":
        return "BitShiftLeft" if node.attrs["left"] else "BitShiftRight"
    return node.op.name


def binary(node: Node, to: Lowering) -> None:
    """Any op of the tables above."""
    x, y, z = (to.tensors[t] for t in (*node.inputs, *node.outputs))
    form = _form(node)
    floats = x.dtype is DType.F32
    vector = VECTOR.get(form, "") if floats else ""
    scalar = (FLOAT if floats else INTEGER).get(form, "")
    if (not vector and not scalar) or (x.dtype.is_float and not floats):
        raise Refused(f"no kernel computes {node.op.name} of {x.dtype.value}")
    params = {"ctype": c_type(x), "ytype": c_type(y), "result": c_type(z), "vector": Code(vector), "scalar": Code(scalar)}
    name = f"{form.lower()}_{x.dtype.value}" + (f"_{y.dtype.value}" if y.dtype is not x.dtype else "")
    fields = (("dims", "i32[6]"), ("xs", "i32[6]"), ("ys", "i32[6]"))
    kernel = Kernel(name, KERNELS / "binary.c.in", fields, params, (MATH, POWER) if form == "Pow" else ())
    dims, (xs, ys) = collapse(z.shape, (x.shape, y.shape))
    to.call(node, Call(kernel, {"dims": dims, "xs": xs, "ys": ys}, node.inputs, node.outputs, inplace=x.dtype is z.dtype))


def where(node: Node, to: Lowering) -> None:
    """Choose by element size: no arithmetic is done on the values."""
    condition, x, y, z = (to.tensors[t] for t in (*node.inputs, *node.outputs))
    bits = 8 * x.dtype.size
    fields = (("dims", "i32[6]"), ("cs", "i32[6]"), ("xs", "i32[6]"), ("ys", "i32[6]"))
    kernel = Kernel(f"where_{bits}", KERNELS / "where.c.in", fields, {"ctype": unsigned(x.dtype.size)})
    dims, (cs, xs, ys) = collapse(z.shape, (condition.shape, x.shape, y.shape))
    to.call(node, Call(kernel, {"dims": dims, "cs": cs, "xs": xs, "ys": ys}, node.inputs, node.outputs))


OPS = {*VECTOR, *FLOAT, *INTEGER, "Mod", "BitShift"} - {"ModC", "ModFloor", "BitShiftLeft", "BitShiftRight"}
LOWERINGS: Mapping[str, Lower] = {**dict.fromkeys(sorted(OPS), binary), "Where": where}

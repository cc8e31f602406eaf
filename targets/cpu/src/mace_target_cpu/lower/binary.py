"""Element-wise ops of two inputs, and Where."""

from __future__ import annotations

from collections.abc import Mapping

from mace_core.emit.integer_expressions import COMPARISON, SIGNED, spell_integers
from mace_core.emit.text import Code
from mace_core.ir import DType, Node
from mace_core.lowering import Lower, Lowering
from mace_core.ops.binary import BitShiftAttributes, ModAttributes
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.broadcast import PAIR, RANK, collapse, pair_args
from mace_target_cpu.lower.types import (
    C_TYPES,
    CONVERT,
    c_type,
    is_signed,
    refuse_type,
    unsigned_type,
    wrap_type,
)

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
"""The result from two vectors x and y of floats; the extremes are NaN where either is."""

FLOAT: Mapping[str, str] = {
    **COMPARISON,
    "Pow": "mace_powf(x, (double)y)",
    "ModC": "fmodf(x, y)",
    "ModFloor": "fmodf(x, y) + ((fmodf(x, y) != 0 && (fmodf(x, y) < 0) != (y < 0)) ? y : 0)",
}

DOUBLE: Mapping[str, str] = {
    **COMPARISON,
    "Add": "x + y",
    "Sub": "x - y",
    "Mul": "x * y",
    "Div": "x / y",
    "Minimum": "x < y || x != x ? x : y",
    "Maximum": "x > y || x != x ? x : y",
    "PRelu": "x < 0 ? x * y : x",
    "Pow": "pow(x, (double)y)",
    "ModC": "fmod(x, y)",
    "ModFloor": "fmod(x, y) + ((fmod(x, y) != 0 && (fmod(x, y) < 0) != (y < 0)) ? y : 0)",
}


def _scalar(form: str, x: DType, y: DType) -> str:
    """Return the C expression of one element of each operand; "" where there is none."""
    if form == "Pow" and not x.is_float:
        return _integer_power(x, y)
    if x.is_float:
        return {DType.F32: FLOAT, DType.F64: DOUBLE}.get(x, {}).get(form, "")
    return spell_integers(form, is_signed=is_signed(x), wrap=wrap_type(x), wide="uint64_t")


def _integer_power(x: DType, y: DType) -> str:
    """Return the C expression of a power of integers.

    Results wrap; a negative exponent leaves 1 / x^n without its fraction.

    A power of 0 that is none is 0.
    """
    if y.is_float:
        return f"mace_to_{C_TYPES[x]}(pow((double)x, (double)y))"
    # Wraps modulo 2^64, so the low bits are those of every narrower type.
    power = "mace_integer_power((uint64_t)x, (uint64_t)y)"
    if not is_signed(y):
        return power
    fraction = "x == 1 ? 1 : x == -1 ? (y & 1 ? (uint64_t)-1 : 1) : 0" if is_signed(x) else "x == 1"
    return f"y < 0 ? (uint64_t)({fraction}) : {power}"


def _form(node: Node) -> str:
    # fmod of ONNX is C's remainder, with the dividend's sign; the other is Python's, with the divisor's.
    if node.op.name == "Mod":
        return "ModC" if node.attributes(ModAttributes).fmod else "ModFloor"
    if node.op.name == "BitShift":
        return "BitShiftLeft" if node.attributes(BitShiftAttributes).left else "BitShiftRight"
    return node.op.name


def binary(node: Node, lowering: Lowering) -> None:
    """Lower any op of the tables above but Where."""
    x, y, z = (lowering.tensors[t] for t in (*node.inputs, *node.outputs))
    form = _form(node)
    # f32 is what models compute in: only it has vector kernels, other types go element by element.
    vector = VECTOR.get(form, "") if x.dtype is DType.F32 else ""
    scalar = _scalar(form, x.dtype, y.dtype)
    if not vector and not scalar:
        raise refuse_type(node.op.name, x.dtype)
    params = {
        "ctype": c_type(x),
        "ytype": c_type(y),
        "result": c_type(z),
        "vector": Code(vector),
        "scalar": Code(scalar),
    }
    name = f"{form.lower()}_{x.dtype.value}" + (f"_{y.dtype.value}" if y.dtype is not x.dtype else "")
    helpers = (MATH, POWER, CONVERT) if form == "Pow" else ()
    kernel = Kernel(name, KERNELS / "binary.c.in", PAIR, params, helpers)
    # An exponent of larger elements may have the result's bytes although it repeats.
    inplace = x.dtype is z.dtype and y.dtype.size == z.dtype.size
    lowering.call(node, Call(kernel, pair_args(x, y, z), node.inputs, node.outputs, inplace=inplace))


def where(node: Node, lowering: Lowering) -> None:
    """Choose by element size: no arithmetic is done on the values."""
    condition, x, y, z = (lowering.tensors[t] for t in (*node.inputs, *node.outputs))
    # One kernel for all types of a size: fewer kernels in a library of mixed types.
    bits = 8 * x.dtype.size
    fields = tuple((name, f"i32[{RANK}]") for name in ("dims", "cs", "xs", "ys"))
    kernel = Kernel(f"where_{bits}", KERNELS / "where.c.in", fields, {"ctype": unsigned_type(x.dtype.size)})
    dims, (cs, xs, ys) = collapse(z.shape, (condition.shape, x.shape, y.shape))
    lowering.call(node, Call(kernel, {"dims": dims, "cs": cs, "xs": xs, "ys": ys}, node.inputs, node.outputs))


OPS = {*VECTOR, *FLOAT, *SIGNED, "Mod", "BitShift"} - {"ModC", "ModFloor", "BitShiftLeft", "BitShiftRight"}
LOWERINGS: Mapping[str, Lower] = {**dict.fromkeys(sorted(OPS), binary), "Where": where}

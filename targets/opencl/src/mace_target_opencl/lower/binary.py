"""Element-wise ops of two inputs, which broadcast, and Where."""

from __future__ import annotations

from collections.abc import Mapping

from mace_core.emit.integer_expressions import COMPARISON, SIGNED, spell_integers
from mace_core.emit.text import Code
from mace_core.ir import DType, Node
from mace_core.lowering import Lower, Lowering
from mace_core.ops.binary import BitShiftAttributes, ModAttributes
from mace_target_opencl.lower.maps import Map, enqueue_map, lookup
from mace_target_opencl.lower.unary import wrap_type
from mace_target_opencl.steps import ElementStep
from mace_target_opencl.types import RAW_TYPES, c_type, refuse_type, storage_type
from mace_target_opencl.views import View

FLOAT: Mapping[str, str] = {
    **COMPARISON,
    "Add": "x + y",
    "Sub": "x - y",
    "Mul": "x * y",
    "Div": "mace_divide(x, y)",
    # NaN where either is, unlike fmin and fmax.
    "Minimum": "x < y || x != x ? x : y",
    "Maximum": "x > y || x != x ? x : y",
    "PRelu": "x < 0.0f ? x * y : x",
    # ONNX allows integer exponents, with which the overloaded function would be ambiguous.
    "Pow": "pow(x, (float)y)",
    "ModC": "fmod(x, y)",
    "ModFloor": "fmod(x, y) + (fmod(x, y) != 0.0f && (fmod(x, y) < 0.0f) != (y < 0.0f) ? y : 0.0f)",
}


def binary(node: Node, lowering: Lowering) -> None:
    """Any op of the tables above."""
    x, y, z = (lowering.tensors[t] for t in (*node.inputs, *node.outputs))
    expression = _expression(_form(node), x.dtype, y.dtype)
    if not expression or x.dtype in RAW_TYPES or y.dtype in RAW_TYPES:
        raise refuse_type(node.op.name, x.dtype)
    other = lookup("other", View.broadcast(y.shape, z.shape))
    step = ElementStep(Code(expression), (None, other), c_type(z))
    rounds = x.dtype.is_float and node.op.name in COMPARISON
    mapping = Map(x.name, View.broadcast(x.shape, z.shape), (step,), {"other": y.name}, rounds=rounds)
    enqueue_map(lowering, node, mapping)


def where(node: Node, lowering: Lowering) -> None:
    """Choose one of two values, of any type, by a condition."""
    condition, x, y, z = (lowering.tensors[t] for t in (*node.inputs, *node.outputs))
    arguments = (
        None,
        lookup("if_true", View.broadcast(x.shape, z.shape)),
        lookup("if_false", View.broadcast(y.shape, z.shape)),
    )
    step = ElementStep(Code("x ? y : z"), arguments, storage_type(z))
    others = {"if_true": x.name, "if_false": y.name}
    mapping = Map(condition.name, View.broadcast(condition.shape, z.shape), (step,), others)
    enqueue_map(lowering, node, mapping)


def _expression(form: str, x: DType, y: DType) -> str:
    """Return the C expression of one element of each operand; "" if there is none."""
    if form == "Pow" and not (x is DType.F32 and y in (DType.F32, DType.I32, DType.I64)):
        return ""
    if x is DType.F32:
        return FLOAT.get(form, "")
    return spell_integers(form, is_signed=x.value[0] == "i", wrap=wrap_type(x), wide="ulong")


def _form(node: Node) -> str:
    # fmod of ONNX is C's remainder, with the dividend's sign; the other is Python's, with the divisor's.
    if node.op.name == "Mod":
        return "ModC" if node.attributes(ModAttributes).fmod else "ModFloor"
    if node.op.name == "BitShift":
        return "BitShiftLeft" if node.attributes(BitShiftAttributes).left else "BitShiftRight"
    return node.op.name


OPS = {*FLOAT, *SIGNED, "Mod", "BitShift"} - {"ModC", "ModFloor", "BitShiftLeft", "BitShiftRight"}
LOWERINGS: Mapping[str, Lower] = {**dict.fromkeys(sorted(OPS), binary), "Where": where}

"""Cast."""

from __future__ import annotations

from collections.abc import Mapping

from mace_core.emit.text import Code
from mace_core.ir import DType, Node
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.igemm import INTEGER
from mace_target_cpu.lower.types import C_TYPES, CONVERT, HALF_BITS, c_type

N = (("n", "i64"),)
NARROW = {DType.I8: (-128, 127), DType.U8: (0, 255), DType.I16: (-32768, 32767)}
"""Integers that vectors of floats are stored as, with their ranges."""


def cast(node: Node, lowering: Lowering) -> None:
    """Through C's own conversions where they are defined; half precision only to and from float."""
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    name = f"cast_{x.dtype.value}_{y.dtype.value}"
    # C has no half type on all compilers of ours: those kernels compute on bits.
    if DType.F16 in (x.dtype, y.dtype) and x.dtype is not y.dtype:
        if DType.F32 not in (x.dtype, y.dtype):
            raise Refused(
                f"no kernel casts {x.dtype.value} to {y.dtype.value}", code="dtype", remedy="cast through f32"
            )
        to_half = y.dtype is DType.F16
        kernel = Kernel(name, KERNELS / "half.c.in", N, {"to_half": to_half}, () if to_half else (HALF_BITS,))
    else:
        # A copy needs a type of the right size only; f16 has no other.
        same = x.dtype is y.dtype
        types = {"ctype": C_TYPES.get(x.dtype, Code("uint16_t")) if same else c_type(x)}
        types["result"] = types["ctype"] if same else c_type(y)
        # C leaves floats out of an integer's range undefined; saturating is what ARM and XLA do.
        saturate = x.dtype.is_float and y.dtype.value[0] in "iu"
        narrow = x.dtype is DType.F32 and y.dtype in NARROW
        params = {**types, "to_bool": y.dtype is DType.BOOL, "saturate": saturate, "narrow": narrow}
        params |= {"low": NARROW[y.dtype][0], "high": NARROW[y.dtype][1]} if narrow else {}
        helpers = (CONVERT,) if saturate else ()
        if narrow:
            helpers = (INTEGER,)
        kernel = Kernel(name, KERNELS / "cast.c.in", N, params, helpers)
    lowering.call(node, Call(kernel, {"n": x.elements}, node.inputs, node.outputs))


LOWERINGS: Mapping[str, Lower] = {"Cast": cast}

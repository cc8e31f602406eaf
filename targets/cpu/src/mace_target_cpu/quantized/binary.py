"""Element-wise ops of two operands over quantized tensors."""

from __future__ import annotations

from mace_core.emit.text import Code
from mace_core.ir import DType, Node
from mace_core.lowering import Lowering, Refused
from mace_core.program import Arg, Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.binary import VECTOR
from mace_target_cpu.lower.broadcast import RANK, collapse
from mace_target_cpu.lower.igemm import INTEGER
from mace_target_cpu.quantized.storage import C_TYPES, Scale, result

REAL = {**C_TYPES, DType.F32: Code("float")}
FIELDS = (
    *((name, f"i32[{RANK}]") for name in ("dims", "xs", "ys")),
    ("x_zero", "i32"),
    ("y_zero", "i32"),
    ("x_scale", "f32"),
    ("y_scale", "f32"),
    ("inverse", "f32"),
    ("low", "f32"),
    ("high", "f32"),
    ("z_zero", "i32"),
)


def binary(node: Node, lowering: Lowering) -> None:
    """Sums, products and the like.

    Operands are real numbers in registers, and the result is rounded once to what it stores.
    """
    x, y, z = (lowering.tensors[t] for t in (*node.inputs, *node.outputs))
    if node.op.name not in VECTOR or any(t.dtype not in REAL for t in (x, y, z)):
        types = f"{x.dtype.value} and {y.dtype.value} to {z.dtype.value}"
        raise Refused(f"no integer kernel computes {node.op.name} of {types}", code="quantization")
    dims, (xs, ys) = collapse(z.shape, [x.shape, y.shape])
    # The kernel multiplies by 1 / scale: one rounding more than a division, in 24 bits for a result of at
    # most 16.
    limits, left, right = result(z), Scale.from_tensor(x), Scale.from_tensor(y)
    kernel = Kernel(
        f"{node.op.name.lower()}_{x.dtype.value}_{y.dtype.value}_{z.dtype.value}",
        KERNELS / "binary_quantized.c.in",
        FIELDS,
        {
            "xtype": REAL[x.dtype],
            "ytype": REAL[y.dtype],
            "result": REAL[z.dtype],
            "vector": Code(VECTOR[node.op.name]),
        },
        helpers=(INTEGER,),
    )
    args: dict[str, Arg] = {
        "dims": dims,
        "xs": xs,
        "ys": ys,
        "x_zero": left.zero,
        "y_zero": right.zero,
        "x_scale": left.step,
        "y_scale": right.step,
        "inverse": 1 / Scale.from_tensor(z).step,
        "low": limits["low"],
        "high": limits["high"],
        "z_zero": limits["y_zero"],
    }
    lowering.call(node, Call(kernel, args, node.inputs, node.outputs))

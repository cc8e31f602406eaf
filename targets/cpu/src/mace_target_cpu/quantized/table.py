"""Element-wise ops of one operand: of eight bits a table of what each value becomes, exact by construction.

Of sixteen a curve.
"""

from __future__ import annotations

import numpy as np

from mace_core.integer_tables import KNOT_BITS, compute_table, find_operand, fit_curve
from mace_core.ir import Array, DType, Node, Tensor
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.program import Arg, Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower import binary as plain
from mace_target_cpu.lower.binary import OPS as BINARY
from mace_target_cpu.lower.types import unsigned_type
from mace_target_cpu.lower.unary import OPS as UNARY
from mace_target_cpu.quantized.binary import binary
from mace_target_cpu.quantized.storage import C_TYPES, EIGHT_BITS, Scale

LINE = (
    ("x_flip", "i32"),
    ("x_zero", "i32"),
    ("factor", "f32"),
    ("y_zero", "i32"),
    ("low", "i32"),
    ("high", "i32"),
    ("y_flip", "i32"),
)
"""Arguments of a table whose results lie on a line, as most changes of scale do."""

STEP_LIMIT = 1 << 24
"""Steps that a line may have: above, floats skip integers."""


def table(node: Node, lowering: Lowering) -> None:
    """Lower an element-wise op with one computed operand; its others must be constants of one element."""
    x, y = find_operand(node, lowering), lowering.tensors[node.outputs[0]]
    if x.dtype is DType.I16:
        _lower_curve(node, lowering, x, y)
        return
    results = compute_table(node, lowering, x)
    # The kernel moves bytes, whatever they mean.
    values = results.view(np.uint8) if y.dtype is DType.BOOL else results
    call_table(node, lowering, (x, y), values)


def call_table(node: Node, lowering: Lowering, tensors: tuple[Tensor, Tensor], values: Array) -> None:
    """Append the call of a table of 256 results, in the order of the bits of an element of the operand.

    tensors: the operand and the result.
    """
    x, y = tensors
    line = find_line(x, y, values)
    name, fields = f"table_{8 * y.dtype.size}", (("n", "i64"),)
    kernel = Kernel(
        f"{name}_line" if line else name,
        KERNELS / "table.c.in",
        (*fields, *LINE) if line else fields,
        {"ytype": unsigned_type(y.dtype.size), "is_line": line is not None},
    )
    args = {"n": x.elements, **(line or {})}
    table = _share_table(node, lowering, values)
    lowering.call(node, Call(kernel, args, [x.name, table], [y.name], inplace=y.dtype.size == 1))


def find_line(x: Tensor, y: Tensor, values: Array) -> dict[str, Arg] | None:
    """Return the arguments LINE with which table.c.in computes a table; None if it is no line.

    values: the results, in the order of the bits of an element of x.
    """
    if any(t.dtype not in EIGHT_BITS or t.quant is None or len(t.quant.scale) != 1 for t in (x, y)):
        return None
    # The kernel reads unsigned and stores signed bytes, by a flip of their highest bit.
    x_flip = 0x80 if x.dtype is DType.I8 else 0
    y_flip = 0x80 if y.dtype is DType.U8 else 0
    source, target = Scale.from_tensor(x), Scale.from_tensor(y)
    factor = np.float32(source.step / target.step)
    x_zero, y_zero = source.zero + x_flip, target.zero - y_flip
    results = values.astype(np.int32) - y_flip
    low, high = int(results.min()), int(results.max())
    places = (np.arange(256) ^ x_flip) - x_zero
    steps = np.rint(places.astype(np.float32) * factor)
    # What leaves 32 bits becomes their lowest number in the kernel.
    if np.abs(steps).max() >= STEP_LIMIT or (np.clip(steps + y_zero, low, high) != results).any():
        return None
    line: dict[str, Arg] = {
        "x_flip": x_flip,
        "x_zero": x_zero,
        "factor": float(factor),
        "y_zero": y_zero,
        "low": low,
        "high": high,
        "y_flip": y_flip,
    }
    return line


def _lower_curve(node: Node, lowering: Lowering, x: Tensor, y: Tensor) -> None:
    """Append the call that draws straight lines between knots of a function of sixteen bits."""
    curve = fit_curve(node, lowering, x)
    params = {"ytype": C_TYPES[y.dtype], "bits": KNOT_BITS}
    kernel = Kernel(
        f"curve_{y.dtype.value}", KERNELS / "curve.c.in", (("n", "i64"), ("shift", "i32")), params
    )
    name = _share_table(node, lowering, curve.knots)
    args = {"n": x.elements, "shift": curve.shift}
    lowering.call(node, Call(kernel, args, [x.name, name], [y.name], inplace=y.dtype is DType.I16))


def _share_table(node: Node, lowering: Lowering, values: Array) -> str:
    """Make a weight of a table, one for all nodes that need the same; returns its name."""
    stem = f"{node.outputs[0]}.table"
    return lowering.once(
        ("table", values.dtype, values.tobytes()),
        lambda: lowering.weight(stem, values.shape, values.dtype.str[1:], lambda: values),
    )


def table_or_binary(node: Node, lowering: Lowering) -> None:
    """Lower to a table where one operand is computed, else to the kernel of two.

    The order of numbers stored alike is that of their integers.
    """
    try:
        table(node, lowering)
    except Refused:
        x, y = (lowering.tensors[name] for name in node.inputs)
        if node.op.name in ORDERS and x.quant and x.storage == y.storage:
            plain.binary(node, lowering)
        else:
            binary(node, lowering)


ORDERS = ("Equal", "Less", "LessEqual", "Greater", "GreaterEqual")
LOWERINGS: dict[str, Lower] = {
    **dict.fromkeys(sorted(UNARY), table),
    **dict.fromkeys(sorted(BINARY), table_or_binary),
}

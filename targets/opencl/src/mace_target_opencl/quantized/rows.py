"""Pools, reductions and Softmax over quantized tensors."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from mace_core.integer_storage import EIGHT_BITS, NARROW, Scale, need_room, need_stored
from mace_core.ir import Node
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.ops.pool import AveragePoolAttributes
from mace_core.ops.reduce import ReduceAttributes
from mace_core.ops.shapes import axis_of
from mace_core.ops.softmax import SoftmaxAttributes
from mace_core.ops.windows import Windows
from mace_target_opencl.lower.reduce import LOWERINGS as PLAIN
from mace_target_opencl.lower.rows import RowPass, Rows, enqueue_rows
from mace_target_opencl.lower.windows import WindowKernel, enqueue_windows
from mace_target_opencl.quantized.storage import StepRange, single, spell_store
from mace_target_opencl.types import C_TYPES, FLOAT, INT, literal

ONE = 1 << 23
"""What the table of Softmax holds for exp(0): the sum is exact, and a float holds each entry."""


def average_pool(node: Node, lowering: Lowering) -> None:
    """Compute an exact sum of each window, rounded once."""
    x, y = (need_stored(lowering, name, NARROW) for name in (node.inputs[0], node.outputs[0]))
    attrs = node.attributes(AveragePoolAttributes)
    need_room(x, prod(attrs.kernel))
    source, target = Scale.from_tensor(x), Scale.from_tensor(y)
    factor = single(source.step / target.step)
    window = WindowKernel(
        "0",
        "a + v",
        f"mace_divide((float)a * {factor}, (float)max(n, 1))",
        counts=True,
        counts_pads=attrs.count_pad,
        steps=(spell_store("x", y, StepRange.from_result(y)),),
        sums=INT,
        result=FLOAT,
        # The division is a function of one number.
        width=1,
        zero=source.zero,
    )
    enqueue_windows(lowering, node, Windows.of(attrs.kernel, attrs), window)


def total(node: Node, lowering: Lowering) -> None:
    """Compute ReduceSum and ReduceMean: an exact sum, rounded once."""
    x, y = (need_stored(lowering, name, NARROW) for name in (node.inputs[0], node.outputs[0]))
    axes = {axis_of(axis, len(x.shape)) for axis in node.attributes(ReduceAttributes).axes}
    source, target = Scale.from_tensor(x), Scale.from_tensor(y)
    count = x.elements // max(1, y.elements)
    need_room(x, count)
    # One factor: the mean's division and both scales are one rounding.
    factor = source.step / target.step / (count if node.op.name == "ReduceMean" else 1)
    steps = f"(float)(x - ({count * source.zero})) * {single(factor)}"
    store = spell_store(steps, y, StepRange.from_result(y))
    passes = (RowPass("total", "int", "0", "v", "a + b"),)
    enqueue_rows(lowering, node, Rows(axes, passes, "total", "int", steps=(store,), exact=True))


def extreme(node: Node, lowering: Lowering) -> None:
    """Compute ReduceMax and ReduceMin: the order of real numbers is that of what stores them."""
    if lowering.tensors[node.inputs[0]].storage != lowering.tensors[node.outputs[0]].storage:
        raise Refused("its result is stored otherwise than its operand", code="quantization")
    PLAIN[node.op.name](node, lowering)


def softmax(node: Node, lowering: Lowering) -> None:
    """Compute Softmax along the last axis, by a table of exponentials of distances from the maximum."""
    x, y = (need_stored(lowering, name, NARROW) for name in (node.inputs[0], node.outputs[0]))
    axis = axis_of(node.attributes(SoftmaxAttributes).axis, len(x.shape))
    if prod(x.shape[axis + 1 :]) != 1:
        raise Refused("Softmax runs along an inner axis", code="shape")
    is_wide, low = x.dtype not in EIGHT_BITS, np.arange(256) * Scale.from_tensor(x).step
    # exp(-(256 i + j)) is exp(-256 i) * exp(-j).
    parts = (low * 256, low) if is_wide else (low,)
    table = np.rint(np.exp(-np.concatenate(parts)) * ONE).astype(np.int32)
    name = lowering.weight(f"{y.name}.table", table.shape, "int32", lambda: table)
    power = "LOAD_table(most - (int)v)"
    if is_wide:
        distance = "(most - (int)v)"
        power = f"(int)((long)LOAD_table({distance} >> 8) * LOAD_table(256 + ({distance} & 255)) >> 23)"
    target, limits = Scale.from_tensor(y), StepRange.from_result(y)
    kind = C_TYPES[y.dtype]
    factor = f"mace_divide({single(1 / target.step)}, (float)total)"
    # Steps from the zero point are not negative here, so that one limit is enough.
    steps = f"fmin(rint((float)({power}) * {factor}), {literal(limits.high)})"
    passes = (
        RowPass("most", "int", "INT_MIN", "(int)v", "max(a, b)"),
        # Beyond 32 bits from 256 elements on: each may be as large as ONE.
        RowPass("total", "long", "0", f"(long)({power})", "a + b"),
    )
    rows = Rows(
        {axis},
        passes,
        f"({kind})((int){steps} + ({target.zero}))",
        str(kind),
        each=True,
        others={"table": name},
        types={"table": INT},
        exact=True,
    )
    enqueue_rows(lowering, node, rows)


LOWERINGS: Mapping[str, Lower] = {
    "AveragePool": average_pool,
    "ReduceSum": total,
    "ReduceMean": total,
    "ReduceMax": extreme,
    "ReduceMin": extreme,
    "ArgMax": PLAIN["ArgMax"],
    "ArgMin": PLAIN["ArgMin"],
    "Softmax": softmax,
}

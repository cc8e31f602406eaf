"""Concat and Split: each part contributes or takes one run of bytes of every row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import prod

import numpy as np

from mace_core.ir import Node
from mace_core.lowering import Lower, Lowering
from mace_core.ops.shapes import AxisAttributes
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.strided import MOVE, chunks
from mace_target_cpu.lower.view import view

FIELDS = (("n", "i64"), ("width", "i64"), ("rows", "i64"), ("grain", "i64"))


def concat(node: Node, lowering: Lowering) -> None:
    """Put the parts side by side; with one part that has elements nothing moves."""
    parts = [x for x in node.inputs if lowering.tensors[x].elements]
    full = node.outputs[0]
    if len(parts) > 1:
        table, args = _make_table(node, lowering, full, parts)
        kernel = Kernel("concat", KERNELS / "concat.c.in", FIELDS, {"joins": True}, (MOVE,))
        lowering.call(node, Call(kernel, args, [*parts, table], [full]))
    elif parts:
        view(_restrict_to(node, parts[0], full), lowering)


def split(node: Node, lowering: Lowering) -> None:
    """Take the parts out of every row; with one part that has elements nothing moves."""
    parts = [y for y in node.outputs if lowering.tensors[y].elements]
    full = node.inputs[0]
    if len(parts) > 1:
        table, args = _make_table(node, lowering, full, parts)
        kernel = Kernel("split", KERNELS / "concat.c.in", FIELDS, {"joins": False}, (MOVE,))
        lowering.call(node, Call(kernel, args, [full, table], parts))
    elif parts:
        view(_restrict_to(node, full, parts[0]), lowering)


def _make_table(
    node: Node, lowering: Lowering, full: str, parts: Sequence[str]
) -> tuple[str, dict[str, int]]:
    """The table of runs and the arguments: rows are what lies before the axis."""
    shape, size = lowering.shape(full), lowering.tensors[full].dtype.size
    axis = node.attributes(AxisAttributes).axis % len(shape)
    runs = [prod(lowering.shape(p)[axis:]) * size for p in parts]
    # Bytes of each run, then where it begins: the kernel moves bytes and knows no types.
    table = np.array([runs, [0, *accumulate(runs)][:-1]], np.int64)
    name = lowering.weight(f"{full}.runs", table.shape, "i8", lambda: table)
    rows, width = prod(shape[:axis]), sum(runs)
    grain = chunks(rows * len(parts), width // len(parts))["grain"]
    assert isinstance(grain, int)
    return name, {"n": len(parts), "width": width, "rows": rows, "grain": grain}


def _restrict_to(node: Node, x: str, y: str) -> Node:
    """The node as if it had this input and output only."""
    return Node(node.name, node.op, (x,), (y,), node.attrs, node.sources)


LOWERINGS: Mapping[str, Lower] = {"Concat": concat, "Split": split}

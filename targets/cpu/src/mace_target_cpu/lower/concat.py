"""Concat and Split: each part contributes or takes one run of bytes of every row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import prod

import numpy as np

from mace_core.ir import Node
from mace_core.kernel_target import Lower
from mace_core.lowering import Lowering
from mace_core.ops.shapes import AxisAttributes
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.strided import MOVE, chunks
from mace_target_cpu.lower.view import view

FIELDS = (("n", "i64"), ("width", "i64"), ("rows", "i64"), ("grain", "i64"))


def concat(node: Node, to: Lowering) -> None:
    """Put the parts side by side; with one part that has elements nothing moves."""
    parts = [x for x in node.inputs if to.tensors[x].elements]
    whole = node.outputs[0]
    if len(parts) > 1:
        table, args = _rows(node, to, whole, parts)
        kernel = Kernel("concat", KERNELS / "concat.c.in", FIELDS, {"joins": True}, (MOVE,))
        to.call(node, Call(kernel, args, [*parts, table], [whole]))
    elif parts:
        view(_between(node, parts[0], whole), to)


def split(node: Node, to: Lowering) -> None:
    """Take the parts out of every row; with one part that has elements nothing moves."""
    parts = [y for y in node.outputs if to.tensors[y].elements]
    whole = node.inputs[0]
    if len(parts) > 1:
        table, args = _rows(node, to, whole, parts)
        kernel = Kernel("split", KERNELS / "concat.c.in", FIELDS, {"joins": False}, (MOVE,))
        to.call(node, Call(kernel, args, [whole, table], parts))
    elif parts:
        view(_between(node, whole, parts[0]), to)


def _rows(node: Node, to: Lowering, whole: str, parts: Sequence[str]) -> tuple[str, dict[str, int]]:
    """The table of runs and the arguments: rows are what lies before the axis."""
    shape, size = to.shape(whole), to.tensors[whole].dtype.size
    axis = node.attributes(AxisAttributes).axis % len(shape)
    runs = [prod(to.shape(p)[axis:]) * size for p in parts]
    table = np.array([runs, [0, *accumulate(runs)][:-1]], np.int64)
    name = to.weight(f"{whole}.runs", table.shape, "i8", lambda: table)
    rows, width = prod(shape[:axis]), sum(runs)
    grain = chunks(rows * len(parts), width // len(parts))["grain"]
    assert isinstance(grain, int)
    return name, {"n": len(parts), "width": width, "rows": rows, "grain": grain}


def _between(node: Node, x: str, y: str) -> Node:
    """The node as if it had this input and output only."""
    return Node(node.name, node.op, (x,), (y,), node.attrs, node.sources)


LOWERINGS: Mapping[str, Lower] = {"Concat": concat, "Split": split}

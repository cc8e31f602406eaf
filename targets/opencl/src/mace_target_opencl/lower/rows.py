"""Rows: a set of axes whose elements one or several work-items look at together, once or several times."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import prod

from mace_core.emit.text import CIdentifier, Code
from mace_core.ir import Node, Shape
from mace_core.lowering import Lowering
from mace_target_opencl.enqueue import GROUP, Launch, enqueue
from mace_target_opencl.exact import mark_exact
from mace_target_opencl.steps import ElementStep
from mace_target_opencl.types import c_type
from mace_target_opencl.views import View, dense

MIN_SHARED = 32
"""Elements of a row from which on a group of work-items shares it."""

MANY_ROWS = 1 << 14
"""Rows from which on each work-item has one of its own, unless its elements lie in a row."""


@dataclass(frozen=True)
class RowPass:
    """One number that is made of all elements of a row.

    name: of the number in later expressions.  first: its value for no elements.  element: an expression of
    the element v and its number k.  join: an expression of two such values a and b.
    """

    name: str
    type: str
    first: str
    element: str
    join: str

    def fields(self) -> tuple[CIdentifier, Code, Code, Code, Code]:
        """Return what rows.cl.in reads."""
        return CIdentifier(self.name), Code(self.type), Code(self.first), Code(self.element), Code(self.join)


@dataclass(frozen=True)
class Rows:
    """What is computed of each row.

    axes: those that a row extends over.
    result: an expression of the passes' names, and of v and k if `each`.
    result_type: C type of the expression.  each: whether each element has a result.
    shape: as which x is seen, None for its own.  types: C types of others that are constants, if not float.
    exact: whether floats are rounded alike on every device.
    """

    axes: Collection[int]
    passes: tuple[RowPass, ...]
    result: str
    result_type: str = "float"
    each: bool = False
    shape: Shape | None = None
    steps: tuple[ElementStep, ...] = ()
    others: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, Code] = field(default_factory=dict)
    exact: bool = False


def enqueue_rows(lowering: Lowering, node: Node, rows: Rows) -> None:
    """Append the call that computes rows of the node's first input into its first result."""
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    shape = x.shape if rows.shape is None else rows.shape
    steps = dense(shape)
    outer = [axis for axis in range(len(shape)) if axis not in rows.axes]
    reduced = [axis for axis in range(len(shape)) if axis in rows.axes]
    number, count = (prod(shape[axis] for axis in axes) for axes in (outer, reduced))
    elements = View.of((shape[axis], steps[axis]) for axis in reduced)
    lanes = _choose_lanes(number, count, elements)
    constants = {
        "rows": number,
        "count": count,
        "outer": View.of((shape[axis], steps[axis]) for axis in outer),
        "reduced": elements,
        "passes": tuple(entry.fields() for entry in rows.passes),
        "result": Code(rows.result),
        "value": c_type(x),
        "value_type": Code(rows.result_type),
        "each": rows.each,
        "lanes": lanes,
        **mark_exact(rows.exact),
    }
    launch = Launch(
        "rows",
        {"x": x.name, **rows.others},
        {"y": y.name},
        (number * lanes,),
        constants,
        (GROUP,) if lanes == 1 else (lanes,),
        rows.steps,
        rows.types,
    )
    enqueue(lowering, node, launch)


def _choose_lanes(rows: int, count: int, elements: View) -> int:
    """Return how many work-items share a row."""
    # Rows that are not dense lie side by side: work-items with a row each read neighboring elements.
    is_dense = elements.strides[-1:] == (1,)
    if count < MIN_SHARED or (rows >= MANY_ROWS and not is_dense):
        return 1
    # Powers of two, because rows.cl.in joins halves of the lanes.
    # A few long rows: more lanes, for there is no other parallelism.
    return 4 * GROUP if count >= 16 * GROUP and rows < MANY_ROWS else GROUP

"""One kernel for all that maps elements of the result to elements of the operands, one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from mace_core.emit.text import CIdentifier, Code
from mace_core.ir import Node
from mace_core.lowering import Lowering
from mace_target_opencl.enqueue import GROUP, Launch, enqueue
from mace_target_opencl.exact import ROUNDS, mark_exact
from mace_target_opencl.steps import ElementStep, Lookup
from mace_target_opencl.types import storage_type, value_type
from mace_target_opencl.views import View

WIDTH = 4
"""Elements that a work-item computes where they lie in a row."""


@dataclass(frozen=True)
class Map:
    """A map from operands to the result.

    first: the operand that the first step's None argument stands for, or that is copied, and its view.
    others: tensors that the steps look up, by the operand's name.
    types: C types as which operands are moved, where those are not the tensors' own.
    exact: whether floats are rounded alike on every device.
    rounds: whether results are integers or jumps of floats, see exact.py.
    """

    first: str
    view: View
    steps: tuple[ElementStep, ...] = ()
    others: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, Code] = field(default_factory=dict)
    exact: bool = False
    rounds: bool = False


def enqueue_map(lowering: Lowering, node: Node, mapping: Map) -> None:
    """Append the call that computes a map into the node's first result."""
    result = lowering.tensors[node.outputs[0]]
    enqueue_map_to(lowering, node, mapping, result.name)


def enqueue_map_to(lowering: Lowering, node: Node, mapping: Map, result: str) -> None:
    """Append the call that computes a map into a tensor."""
    tensor = lowering.tensors[result]
    arguments = chain.from_iterable(step.arguments for step in mapping.steps)
    lookups = [argument for argument in arguments if argument is not None]
    views = [mapping.view, *(lookup.view for lookup in lookups)]
    is_wide = tensor.elements % WIDTH == 0 and all(view.can_load(WIDTH) for view in views)
    width = WIDTH if is_wide else 1
    reads = {"x": mapping.first, **mapping.others}
    launch = Launch(
        "map",
        reads,
        {"y": result},
        (tensor.elements // width,),
        {
            "view": mapping.view,
            "width": width,
            "count": tensor.elements,
            "value_type": _first_type(lowering, mapping),
            **mark_exact(mapping.exact),
            **({ROUNDS: True} if mapping.rounds else {}),
        },
        (GROUP,),
        mapping.steps,
        mapping.types,
        # A result of another size, or read in another order, would overwrite what is not read yet.
        in_place=all(view.is_identity for view in views)
        and _have_one_size(lowering, [*reads.values(), result]),
    )
    enqueue(lowering, node, launch)


def lookup(name: str, view: View) -> Lookup:
    """Return a lookup of an operand by its name."""
    return Lookup(CIdentifier(name), view)


def _first_type(lowering: Lowering, mapping: Map) -> Code:
    return value_type(mapping.types.get("x") or storage_type(lowering.tensors[mapping.first]))


def _have_one_size(lowering: Lowering, tensors: Sequence[str]) -> bool:
    return len({lowering.tensors[name].dtype.size for name in tensors}) == 1

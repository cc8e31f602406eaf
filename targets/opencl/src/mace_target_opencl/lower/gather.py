"""Gather, GatherElements and GatherND: one kernel that adds indices to the place of an element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from mace_core.ir import DType, Node
from mace_core.lowering import Lower, Lowering
from mace_core.ops.gather import GatherAttributes, GatherNDAttributes
from mace_core.ops.shapes import axis_of
from mace_target_opencl.enqueue import GROUP, Launch, enqueue
from mace_target_opencl.types import c_type, storage_type
from mace_target_opencl.views import View, dense


@dataclass(frozen=True)
class Gathering:
    """Where the elements of the result come from; see gather.cl.in."""

    base: View
    places: View
    entries: Sequence[tuple[int, int]]


def enqueue_gathering(
    lowering: Lowering, node: Node, gathering: Gathering, reads: tuple[str, str] | None = None
) -> None:
    """Append the call that gathers elements.  reads: x and the indices, if not the node's inputs."""
    x, indices, y = (lowering.tensors[name] for name in (*(reads or node.inputs), node.outputs[0]))
    c_type(indices)  # refuses what no kernel computes with
    views = (gathering.base, gathering.places)
    # The elements of a work-item must have the same indices, and lie in a row of x.
    is_wide = (
        y.elements % 4 == 0
        and gathering.base.strides[-1:] == (1,)
        and all(view.can_load(4) for view in views)
        and gathering.places.strides[-1:] != (1,)
    )
    width = 4 if is_wide else 1
    constants = {
        "count": y.elements,
        "width": width,
        "base": gathering.base,
        "places": gathering.places,
        "entries": tuple(gathering.entries),
        # An index moves the place by any multiple of its step.
        "aligned": gathering.base.is_aligned(4) and all(step % 4 == 0 for _, step in gathering.entries),
        "unsigned": indices.dtype is DType.U64,
        "value_type": storage_type(x),
    }
    launch = Launch(
        "gather",
        {"x": x.name, "indices": indices.name},
        {"y": y.name},
        (y.elements // width,),
        constants,
        (GROUP,),
        (),
    )
    enqueue(lowering, node, launch)


def gather(node: Node, lowering: Lowering) -> None:
    """Slices of one axis, by index."""
    data, indices = (lowering.shape(name) for name in node.inputs)
    axis, steps = axis_of(node.attributes(GatherAttributes).axis, len(data)), dense(data)
    before, behind = range(axis), range(axis + 1, len(data))
    count = prod(indices)
    # The place stays where it is along the axis of the indices: they move it.
    base = [*((data[n], steps[n]) for n in before), (count, 0), *((data[n], steps[n]) for n in behind)]
    places = [(prod(data[:axis]), 0), (count, 1), (prod(data[axis + 1 :]), 0)]
    enqueue_gathering(lowering, node, Gathering(View.of(base), View.of(places), [(data[axis], steps[axis])]))


def gather_elements(node: Node, lowering: Lowering) -> None:
    """Single elements along one axis, an index for each."""
    data, indices = (lowering.shape(name) for name in node.inputs)
    axis, steps = axis_of(node.attributes(GatherAttributes).axis, len(data)), dense(data)
    base = [(n, 0 if number == axis else steps[number]) for number, n in enumerate(indices)]
    places = [(prod(indices), 1)]
    enqueue_gathering(lowering, node, Gathering(View.of(base), View.of(places), [(data[axis], steps[axis])]))


def gather_nd(node: Node, lowering: Lowering) -> None:
    """Slices at coordinates of several axes."""
    data, indices = (lowering.shape(name) for name in node.inputs)
    batch, depth, steps = node.attributes(GatherNDAttributes).batch_dims, indices[-1], dense(data)
    lead, inner = indices[:-1], range(batch + depth, len(data))
    base = [(n, steps[number] if number < batch else 0) for number, n in enumerate(lead)]
    base += [(data[n], steps[n]) for n in inner]
    places = [(prod(lead), depth), (prod(data[n] for n in inner), 0)]
    entries = [(data[batch + n], steps[batch + n]) for n in range(depth)]
    enqueue_gathering(lowering, node, Gathering(View.of(base), View.of(places), entries))


LOWERINGS: Mapping[str, Lower] = {"Gather": gather, "GatherElements": gather_elements, "GatherND": gather_nd}

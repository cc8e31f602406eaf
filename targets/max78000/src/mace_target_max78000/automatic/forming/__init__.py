"""From a quantised graph to layers: ends cut off, ops that the hardware lacks rewritten, the rest joined layer by layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from mace_core.errors import MaceError
from mace_core.ir import Array, Graph
from mace_target_max78000.automatic.forming.aligned import aligned
from mace_target_max78000.automatic.forming.binary import with_binary
from mace_target_max78000.automatic.forming.ends import FUNCTIONS, Entry, entry, refuse_tail, without_tail
from mace_target_max78000.automatic.forming.form import Former
from mace_target_max78000.automatic.forming.lower import lowered
from mace_target_max78000.automatic.forming.refusal import Faults
from mace_target_max78000.automatic.forming.shapes import refuse_shapes
from mace_target_max78000.automatic.forming.views import producers, view_of
from mace_target_max78000.device import Device
from mace_target_max78000.network import INPUT, Layer

SHOWN = 3
"""Names that a note lists."""


@dataclass(frozen=True, eq=False)
class Formed:
    """The layers of a graph, in order, not placed.

    tensors: for each layer the graph's tensor that it computes.  steps: for each layer the power of two that
    its output counts.
    entry: how the network's input is made.
    graph: what they were formed from, whole.
    lowered: the graph of the hardware's ops that the layers are.  made: of its tensors those in memory, with
    the number of the layer that writes each, INPUT for the network's input.
    """

    layers: tuple[Layer, ...]
    tensors: tuple[str, ...]
    steps: tuple[int, ...]
    entry: Entry
    notes: tuple[str, ...]
    graph: Graph
    lowered: Graph
    made: Mapping[str, int]

    def find(self, tensor: str) -> tuple[int, Array] | None:
        """The layer that has a tensor of the lowered graph in memory, and where each element lies in its result.

        That is a flat index into [channels, rows, columns], in the shape of the tensor.  None for what is
        never in memory.
        """
        if tensor not in self.lowered.tensors:
            return None
        view = view_of(self.lowered, tensor, producers(self.lowered))
        if view.base not in self.made:
            return None
        base = self.lowered.tensors[view.base]
        places = np.arange(base.elements).reshape(base.shape[-1], -1).T.reshape(-1)
        return self.made[view.base], places[view.order]

    def noted(self, notes: tuple[str, ...]) -> Formed:
        """The same with more to tell, first."""
        return replace(self, notes=(*notes, *self.notes))


def form(graph: Graph, device: Device) -> Formed:
    """The layers of a graph that is quantised for this target.

    The accelerator computes what the graph says, bit for bit.

    But for halves between two results, which the hardware rounds up and the graph to even, and for the
    rounding of means. MaceError with every node that has no exact equivalent on the device.
    """
    faults = Faults()
    inner, tail = without_tail(graph)
    refuse_tail(graph, tail, faults)
    inner, start = entry(inner)
    whole = inner
    refuse_shapes(inner, faults)
    faults.check()  # the rules look up channels, rows and columns by their axes
    inner, fold = lowered(inner, device, faults)
    faults.check()
    former = Former(inner, device, faults)
    former.form()
    faults.check()
    if not former.layers:
        raise MaceError(graph.name, "nothing of it runs on the accelerator", "give it to another target")
    layers, places = aligned(former.layers, faults)
    faults.check()
    if device.pipelined:
        layers = with_binary(layers)
    start = replace(start, fold=fold)
    left = sorted({n.op.name for n in tail if n.op.name in FUNCTIONS})
    notes = (
        *start.notes,
        *former.notes,
        *_expanded(whole, inner, device),
        *(f"the application computes {name} of the results" for name in left),
    )
    tensors = dict(zip(places, former.tensors, strict=True))
    steps = dict(zip(places, former.steps, strict=True))
    return Formed(
        layers,
        tuple(tensors.get(i, "") for i in range(len(layers))),
        tuple(steps.get(i, 0) for i in range(len(layers))),
        start,
        notes,
        graph,
        inner,
        {tensor: index if index == INPUT else places[index] for tensor, index in former.made.items()},
    )


def _expanded(before: Graph, after: Graph, device: Device) -> Iterator[str]:
    """Tells which depthwise convolutions have become full ones, with weights of zero between channels."""
    kept = {output for node in after.nodes if node.attrs.get("group", 1) != 1 for output in node.outputs}
    depthwise = (
        n
        for n in before.nodes
        if n.op.name == "Conv" and n.attrs["group"] == before.tensors[n.inputs[0]].shape[-1] > 1
    )
    names = [node.name for node in depthwise if not kept & set(node.outputs)]
    if names:
        listed = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
        reason = (
            "the MAX78002 computes those of kernel 3 and stride 1 directly"
            if not device.pipelined
            else "they are not of kernel 3"
        )
        told = "depthwise convolutions are computed as full ones, which takes the weights and the time of full ones"
        yield f"{len(names)} {told} ({listed}); {reason}"

"""From a graph to a network for the accelerator: layers are formed, quantised and placed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mace_core.errors import MaceError
from mace_core.ir import Array, Graph
from mace_target_max78000.automatic.forming.ends import Entry, entry, without_tail
from mace_target_max78000.automatic.forming.form import Former
from mace_target_max78000.automatic.forming.lower import lowered
from mace_target_max78000.automatic.forming.refusal import Faults
from mace_target_max78000.device import Device
from mace_target_max78000.network import Layer


@dataclass(frozen=True, eq=False)
class Formed:
    """The layers of a graph, in order, not placed.

    tensors: for each layer the graph's tensor that it computes.  entry: how the network's input is made.
    after: what the application does with the results, in the order of the graph.  softmax: whether that is a Softmax.
    """

    layers: tuple[Layer, ...]
    tensors: tuple[str, ...]
    entry: Entry
    after: tuple[str, ...]
    softmax: bool
    notes: tuple[str, ...]


def form(graph: Graph, device: Device) -> Formed:
    """The layers of a graph that is quantised for this target (see `quantize`); the accelerator computes what the graph says, bit for bit.

    MaceError with every node that has no exact equivalent on the device.
    """
    faults = Faults()
    inner, tail = without_tail(graph)
    inner, start = entry(inner)
    inner, fold = lowered(inner, device, faults)
    faults.check()
    former = Former(inner, device, faults)
    former.form()
    faults.check()
    if not former.layers:
        raise MaceError(graph.name, "nothing of it runs on the accelerator", "give it to another target")
    softmax = any(node.op.name == "Softmax" for node in tail)
    start = Entry(start.name, start.power, start.order, fold)
    return Formed(tuple(former.layers), tuple(former.tensors), start, tuple(n.op.name for n in tail), softmax, tuple(former.notes))


def form_layers(graph: Graph, device: Device) -> tuple[Layer, ...]:
    """The layers of a graph that is quantised for this target, in the order of their execution, not placed."""
    return form(graph, device).layers


def quantize(graph: Graph, calibration: Sequence[Mapping[str, Array]], policy: object = None) -> Graph:
    """The graph with every tensor as the accelerator stores it."""
    raise NotImplementedError

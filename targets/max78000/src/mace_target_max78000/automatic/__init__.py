"""From any graph to a network for the accelerator: quantised, formed to layers, and placed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mace_core.ir import Array, Graph
from mace_target_max78000.automatic.fit import prepare
from mace_target_max78000.automatic.forming import Formed, form
from mace_target_max78000.automatic.quantizing.quantize import Policy, quantized
from mace_target_max78000.device import Device
from mace_target_max78000.network import Layer

__all__ = ["Formed", "Policy", "form", "form_layers", "prepare", "quantize"]


def quantize(graph: Graph, calibration: Sequence[Mapping[str, Array]], policy: Policy | None = None) -> Graph:
    """The graph with every tensor as the accelerator stores it; as it is where it has that already.

    calibration: inputs by name, real numbers; random ones are used where there are none.
    """
    return quantized(graph, calibration, policy or Policy()).graph


def form_layers(graph: Graph, device: Device) -> tuple[Layer, ...]:
    """The layers of a graph that is quantised for this target, in the order of their execution, not placed."""
    return form(graph, device).layers

"""A described network beside the trained model that it should describe."""

from __future__ import annotations

from mace_core.errors import MaceError
from mace_core.ir import Graph
from mace_target_max78000.automatic.fit import prepare
from mace_target_max78000.automatic.quantizing.quantize import Policy
from mace_target_max78000.description.compare import mismatches
from mace_target_max78000.device import Device
from mace_target_max78000.network import Network


def check_beside(network: Network, name: str, trained: Graph, device: Device) -> None:
    """Compare a network with the graph of a trained model, which messages call by `name`.

    MaceError with every layer that computes something else than the model does.
    """
    found = mismatches(network.layers, prepare(trained, device, [], Policy()).layers)
    if found:
        raise MaceError.of(f"{network.name} is not {name}: {text}" for text in found)

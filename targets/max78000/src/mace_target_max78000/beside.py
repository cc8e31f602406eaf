"""A described network beside the trained model that it should describe."""

from __future__ import annotations

from mace_core.errors import MaceError
from mace_core.ir import Graph
from mace_target_max78000.description.compare import mismatches
from mace_target_max78000.design import quantize_and_legalize
from mace_target_max78000.device import Device
from mace_target_max78000.network import Network
from mace_target_max78000.quantize.plan import QuantizationPolicy


def check_beside(network: Network, name: str, trained: Graph, device: Device) -> None:
    """Compare a network with the graph of a trained model, which messages call by `name`.

    MaceError with every layer that computes something else than the model does.
    """
    found = mismatches(
        network.layers, quantize_and_legalize(trained, device, [], QuantizationPolicy()).layers
    )
    if found:
        raise MaceError.of(f"{network.name} is not {name}: {text}" for text in found)

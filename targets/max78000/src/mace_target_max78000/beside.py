"""A described network beside the trained model that it should describe."""

from __future__ import annotations

from pathlib import Path

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.pipeline import load, normalise
from mace_core.registry import Registry
from mace_target_max78000.automatic.fit import prepare
from mace_target_max78000.automatic.quantizing.quantize import Policy
from mace_target_max78000.description.compare import mismatches
from mace_target_max78000.device import Device
from mace_target_max78000.network import Network


def check_beside(network: Network, file: Path, device: Device) -> None:
    """Compare a network with the model in a file of any format that is read here.

    MaceError with every layer that computes something else than the model does.
    """
    if not file.exists():
        raise MaceError(file, "no such file", "give the trained model, or leave it out")
    registry = Registry.load()
    graph = normalise(load(Model(file.stem, (file,)), registry), registry)
    found = mismatches(network.layers, prepare(graph, device, [], Policy()).layers)
    if found:
        raise MaceError.of(f"{network.name} is not {file.name}: {text}" for text in found)

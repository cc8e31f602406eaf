"""The automatic way as a whole: any graph -> a network with a sample, placed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mace_core.errors import MaceError
from mace_core.ir import Array, Graph
from mace_target_max78000.automatic.fit import prepare
from mace_target_max78000.automatic.forming import Formed, form
from mace_target_max78000.automatic.graph_check import Accelerated
from mace_target_max78000.automatic.place import place
from mace_target_max78000.automatic.placement.lower import PART
from mace_target_max78000.automatic.quantizing.observe import random_inputs
from mace_target_max78000.automatic.quantizing.quantize import Policy, draft, is_quantized
from mace_target_max78000.automatic.split import with_split_bias
from mace_target_max78000.device import Device
from mace_target_max78000.network import Network
from mace_target_max78000.options import Options


@dataclass(frozen=True, eq=False)
class Designed:
    """A network and the layers that it was placed from.

    options: those given, with what the places rely on.  inputs: of the graph, by name; the network's sample
    was made of them.
    """

    network: Network
    formed: Formed
    options: Options
    inputs: Mapping[str, Array]

    def accelerated(self, outputs: Sequence[Array]) -> Accelerated:
        """What the accelerator computes.

        outputs: of each layer of the network, which has layers between those that were formed, and several
        for one where channels are cut.
        """
        parts: dict[str, list[Array]] = {layer.name: [] for layer in self.formed.layers}
        for layer, output in zip(self.network.layers, outputs, strict=True):
            name = layer.name if layer.name in parts else PART.sub("", layer.name)
            if name in parts:
                parts[name].append(output)
        results = {name: np.concatenate(found) for name, found in parts.items() if found}
        return Accelerated(self.formed, self.network.sample, results)


def design(
    graph: Graph, samples: Sequence[Mapping[str, Array]], device: Device, settings: tuple[Options, Policy]
) -> Designed:
    """The network of a graph; its sample is the first of the samples, else random numbers.

    Results are 32-bit sums where these fit, else 8 bits with a note.
    MaceError with everything that the device cannot compute, or that does not fit.
    """
    policy = settings[1]
    try:
        return _designed(graph, samples, device, settings)
    except MaceError as error:
        if is_quantized(graph) or not policy.wide or not _is_wide(graph, device):
            raise
        try:
            made = _designed(graph, samples, device, (settings[0], replace(policy, wide=False)))
        except MaceError:
            # With 8 bits it does not fit either: what is told is about the network as it was wanted.
            raise error from None
        reason = str(error).splitlines()[0]
    note = f"its results have 8 bits in place of 32, with which it would not fit: {reason}"
    return replace(made, network=replace(made.network, notes=(*made.network.notes, note)))


def _is_wide(graph: Graph, device: Device) -> bool:
    """Whether the last layer of a graph of real numbers would give 32-bit sums.

    False for a graph that cannot be formed at all.
    """
    try:
        return any(layer.wide for layer in form(draft(graph), device).layers)
    except MaceError:
        return False


def _designed(
    graph: Graph, samples: Sequence[Mapping[str, Array]], device: Device, settings: tuple[Options, Policy]
) -> Designed:
    options, policy = settings
    formed = with_split_bias(prepare(graph, device, samples, policy), device)
    if not is_quantized(graph):
        # The means of real numbers are nearer than cut off ones.
        options = replace(options, avg_pool_rounding=True)
    first = samples[0] if samples else random_inputs(graph, policy.limits, 1)[0]
    sample = formed.entry.apply(first[formed.entry.name])
    placed = place(formed.layers, sample.shape, device, options)
    network = Network(graph.name, placed.layers, placed.places, sample, notes=formed.notes, recounts=True)
    return Designed(network, formed, placed.options, first)

"""Designs a network for any graph: quantizes it, legalizes it to layers, and places the layers.

A graph of real numbers is tried in this order: results as 32-bit sums, which lose nothing, then results of
8 bits; in either, weights of 8 bits first, and narrower ones layer by layer until weight memory holds them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mace_core.errors import MaceError
from mace_core.ir import Array, Graph, Node
from mace_frontend_ai8x.network import Layer, Network, Place
from mace_target_max78000.check.graph_comparison import AcceleratorResults
from mace_target_max78000.device import PROCESSORS, Device
from mace_target_max78000.encode.weight_memory import ALIGNMENT, words_of
from mace_target_max78000.legalize.pipeline import LegalizedGraph, legalize_graph, split_long_bias
from mace_target_max78000.options import Options
from mace_target_max78000.place.inserted_layers import PART_SUFFIX
from mace_target_max78000.place.search import place_layers
from mace_target_max78000.place.values import contiguous_slots, make_units
from mace_target_max78000.quantize.calibrate import random_inputs
from mace_target_max78000.quantize.plan import (
    MAIN_OPS,
    QuantizationPlan,
    QuantizationPolicy,
    calibrate,
    draft_quantization,
    is_quantized,
)


@dataclass(frozen=True, eq=False)
class DesignedNetwork:
    """A network and the layers that it was placed from.

    options: those given, with what the places rely on.  inputs: of the graph, by name; the network's sample
    was made of them.
    """

    network: Network
    formed: LegalizedGraph
    options: Options
    inputs: Mapping[str, Array]

    def accelerated(self, outputs: Sequence[Array]) -> AcceleratorResults:
        """What the accelerator computes.

        outputs: of each layer of the network, which has layers between those that were formed, and several
        for one where channels are cut.
        """
        parts: dict[str, list[Array]] = {layer.name: [] for layer in self.formed.layers}
        for layer, output in zip(self.network.layers, outputs, strict=True):
            name = layer.name if layer.name in parts else PART_SUFFIX.sub("", layer.name)
            if name in parts:
                parts[name].append(output)
        results = {name: np.concatenate(found) for name, found in parts.items() if found}
        return AcceleratorResults(self.formed, self.network.sample, results)


def design_network(
    graph: Graph,
    samples: Sequence[Mapping[str, Array]],
    device: Device,
    settings: tuple[Options, QuantizationPolicy],
) -> DesignedNetwork:
    """The network of a graph; its sample is the first of the samples, else random numbers.

    Results are 32-bit sums where these fit, else 8 bits with a note.
    MaceError with everything that the device cannot compute, or that does not fit.
    """
    policy = settings[1]
    try:
        return _design_with(graph, samples, device, settings)
    except MaceError as error:
        if is_quantized(graph) or not policy.wide or not _has_wide_results(graph, device):
            raise
        try:
            made = _design_with(graph, samples, device, (settings[0], replace(policy, wide=False)))
        except MaceError:
            # With 8 bits it does not fit either: what is told is about the network as it was wanted.
            raise error from None
        reason = str(error).splitlines()[0]
    note = f"its results have 8 bits in place of 32, with which it would not fit: {reason}"
    return replace(made, network=replace(made.network, notes=(*made.network.notes, note)))


def _has_wide_results(graph: Graph, device: Device) -> bool:
    """Whether the last layer of a graph of real numbers would give 32-bit sums.

    False for a graph that cannot be formed at all.
    """
    try:
        return any(layer.wide for layer in legalize_graph(draft_quantization(graph), device).layers)
    except MaceError:
        return False


def _design_with(
    graph: Graph,
    samples: Sequence[Mapping[str, Array]],
    device: Device,
    settings: tuple[Options, QuantizationPolicy],
) -> DesignedNetwork:
    options, policy = settings
    formed = split_long_bias(quantize_and_legalize(graph, device, samples, policy), device)
    if not is_quantized(graph):
        # The means of real numbers are nearer than cut off ones.
        options = replace(options, avg_pool_rounding=True)
    first = samples[0] if samples else random_inputs(graph, policy.limits, 1)[0]
    sample = formed.network_input.apply(first[formed.network_input.name])
    placed = place_layers(formed.layers, sample.shape, device, options)
    network = Network(graph.name, placed.layers, placed.places, sample, notes=formed.notes, recounts=True)
    return DesignedNetwork(network, formed, placed.options, first)


NARROWER_BITS: Mapping[int, int] = {8: 4, 4: 2}
"""What weights of so many bits become next; of 1 bit there is no positive one, which no rounding survives."""

USABLE_SHARE = 0.97
"""Of weight memory that layers can be expected to fill without gaps."""


def quantize_and_legalize(
    graph: Graph, device: Device, samples: Sequence[Mapping[str, Array]], policy: QuantizationPolicy
) -> LegalizedGraph:
    """The layers of any graph, quantised for this target if it is not yet, its weights as wide as weight memory allows.

    samples: inputs by name, real numbers, to quantise by.  MaceError with every node that the device has no
    equivalent of.
    """
    if is_quantized(graph):
        return legalize_graph(graph, device)
    legalize_graph(
        draft_quantization(graph), device
    )  # refuses what no quantisation helps, before any is looked for
    plan = calibrate(graph, samples, policy)
    made = plan.rounded(policy.bits)
    formed = legalize_graph(made.graph, device)
    narrowed = _narrow_weights(plan, formed.layers, policy, device)
    if narrowed != policy.bits:
        formed = legalize_graph(plan.rounded(narrowed).graph, device)
    return formed.with_notes(made.notes)


def _narrow_weights(
    plan: QuantizationPlan, layers: Sequence[Layer], policy: QuantizationPolicy, device: Device
) -> Mapping[str, int]:
    """How many bits each node's weights have when all fit, or when none can be narrower."""
    bits, now = dict(policy.bits), {layer.name: layer for layer in layers}
    nodes = {
        n.name: n
        for n in plan.graph.nodes
        if n.op.name in MAIN_OPS and n.name in now and n.name not in policy.bits
    }
    harms = {name: _measure_harm(plan, node) for name, node in nodes.items()}
    while _count_missing_words(list(now.values()), device) > 0:
        taken = dict(zip(now, (w * n for w, n in _count_words(list(now.values()), device)), strict=True))
        left = {
            name: harms[name][bits.get(name, 8)] / taken[name]
            for name in nodes
            if bits.get(name, 8) in NARROWER_BITS
        }
        if not left:
            break
        name = min(left, key=left.__getitem__)
        bits[name] = NARROWER_BITS[bits.get(name, 8)]
        weights = now[name].weights
        assert weights is not None
        now[name] = replace(now[name], weights=replace(weights, bits=min(weights.bits, bits[name])))
    return bits


def _measure_harm(plan: QuantizationPlan, node: Node) -> dict[int, float]:
    """For each width of weights, how much more of the output the next one loses."""
    errors = {bits: plan.choose(node, bits).error for bits in {*NARROWER_BITS, *NARROWER_BITS.values()}}
    signal = float(plan.seen[node.outputs[0]].power.sum()) or 1.0
    return {
        bits: max(errors[narrower] - errors[bits], 0.0) / signal for bits, narrower in NARROWER_BITS.items()
    }


def _count_words(layers: Sequence[Layer], device: Device) -> list[tuple[int, int]]:
    """For each layer the words that it takes of each processor's weight memory, and of how many processors."""
    places = [
        Place(contiguous_slots(layer.channels), contiguous_slots(layer.out_channels)) for layer in layers
    ]
    made = {unit.index: unit for unit in make_units(layers, places, device) if unit.layer.weights is not None}
    counts = {i: (-(-words_of(u) // ALIGNMENT) * ALIGNMENT, len(u.processors)) for i, u in made.items()}
    return [counts.get(i, (0, 0)) for i in range(len(layers))]


def _count_missing_words(layers: Sequence[Layer], device: Device) -> float:
    """Words of weight memory that are missing; those of layers that must share processors, or of all."""
    found = _count_words(layers, device)
    shared = sum(words for words, count in found if count > PROCESSORS // 2)
    return max(
        shared - device.kernel_words,
        sum(w * n for w, n in found) / PROCESSORS - device.kernel_words * USABLE_SHARE,
    )

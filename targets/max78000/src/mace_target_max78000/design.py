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
from mace_frontend_ai8x.network import Layer, LayerPlacement, Network
from mace_target_max78000.check.graph_comparison import AcceleratorResults
from mace_target_max78000.device import PROCESSORS, Chip
from mace_target_max78000.encode.weight_memory import ALIGNMENT, words_of
from mace_target_max78000.legalize.layer_fields import MAIN_OPS
from mace_target_max78000.legalize.pipeline import LegalizedGraph, legalize_graph, split_long_bias
from mace_target_max78000.options import Options
from mace_target_max78000.place.inserted_layers import PART_SUFFIX
from mace_target_max78000.place.search import place_layers
from mace_target_max78000.place.values import contiguous_slots, make_units
from mace_target_max78000.quantize.calibrate import random_inputs
from mace_target_max78000.quantize.plan import (
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
    legalized: LegalizedGraph
    options: Options
    inputs: Mapping[str, Array]

    def collect_results(self, outputs: Sequence[Array]) -> AcceleratorResults:
        """Collect what the accelerator computes, by legalized layer.

        outputs: of each layer of the network, which has further layers between, and several for one where
        channels are cut.
        """
        parts: dict[str, list[Array]] = {layer.name: [] for layer in self.legalized.layers}
        for layer, output in zip(self.network.layers, outputs, strict=True):
            name = layer.name if layer.name in parts else PART_SUFFIX.sub("", layer.name)
            if name in parts:
                parts[name].append(output)
        results = {name: np.concatenate(arrays) for name, arrays in parts.items() if arrays}
        return AcceleratorResults(self.legalized, self.network.sample, results)


def design_network(
    graph: Graph,
    samples: Sequence[Mapping[str, Array]],
    device: Chip,
    options: Options,
    policy: QuantizationPolicy,
) -> DesignedNetwork:
    """Design the network of a graph; its sample is the first of the samples, else random numbers.

    samples: inputs by name, real numbers.
    Results are 32-bit sums where these fit, else 8 bits with a note.
    MaceError with everything that the device cannot compute, or that does not fit.
    """
    try:
        return _design_with(graph, samples, device, options, policy)
    except MaceError as error:
        if is_quantized(graph) or not policy.wide or not _has_wide_results(graph, device):
            raise
        # Sums take four times the data memory of bytes, which may be what does not fit.
        narrow = replace(policy, wide=False)
        try:
            design = _design_with(graph, samples, device, options, narrow)
        except MaceError:
            # With 8 bits it does not fit either: report the faults of the network that was asked for.
            raise error from None
        reason = str(error).splitlines()[0]
    note = f"its results have 8 bits in place of 32, with which it would not fit: {reason}"
    return replace(design, network=replace(design.network, notes=(*design.network.notes, note)))


def _has_wide_results(graph: Graph, device: Chip) -> bool:
    """Whether the last layer of a graph of real numbers would give 32-bit sums.

    False for a graph that cannot be legalized at all.
    """
    try:
        return any(layer.wide for layer in legalize_graph(draft_quantization(graph), device).layers)
    except MaceError:
        return False


def _design_with(
    graph: Graph,
    samples: Sequence[Mapping[str, Array]],
    device: Chip,
    options: Options,
    policy: QuantizationPolicy,
) -> DesignedNetwork:
    """Design the network with the results that the policy asks for."""
    legalized = split_long_bias(quantize_and_legalize(graph, device, samples, policy), device)
    if not is_quantized(graph):
        # Rounded means of real numbers are nearer to them than those cut off.
        options = replace(options, avg_pool_rounding=True)
    inputs = samples[0] if samples else random_inputs(graph, policy.limits, 1)[0]
    sample = legalized.network_input.apply(inputs[legalized.network_input.name])
    placed = place_layers(legalized.layers, sample.shape, device, options)
    network = Network(graph.name, placed.layers, placed.places, sample, notes=legalized.notes, recounts=True)
    return DesignedNetwork(network, legalized, placed.options, inputs)


NARROWER_BITS: Mapping[int, int] = {8: 4, 4: 2}
"""Bits that weights have next.

Not 1 after 2: weights of one bit are -1 and 0, and no rounding survives the loss of all positive ones.
"""

USABLE_SHARE = 0.97
"""Share of weight memory that layers can be expected to fill without gaps."""


def quantize_and_legalize(
    graph: Graph, device: Chip, samples: Sequence[Mapping[str, Array]], policy: QuantizationPolicy
) -> LegalizedGraph:
    """Return the layers of any graph, which is quantized for this target if it is not yet.

    Its weights are as wide as weight memory allows.
    samples: inputs by name, real numbers, to quantize by.  MaceError with every node that the device has no
    equivalent of.
    """
    if is_quantized(graph):
        return legalize_graph(graph, device)
    # First with any numbers: this refuses what no quantization helps, before samples are run.
    legalize_graph(draft_quantization(graph), device)
    plan = calibrate(graph, samples, policy)
    quantized = plan.round_weights(policy.bits)
    legalized = legalize_graph(quantized.graph, device)
    bits = _narrow_weights(plan, legalized.layers, policy, device)
    if bits != policy.bits:
        legalized = legalize_graph(plan.round_weights(bits).graph, device)
    return legalized.with_notes(quantized.notes)


def _narrow_weights(
    plan: QuantizationPlan, layers: Sequence[Layer], policy: QuantizationPolicy, device: Chip
) -> Mapping[str, int]:
    """Return the bits of each node's weights with which all fit, or with which none can be narrower.

    Again and again the layer is narrowed that loses least for each word that it frees.
    """
    bits, current = dict(policy.bits), {layer.name: layer for layer in layers}
    nodes = {}
    for node in plan.graph.nodes:
        # What the policy names stays as it says.
        if node.op.name in MAIN_OPS and node.name in current and node.name not in policy.bits:
            nodes[node.name] = node
    extra_losses = {name: _measure_extra_loss(plan, node) for name, node in nodes.items()}
    while _count_missing_words([*current.values()], device) > 0:
        counts = _count_words([*current.values()], device)
        totals = dict(zip(current, (words * processors for words, processors in counts), strict=True))
        narrowable = [name for name in nodes if bits.get(name, 8) in NARROWER_BITS]
        if not narrowable:
            break
        losses = {name: extra_losses[name][bits.get(name, 8)] / totals[name] for name in narrowable}
        name = min(losses, key=losses.__getitem__)
        bits[name] = NARROWER_BITS[bits.get(name, 8)]
        weights = current[name].weights
        assert weights is not None
        narrowed = replace(weights, bits=min(weights.bits, bits[name]))
        current[name] = replace(current[name], weights=narrowed)
    return bits


def _measure_extra_loss(plan: QuantizationPlan, node: Node) -> dict[int, float]:
    """Return for each width of weights how much more of the output the next one loses."""
    errors = {bits: plan.choose(node, bits).error for bits in {*NARROWER_BITS, *NARROWER_BITS.values()}}
    signal = float(plan.seen[node.outputs[0]].power.sum()) or 1.0
    return {
        bits: max(errors[narrower] - errors[bits], 0.0) / signal for bits, narrower in NARROWER_BITS.items()
    }


def _count_words(layers: Sequence[Layer], device: Chip) -> list[tuple[int, int]]:
    """Return for each layer the words that it takes of each processor's weight memory, and of how many."""
    places = [
        LayerPlacement(contiguous_slots(layer.channels), contiguous_slots(layer.out_channels))
        for layer in layers
    ]
    counts = {}
    for unit in make_units(layers, places, device):
        if unit.layer.weights is not None:
            words = -(-words_of(unit) // ALIGNMENT) * ALIGNMENT
            counts[unit.index] = (words, len(unit.processors))
    return [counts.get(index, (0, 0)) for index in range(len(layers))]


def _count_missing_words(layers: Sequence[Layer], device: Chip) -> float:
    """Return how many words of weight memory are missing, by the tighter of two bounds."""
    counts = _count_words(layers, device)
    # Layers of more than half of the processors must share some, whatever their places; all together must
    # fit on average.
    shared = sum(words for words, processors in counts if processors > PROCESSORS // 2)
    mean = sum(words * processors for words, processors in counts) / PROCESSORS
    return max(shared - device.kernel_words, mean - device.kernel_words * USABLE_SHARE)

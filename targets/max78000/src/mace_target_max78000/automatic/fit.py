"""Weights narrowed until weight memory holds them: again and again the layer that suffers least for what it frees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from mace_core.ir import Array, Graph, Node
from mace_target_max78000.automatic.forming import Formed, form
from mace_target_max78000.automatic.placement.values import contiguous, in_hardware
from mace_target_max78000.automatic.quantizing.quantize import (
    MAIN,
    Plan,
    Policy,
    calibrated,
    draft,
    is_quantized,
)
from mace_target_max78000.device import PROCESSORS, Device
from mace_target_max78000.network import Layer, Place
from mace_target_max78000.synthesis.kernels import ALIGNMENT, words_of

NARROWER: Mapping[int, int] = {8: 4, 4: 2}
"""What weights of so many bits become next; of 1 bit there is no positive one, which no rounding survives."""

SHARE = 0.97
"""Of weight memory that layers can be expected to fill without gaps."""


def prepare(graph: Graph, device: Device, samples: Sequence[Mapping[str, Array]], policy: Policy) -> Formed:
    """The layers of any graph, quantised for this target if it is not yet, its weights as wide as weight memory allows.

    samples: inputs by name, real numbers, to quantise by.  MaceError with every node that the device has no
    equivalent of.
    """
    if is_quantized(graph):
        return form(graph, device)
    form(draft(graph), device)  # refuses what no quantisation helps, before any is looked for
    plan = calibrated(graph, samples, policy)
    made = plan.rounded(policy.bits)
    formed = form(made.graph, device)
    narrowed = _narrowed(plan, formed.layers, policy, device)
    if narrowed != policy.bits:
        formed = form(plan.rounded(narrowed).graph, device)
    return formed.noted(made.notes)


def _narrowed(plan: Plan, layers: Sequence[Layer], policy: Policy, device: Device) -> Mapping[str, int]:
    """How many bits each node's weights have when all fit, or when none can be narrower."""
    bits, now = dict(policy.bits), {layer.name: layer for layer in layers}
    nodes = {
        n.name: n
        for n in plan.graph.nodes
        if n.op.name in MAIN and n.name in now and n.name not in policy.bits
    }
    harms = {name: _harms(plan, node) for name, node in nodes.items()}
    while _excess(list(now.values()), device) > 0:
        taken = dict(zip(now, (w * n for w, n in _words(list(now.values()), device)), strict=True))
        left = {
            name: harms[name][bits.get(name, 8)] / taken[name]
            for name in nodes
            if bits.get(name, 8) in NARROWER
        }
        if not left:
            break
        name = min(left, key=left.__getitem__)
        bits[name] = NARROWER[bits.get(name, 8)]
        weights = now[name].weights
        assert weights is not None
        now[name] = replace(now[name], weights=replace(weights, bits=min(weights.bits, bits[name])))
    return bits


def _harms(plan: Plan, node: Node) -> dict[int, float]:
    """For each width of weights, how much more of the output the next one loses."""
    errors = {bits: plan.choose(node, bits).error for bits in {*NARROWER, *NARROWER.values()}}
    signal = float(plan.seen[node.outputs[0]].power.sum()) or 1.0
    return {bits: max(errors[narrower] - errors[bits], 0.0) / signal for bits, narrower in NARROWER.items()}


def _words(layers: Sequence[Layer], device: Device) -> list[tuple[int, int]]:
    """For each layer the words that it takes of each processor's weight memory, and of how many processors."""
    places = [Place(contiguous(layer.channels), contiguous(layer.out_channels)) for layer in layers]
    made = {
        unit.index: unit for unit in in_hardware(layers, places, device) if unit.layer.weights is not None
    }
    counts = {i: (-(-words_of(u) // ALIGNMENT) * ALIGNMENT, len(u.processors)) for i, u in made.items()}
    return [counts.get(i, (0, 0)) for i in range(len(layers))]


def _excess(layers: Sequence[Layer], device: Device) -> float:
    """Words of weight memory that are missing; those of layers that must share processors, or of all."""
    found = _words(layers, device)
    shared = sum(words for words, count in found if count > PROCESSORS // 2)
    return max(
        shared - device.kernel_words, sum(w * n for w, n in found) / PROCESSORS - device.kernel_words * SHARE
    )

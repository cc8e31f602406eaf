"""Weights narrowed until weight memory holds them: again and again the layer that suffers least for what it frees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mace_core.ir import Array, Graph
from mace_target_max78000.automatic.forming import Formed, form
from mace_target_max78000.automatic.placement.values import contiguous, in_hardware
from mace_target_max78000.automatic.quantizing.quantize import Plan, Policy, calibrated, draft, is_quantized
from mace_target_max78000.device import PROCESSORS, Device
from mace_target_max78000.network import Layer, Place
from mace_target_max78000.synthesis.kernels import ALIGNMENT, words_of

NARROWER: Mapping[int, int] = {8: 4, 4: 2}
"""What weights of so many bits become next; of 1 bit there is no positive one, which no rounding survives."""

SHARE = 0.97
"""Of weight memory that layers can be expected to fill without gaps."""


def prepare(graph: Graph, device: Device, samples: Sequence[Mapping[str, Array]], policy: Policy) -> Formed:
    """The layers of any graph, quantised for this target if it is not yet, its weights as wide as weight memory allows.

    samples: inputs by name, real numbers, to quantise by.  MaceError with every node that the device has no equivalent of.
    """
    if is_quantized(graph):
        return form(graph, device)
    form(draft(graph), device)  # refuses what no quantisation helps, before any is looked for
    plan = calibrated(graph, samples, policy)
    bits = dict(policy.bits)
    while True:
        made = plan.rounded(bits)
        formed = form(made.graph, device).noted(made.notes)
        narrowed = _next(plan, bits, formed, policy, device) if _excess(formed.layers, device) > 0 else None
        if narrowed is None:
            return formed
        bits |= narrowed


def _words(layers: Sequence[Layer], device: Device) -> list[tuple[int, int]]:
    """For each layer the words that it takes of each processor's weight memory, and of how many processors."""
    places = [Place(contiguous(layer.channels), contiguous(layer.out_channels)) for layer in layers]
    made = {unit.index: unit for unit in in_hardware(layers, places, device) if unit.layer.weights is not None}
    counts = {i: (-(-words_of(u) // ALIGNMENT) * ALIGNMENT, len(u.processors)) for i, u in made.items()}
    return [counts.get(i, (0, 0)) for i in range(len(layers))]


def _excess(layers: Sequence[Layer], device: Device) -> float:
    """Words of weight memory that are missing; those of layers that must share processors, or of all."""
    found = _words(layers, device)
    shared = sum(words for words, count in found if count > PROCESSORS // 2)
    return max(shared - device.kernel_words, sum(w * n for w, n in found) / PROCESSORS - device.kernel_words * SHARE)


def _next(plan: Plan, bits: Mapping[str, int], formed: Formed, policy: Policy, device: Device) -> dict[str, int] | None:
    """The node to narrow next, and to what; None if there is none left."""
    freed = {layer.name: words * count for layer, (words, count) in zip(formed.layers, _words(formed.layers, device), strict=True)}
    best: tuple[float, str, int] | None = None
    for node in plan.graph.nodes:
        now = bits.get(node.name, 8)
        if node.name in policy.bits or now not in NARROWER or not freed.get(node.name):
            continue
        signal = float(plan.seen[node.outputs[0]].power.sum()) or 1.0
        harm = (plan.choose(node, NARROWER[now]).error - plan.choose(node, now).error) / signal
        cost = harm / freed[node.name]
        if best is None or cost < best[0]:
            best = (cost, node.name, NARROWER[now])
    return {best[1]: best[2]} if best else None

"""Plans and performs the quantization of a graph of real numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Node, Quant, Tensor
from mace_core.ops.conv import ClampAttributes
from mace_core.quantization import dequantize, quantize
from mace_core.run.reference import execute
from mace_target_max78000.device import UNIT_SHIFT
from mace_target_max78000.legalize.boundary import cut_tail
from mace_target_max78000.legalize.layer_fields import MAIN_OPS
from mace_target_max78000.legalize.pipeline import absorb_limits
from mace_target_max78000.legalize.tensors import find_exponent, is_native, make_storage
from mace_target_max78000.quantize.calibrate import TensorStatistics, choose_powers, observe, random_inputs
from mace_target_max78000.quantize.real_graph import (
    as_real_graph,
    equalize_channels,
    fill_ranges,
    move_limits,
    split_large_means,
)
from mace_target_max78000.quantize.weights import RoundedWeights, describe_rounding, reshape_rows

DRAFT_POWER = -4
"""The power of two of all steps of a draft; limits such as 6 are moved numbers of these."""

MAX_MEASURED = 8
"""Samples on which ways to scale channels are compared."""


@dataclass(frozen=True)
class QuantizationPolicy:
    """How a graph is quantized.

    bits: of weights, by the name of the node; 8 where it is not named.  wide: whether the last layer gives
    32-bit sums.
    limits: of random inputs where there are no samples.  equalize: whether channels are scaled between
    layers.
    """

    bits: Mapping[str, int] = field(default_factory=dict)
    wide: bool = True
    limits: tuple[float, float] = (-1.0, 1.0)
    equalize: bool = True


@dataclass(frozen=True, eq=False)
class QuantizedGraph:
    """A graph for the accelerator, and how it came to be.

    chosen: for each node with weights what became of them.  steps: of each tensor the power of two.
    notes: what the user should know.
    """

    graph: Graph
    chosen: Mapping[str, RoundedWeights]
    steps: Mapping[str, int]
    notes: tuple[str, ...]


def is_quantized(graph: Graph) -> bool:
    """Whether a graph's tensors are stored as the accelerator stores them already."""
    inner = absorb_limits(cut_tail(graph)[0])
    computed: list[Tensor] = []
    for node in inner.nodes:
        computed += (inner.tensors[output] for output in node.outputs)
    data = [*computed, *(inner.tensors[n] for n in inner.inputs if not _is_quantized_at_once(inner, n))]
    weights = [inner.tensors[n.inputs[1]] for n in inner.nodes if n.op.name in MAIN_OPS]
    data_fits = all(
        is_native(t) or (t.name in inner.outputs and not (t.quant and t.dtype is not DType.I32)) for t in data
    )
    return data_fits and all(find_exponent(w.quant) is not None for w in weights)


def _is_quantized_at_once(graph: Graph, name: str) -> bool:
    readers = [n for n in graph.nodes if name in n.inputs]
    return bool(readers) and all(n.op.name in ("Quantize", "Reshape", "Transpose") for n in readers)


def calibrate(
    graph: Graph, samples: Sequence[Mapping[str, Array]], policy: QuantizationPolicy
) -> QuantizationPlan:
    """Plan how a graph is best rounded: with channels scaled in the way that errs least on the samples."""
    plain = split_large_means(as_real_graph(graph))
    notes = () if samples else ("the network was quantized with random inputs; give samples of real ones",)
    inputs = list(samples) or random_inputs(plain, policy.limits)
    # Both ways are measured, because equalizing helps weights and may harm the ranges of data.
    plans = [
        _make_plan(candidate, inputs, policy, notes)
        for candidate in ((plain, equalize_channels(plain)) if policy.equalize else (plain,))
    ]
    if policy.equalize:
        plans += [
            _make_plan(fill_ranges(plan.graph, plan.seen), inputs, policy, notes) for plan in tuple(plans)
        ]
    return (
        min(plans, key=lambda plan: plan.error(policy.bits, inputs[:MAX_MEASURED]))
        if len(plans) > 1
        else plans[0]
    )


def _make_plan(
    graph: Graph, samples: Sequence[Mapping[str, Array]], policy: QuantizationPolicy, notes: tuple[str, ...]
) -> QuantizationPlan:
    moved = move_limits(graph)
    inner, _ = cut_tail(moved)
    seen = observe(inner, samples)
    wide = _find_wide(inner) if policy.wide else set()
    return QuantizationPlan(
        moved, seen, choose_powers(inner, seen, [n for n in seen if n not in wide]), notes
    )


def draft_quantization(graph: Graph) -> Graph:
    """Quantize to bytes whatever is lost: enough to see whether the accelerator has all that it needs."""
    plain = move_limits(split_large_means(as_real_graph(graph)))
    inner, _ = cut_tail(plain)
    names = list(inner.inputs)
    for node in inner.nodes:
        names += node.outputs
    wide = _find_wide(inner)
    steps = {n: DRAFT_POWER for n in names if inner.tensors[n].dtype.is_float and n not in wide}
    nodes = [n for n in inner.nodes if n.op.name in MAIN_OPS and n.inputs[1] in inner.weights]
    # A product with a vector stays as it is, and legalizing refuses it by its name.
    chosen = {n.name: _blank_weights(inner, n) for n in nodes if len(inner.tensors[n.inputs[1]].shape) > 1}
    return _round_graph(plain, steps, chosen)


def _blank_weights(graph: Graph, node: Node) -> RoundedWeights:
    w = graph.weights[node.inputs[1]]
    rows = w.T if node.op.name == "MatMul" else w.reshape(len(w), -1)
    return RoundedWeights(np.zeros(rows.shape), -UNIT_SHIFT, np.zeros(len(rows)), 8, 0.0)


@dataclass(frozen=True, eq=False)
class QuantizationPlan:
    """A graph of real numbers and the steps of its tensors."""

    graph: Graph
    seen: Mapping[str, TensorStatistics]
    steps: Mapping[str, int]
    notes: tuple[str, ...]

    def choices(self, bits: Mapping[str, int]) -> dict[str, RoundedWeights]:
        """Return the best weights of so many bits, by the name of the node; 8 where it is not named."""
        nodes = (n for n in self.graph.nodes if n.op.name in MAIN_OPS and n.inputs[1] in self.graph.weights)
        return {n.name: self.choose(n, bits.get(n.name, 8)) for n in nodes}

    def choose(self, node: Node, bits: int) -> RoundedWeights:
        """Return the best weights of so many bits for one node."""
        arrays = [self.graph.weights[name] for name in node.inputs[1:] if name]
        return describe_rounding(
            node,
            arrays,
            self.seen[node.inputs[0]],
            (self.steps[node.inputs[0]], self.steps.get(node.outputs[0])),
        ).choose(bits)

    def round_weights(self, bits: Mapping[str, int]) -> QuantizedGraph:
        """Return the graph with weights of so many bits."""
        chosen = self.choices(bits)
        return QuantizedGraph(_round_graph(self.graph, self.steps, chosen), chosen, self.steps, self.notes)

    def error(self, bits: Mapping[str, int], samples: Sequence[Mapping[str, Array]]) -> float:
        """Return how far the results of the rounded graph are from the real ones, as a share of these."""
        exact, _ = cut_tail(self.graph)
        rounded, _ = cut_tail(self.round_weights(bits).graph)
        shares = []
        for sample in samples:
            exact_results, results = (
                execute(exact, sample),
                execute(rounded, {n: self._quantize_input(n, v) for n, v in sample.items()}),
            )
            for name in exact.outputs:
                quant = rounded.tensors[name].quant
                real = dequantize(results[name], quant) if quant else results[name]
                shares.append(
                    float(np.linalg.norm(real - exact_results[name]))
                    / max(float(np.linalg.norm(exact_results[name])), 1e-30)
                )
        return float(np.mean(shares))

    def _quantize_input(self, name: str, value: Array) -> Array:
        return quantize(value, make_storage(self.steps[name])) if name in self.steps else value


def _find_wide(graph: Graph) -> set[str]:
    """Return the outputs that can stay sums of 32 bits."""
    # A sum that another layer reads, or that an activation follows, must be bytes.
    uses = graph.uses()
    free = (n for n in graph.nodes if n.op.name in MAIN_OPS and not n.attributes(ClampAttributes).is_clamped)
    results = {node.outputs[0] for node in free}
    return {name for name in results if name in graph.outputs and uses[name] == 1}


def _round_graph(graph: Graph, steps: Mapping[str, int], chosen: Mapping[str, RoundedWeights]) -> Graph:
    """Quantize the graph in these steps, with half a step of the accumulator in each bias."""
    builder = Builder(graph.name)
    builder.reserved = frozenset(graph.tensors)
    builder.storages = {name: make_storage(power) for name, power in steps.items()}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        builder.input(
            name,
            DType.I8 if name in steps else tensor.dtype,
            tensor.shape,
            make_storage(steps[name]).quant if name in steps else None,
        )
    for name, array in graph.weights.items():
        builder.weights[name], builder.tensors[name] = array, graph.tensors[name]
    for node in graph.nodes:
        inputs = node.inputs
        if node.name in chosen:
            inputs = (inputs[0], *_add_parameters(builder, node, chosen[node.name], steps))
        builder.add(node.op, inputs, node.attrs, outputs=node.outputs, like=node)
    return builder.finish(graph.outputs)


def _add_parameters(
    builder: Builder, node: Node, chosen: RoundedWeights, steps: Mapping[str, int]
) -> tuple[str, str]:
    w = builder.weight(
        f"{node.inputs[1]}.stored",
        reshape_rows(chosen.values, node, builder.shape(node.inputs[1])),
        Quant.of(2.0**chosen.power),
    )
    unit = chosen.power + steps[node.inputs[0]]
    result = steps.get(node.outputs[0])
    # The hardware rounds halves up, a stored tensor of the graph to even. With half a step of the accumulator
    # a sum never lies on a half, and both round alike.
    half = 1 if result is not None and result > unit else 0
    bias = (2 * 2**UNIT_SHIFT * chosen.bias + half).astype(np.int32)
    return w, builder.weight(f"{node.name}.bias.stored", bias, Quant.of(2.0 ** (unit - 1)))

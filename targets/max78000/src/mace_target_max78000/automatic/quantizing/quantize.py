"""A graph of real numbers as one that the accelerator computes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Node, Quant
from mace_core.quantization import dequantize, quantize
from mace_core.run.reference import execute
from mace_target_max78000.automatic.forming.ends import without_tail
from mace_target_max78000.automatic.forming.lower import gathered
from mace_target_max78000.automatic.powers import exponent, is_native, storage
from mace_target_max78000.automatic.quantizing.equalize import equalized, filled, unlimited
from mace_target_max78000.automatic.quantizing.floats import as_floats, prepared
from mace_target_max78000.automatic.quantizing.observe import Seen, observe, random_inputs
from mace_target_max78000.automatic.quantizing.steps import powers
from mace_target_max78000.automatic.quantizing.weights import UNIT, Chosen, job, shaped

MAIN = ("Conv", "ConvTranspose", "MatMul")

DRAFT = -4
"""The power of two of all steps of a draft; limits such as 6 are whole numbers of these."""

MEASURED = 8
"""Samples on which ways to scale channels are compared."""


@dataclass(frozen=True)
class Policy:
    """How a graph is quantised.

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
class Quantized:
    """A graph for the accelerator, and how it came to be.

    chosen: for each node with weights what became of them.  steps: of each tensor the power of two.
    notes: what the user should know.
    """

    graph: Graph
    chosen: Mapping[str, Chosen]
    steps: Mapping[str, int]
    notes: tuple[str, ...]


def is_quantized(graph: Graph) -> bool:
    """Whether a graph's tensors are stored as the accelerator stores them already."""
    inner = gathered(without_tail(graph)[0])
    made = [inner.tensors[o] for node in inner.nodes for o in node.outputs]
    data = [*made, *(inner.tensors[n] for n in inner.inputs if not _quantized_at_once(inner, n))]
    weights = [inner.tensors[n.inputs[1]] for n in inner.nodes if n.op.name in MAIN]
    sound = all(
        is_native(t) or (t.name in inner.outputs and not (t.quant and t.dtype is not DType.I32)) for t in data
    )
    return sound and all(exponent(w.quant) is not None for w in weights)


def _quantized_at_once(graph: Graph, name: str) -> bool:
    readers = [n for n in graph.nodes if name in n.inputs]
    return bool(readers) and all(n.op.name in ("Quantize", "Reshape", "Transpose") for n in readers)


def calibrated(graph: Graph, samples: Sequence[Mapping[str, Array]], policy: Policy) -> Plan:
    """How a graph is best rounded: with channels scaled in the way, of those known, that errs least on the samples."""
    plain = prepared(as_floats(graph))
    notes = () if samples else ("the network was quantised with random inputs; give samples of real ones",)
    given = list(samples) or random_inputs(plain, policy.limits)
    plans = [
        _plan(candidate, given, policy, notes)
        for candidate in ((plain, equalized(plain)) if policy.equalize else (plain,))
    ]
    if policy.equalize:
        plans += [_plan(filled(plan.graph, plan.seen), given, policy, notes) for plan in tuple(plans)]
    return (
        min(plans, key=lambda plan: plan.error(policy.bits, given[:MEASURED])) if len(plans) > 1 else plans[0]
    )


def _plan(
    graph: Graph, samples: Sequence[Mapping[str, Array]], policy: Policy, notes: tuple[str, ...]
) -> Plan:
    whole = unlimited(graph)
    inner, _ = without_tail(whole)
    seen = observe(inner, samples)
    wide = _wide(inner) if policy.wide else set()
    return Plan(whole, seen, powers(inner, seen, [n for n in seen if n not in wide]), notes)


def draft(graph: Graph) -> Graph:
    """The graph with bytes everywhere, whatever they lose: enough to see whether the accelerator has all that it needs."""
    plain = unlimited(prepared(as_floats(graph)))
    inner, _ = without_tail(plain)
    names = [*inner.inputs, *(o for node in inner.nodes for o in node.outputs)]
    steps = {n: DRAFT for n in names if inner.tensors[n].dtype.is_float and n not in _wide(inner)}
    nodes = [n for n in inner.nodes if n.op.name in MAIN and n.inputs[1] in inner.weights]
    chosen = {n.name: _blank(inner, n) for n in nodes}
    return _rounded(plain, steps, chosen)


def _blank(graph: Graph, node: Node) -> Chosen:
    w = graph.weights[node.inputs[1]]
    rows = w.T if node.op.name == "MatMul" else w.reshape(len(w), -1)
    return Chosen(np.zeros(rows.shape), -UNIT, np.zeros(len(rows)), 8, 0.0)


@dataclass(frozen=True, eq=False)
class Plan:
    """A graph of real numbers and the steps of its tensors."""

    graph: Graph
    seen: Mapping[str, Seen]
    steps: Mapping[str, int]
    notes: tuple[str, ...]

    def choices(self, bits: Mapping[str, int]) -> dict[str, Chosen]:
        """The best weights of so many bits, by the name of the node; 8 where it is not named."""
        nodes = (n for n in self.graph.nodes if n.op.name in MAIN and n.inputs[1] in self.graph.weights)
        return {n.name: self.choose(n, bits.get(n.name, 8)) for n in nodes}

    def choose(self, node: Node, bits: int) -> Chosen:
        """The best weights of so many bits for one node."""
        arrays = [self.graph.weights[name] for name in node.inputs[1:] if name]
        return job(
            node,
            arrays,
            self.seen[node.inputs[0]],
            (self.steps[node.inputs[0]], self.steps.get(node.outputs[0])),
        ).choose(bits)

    def rounded(self, bits: Mapping[str, int]) -> Quantized:
        """The graph with weights of so many bits."""
        chosen = self.choices(bits)
        return Quantized(_rounded(self.graph, self.steps, chosen), chosen, self.steps, self.notes)

    def error(self, bits: Mapping[str, int], samples: Sequence[Mapping[str, Array]]) -> float:
        """How far the results of the rounded graph are from the real ones, as a share of these."""
        exact, _ = without_tail(self.graph)
        rounded, _ = without_tail(self.rounded(bits).graph)
        shares = []
        for sample in samples:
            want, found = (
                execute(exact, sample),
                execute(rounded, {n: self._stored(n, v) for n, v in sample.items()}),
            )
            for name in exact.outputs:
                quant = rounded.tensors[name].quant
                real = dequantize(found[name], quant) if quant else found[name]
                shares.append(
                    float(np.linalg.norm(real - want[name])) / max(float(np.linalg.norm(want[name])), 1e-30)
                )
        return float(np.mean(shares))

    def _stored(self, name: str, value: Array) -> Array:
        return quantize(value, storage(self.steps[name])) if name in self.steps else value


def _wide(graph: Graph) -> set[str]:
    """The outputs that can stay sums of 32 bits."""
    uses = graph.uses()
    free = (
        n
        for n in graph.nodes
        if n.op.name in MAIN and n.attrs["low"] == -math.inf and n.attrs["high"] == math.inf
    )
    return {o for n in free for o in n.outputs if o in graph.outputs and uses[o] == 1}


def _rounded(graph: Graph, steps: Mapping[str, int], chosen: Mapping[str, Chosen]) -> Graph:
    """The graph with these steps, and half a step of the accumulator in each bias, so that its rounding is the hardware's."""
    new = Builder(graph.name)
    new.reserved = frozenset(graph.tensors)
    new.storages = {name: storage(power) for name, power in steps.items()}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        new.input(
            name,
            DType.I8 if name in steps else tensor.dtype,
            tensor.shape,
            storage(steps[name]).quant if name in steps else None,
        )
    for name, array in graph.weights.items():
        new.weights[name], new.tensors[name] = array, graph.tensors[name]
    for node in graph.nodes:
        inputs = node.inputs
        if node.name in chosen:
            inputs = (inputs[0], *_parameters(new, node, chosen[node.name], steps))
        new.add(node.op, inputs, node.attrs, outputs=node.outputs, like=node)
    return new.finish(graph.outputs)


def _parameters(new: Builder, node: Node, chosen: Chosen, steps: Mapping[str, int]) -> tuple[str, str]:
    w = new.weight(
        f"{node.inputs[1]}.stored",
        shaped(chosen.values, node, new.shape(node.inputs[1])),
        Quant.of(2.0**chosen.power),
    )
    unit = chosen.power + steps[node.inputs[0]]
    result = steps.get(node.outputs[0])
    half = 1 if result is not None and result > unit else 0
    bias = (2 * 2**UNIT * chosen.bias + half).astype(np.int32)
    return w, new.weight(f"{node.name}.bias.stored", bias, Quant.of(2.0 ** (unit - 1)))

"""Compares what the accelerator computes with the graph that the network was made of, tensor by tensor.

The graph is computed by the numpy references of its operations; nothing here knows how layers were formed or
placed. Each tensor in the accelerator's memory is compared with what the graph makes of the accelerator's own
operands. So a difference is reported where it arises, and the one freedom of rounding, halves that lie
between two results, does not add up from layer to layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from mace_core.errors import MaceError
from mace_core.ir import Array, Graph, Node, Tensor
from mace_core.ops.pool import PoolAttributes
from mace_core.quantization import dequantize, quantize
from mace_frontend_ai8x.network import INPUT
from mace_target_max78000.check.program import REPORT
from mace_target_max78000.legalize.boundary import cut_tail
from mace_target_max78000.legalize.layer_fields import MAIN_OPS, quantize_bias
from mace_target_max78000.legalize.pipeline import LegalizedGraph, absorb_limits
from mace_target_max78000.legalize.tensors import VIEW_OPS, find_exponent
from mace_target_max78000.options import Options

MEAN_OPS = ("AveragePool", "ReduceMean")
HALF_STEP = 0.5
"""Of a step: how far a rounded result may be from the real one."""
FLOAT_NOISE = 1e-6
"""Of a step: what float64 loses where the accelerator's integers are exact."""


@dataclass(frozen=True, eq=False)
class AcceleratorResults:
    """What the accelerator computes of one input.

    sample: the network's input, [channels, ...].  results: of the legalized layers, by name, integers
    [channels, rows, columns].
    """

    legalized: LegalizedGraph
    sample: Array
    results: Mapping[str, Array]

    def blocks(self) -> Mapping[int, Array]:
        """Return flat results by layer, the sample under INPUT.

        Of layers that one was split into for its bias, the first has the results of all.
        """
        blocks: dict[int, Array] = {INPUT: self.sample.reshape(-1)}
        pairs = list(zip(self.legalized.layers, self.legalized.tensors, strict=True))
        for index in set(self.legalized.layer_of.values()) - {INPUT}:
            name = self.legalized.tensors[index]
            parts = [self.results[layer.name] for layer, tensor in pairs if tensor == name]
            blocks[index] = np.concatenate(parts).reshape(-1)
        return blocks


def compare_with_graph(
    results: AcceleratorResults, inputs: Mapping[str, Array], options: Options
) -> dict[str, Array]:
    """Compare results with the graph's.

    inputs: of the graph, by name; real numbers, or integers as they are stored.
    Returns every tensor of the graph, those in memory as the accelerator has them.
    MaceError: names the first layer that differs.
    """
    return _Comparison(results, options).values(inputs)


class _Comparison:
    """Computes a graph and takes over what the accelerator has in memory, once it has been compared."""

    def __init__(self, results: AcceleratorResults, options: Options) -> None:
        self.legalized = results.legalized
        self.graph = results.legalized.graph
        self.blocks = results.blocks()
        self.options = options
        self.slack = _bias_slack(self.graph)
        self.supplied = set(self.graph.inputs)

    def values(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Compute every tensor of the graph."""
        values: dict[str, Array] = dict(self.graph.weights)
        for name, array in inputs.items():
            values[name] = self._take_over(self.graph.tensors[name], self._real(name, array))
        for node in self.graph.nodes:
            reals = [self._real(name, values[name]) if name else None for name in node.inputs]
            computed = node.op.compute(reals, node.attrs)
            for real, tensor in zip(computed, self.graph.outputs_of(node), strict=False):
                values[tensor.name] = self._store_result(node, tensor, np.asarray(real).reshape(tensor.shape))
        return values

    def _real(self, name: str, array: Array) -> Array:
        """Return the real numbers that an array stands for."""
        quant = self.graph.tensors[name].quant
        return dequantize(array, quant) if quant and array.dtype.kind != "f" else array

    def _store_result(self, node: Node, tensor: Tensor, real: Array) -> Array:
        """Return a node's result as it is stored, compared where the accelerator has it in memory."""
        source = node.inputs[0] if node.inputs else ""
        if node.op.name in VIEW_OPS:
            self.supplied |= {tensor.name} if source in self.supplied else set()
            return _store(tensor, real)
        if node.op.name == "Quantize" and source in self.supplied and not self.graph.tensors[source].quant:
            return _store(tensor, real)  # the application rounds the model's input, halves to even
        if node.op.name in MEAN_OPS and tensor.quant:
            # The hardware's mean is computed here as it rounds, so nothing may differ.
            return self._take_over(tensor, self._round_mean(node, tensor, real), limit=0)
        return self._take_over(tensor, real)

    def _take_over(self, tensor: Tensor, real: Array, limit: float = HALF_STEP) -> Array:
        """Compare a tensor with the accelerator's integers in memory, and return these.

        Returns the result as the graph stores it for what is never in memory.
        """
        place = self.legalized.find(tensor.name)
        if place is None:
            return _round_half_up(tensor, real)
        # Of a folded input there are copies in memory, which the first layer's result is compared with.
        if place[0] == INPUT and self.legalized.network_input.fold:
            return _store(tensor, real)
        index, positions = place
        integers_in_memory = self.blocks[index][positions].reshape(tensor.shape)
        step = tensor.quant.scale[0] if tensor.quant else 2.0 ** self.legalized.powers[index]
        exact = real / step
        if tensor.quant:
            limits = np.iinfo(tensor.dtype.numpy)
            exact = np.clip(exact, limits.min, limits.max)
        slack = self.slack.get(tensor.name, np.zeros(1)) / step
        if slack.size not in (1, tensor.shape[-1]):  # channels were joined to rows on the way
            slack = slack.max()
        wrong = np.abs(exact - integers_in_memory) > limit + FLOAT_NOISE + slack
        if wrong.any():
            self._raise(index, integers_in_memory, exact, wrong)
        if not tensor.quant:
            return np.asarray(integers_in_memory * step)
        return np.asarray(integers_in_memory.astype(tensor.dtype.numpy))

    def _round_mean(self, node: Node, tensor: Tensor, real: Array) -> Array:
        """Round a mean of integers as the hardware does: towards zero, or halves away from zero.

        The vendor's document says that it rounds down, or halves up; `documented` asks for that.
        """
        assert tensor.quant is not None
        count = self._count_averaged(node)
        total = np.rint(real / tensor.quant.scale[0] * count)
        # A layer of one-dimensional convolution never rounds the mean that it begins with; see `arithmetic`.
        rounds = self.options.avg_pool_rounding
        if not self.options.documented:
            rounds = rounds and not self._begins_line(tensor.name)
        size = total if self.options.documented else np.abs(total)
        mean = np.floor((2 * size + count) / (2 * count)) if rounds else np.floor(size / count)
        if not self.options.documented:
            mean = np.sign(total) * mean
        return np.asarray(mean * tensor.quant.scale[0])

    def _count_averaged(self, node: Node) -> int:
        """Return how many elements each mean is of."""
        if node.op.name == "AveragePool":
            return prod(node.attributes(PoolAttributes).kernel)
        before, after = self.graph.tensors[node.inputs[0]], self.graph.tensors[node.outputs[0]]
        return before.elements // after.elements

    def _begins_line(self, tensor: str) -> bool:
        """Whether the layer that computes a tensor is a one-dimensional convolution."""
        while (place := self.legalized.find(tensor)) is None:
            reader = next((n for n in self.graph.nodes if tensor in n.inputs), None)
            if reader is None:
                return False
            tensor = reader.outputs[0]
        return place[0] != INPUT and self.legalized.layers[place[0]].one_dimensional

    def _raise(self, index: int, computed: Array, exact: Array, wrong: Array) -> None:
        """Raise a MaceError that names the layer and the first result that differs."""
        name = "the network's input" if index == INPUT else f"layer {self.legalized.layers[index].name!r}"
        position = tuple(int(i) for i in np.argwhere(wrong)[0])
        differ = f"{int(wrong.sum())} of {wrong.size} results differ from the graph's"
        values = f"the accelerator computes {int(computed[position])}, the graph {float(exact[position]):g}"
        problem = f"{differ}: at {list(position)} {values}"
        raise MaceError(f"{self.graph.name}: {name}", problem, REPORT)


def _store(tensor: Tensor, real: Array) -> Array:
    """Return a result as the graph stores it; real numbers keep all their digits."""
    if tensor.storage:
        return quantize(real, tensor.storage)
    return real if tensor.dtype.is_float else real.astype(tensor.dtype.numpy)


def _round_half_up(tensor: Tensor, real: Array) -> Array:
    """Round a result inside a layer, such as one that an Abs is taken of: halves up, as the hardware does."""
    if not tensor.storage or tensor.quant is None:
        return _store(tensor, real)
    scale = tensor.quant.scale[0]
    return quantize(np.floor(real / scale + HALF_STEP) * scale, tensor.storage)


def _bias_slack(graph: Graph) -> dict[str, Array]:
    """Return what layers' biases lose: real numbers by tensor, for each channel.

    They count steps of 128 of the accumulator, and 8 bits may not hold them.
    """
    inner = absorb_limits(cut_tail(graph)[0])
    losses: dict[str, Array] = {}
    for node in inner.nodes:
        if node.op.name not in MAIN_OPS or len(node.inputs) < 3 or not node.inputs[2]:
            continue
        data, weights = (find_exponent(inner.tensors[name].quant) for name in node.inputs[:2])
        if data is None or weights is None:
            continue
        bias = quantize_bias(inner, node, data + weights)
        result = node.outputs[0]
        if result not in graph.tensors:  # the graph has only the absolute values
            result = next(n.outputs[0] for n in inner.nodes if result in n.inputs)
        losses[result] = np.abs(bias.exact - bias.values) * bias.step
    return losses

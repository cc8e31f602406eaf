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
from mace_core.ops.arguments import integers
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

    sample: the network's input, [channels, ...].  results: of the layers that were formed, by name, integers
    [channels, rows, columns].
    """

    formed: LegalizedGraph
    sample: Array
    results: Mapping[str, Array]

    def blocks(self) -> Mapping[int, Array]:
        """Results by layer, flat; the first of layers that one was split into for its bias has those of all.

        INPUT: the sample.
        """
        found: dict[int, Array] = {INPUT: self.sample.reshape(-1)}
        pairs = list(zip(self.formed.layers, self.formed.tensors, strict=True))
        for index in set(self.formed.layer_of.values()) - {INPUT}:
            parts = [
                self.results[layer.name] for layer, tensor in pairs if tensor == self.formed.tensors[index]
            ]
            found[index] = np.concatenate(parts).reshape(-1)
        return found


def compare_with_graph(
    found: AcceleratorResults, inputs: Mapping[str, Array], options: Options
) -> dict[str, Array]:
    """Compare results with the graph's.

    Returns every tensor of the graph, those in memory as the accelerator has them.

    inputs: of the graph, by name; real numbers, or integers as they are stored.  Raises MaceError that names
    the first layer that differs.
    """
    return _Comparison(found, options).values(inputs)


class _Comparison:
    """Computes a graph and takes over what the accelerator has in memory, once it has been compared."""

    def __init__(self, found: AcceleratorResults, options: Options) -> None:
        self.formed = found.formed
        self.graph = found.formed.graph
        self.blocks = found.blocks()
        self.options = options
        self.slack = _bias_slack(self.graph)
        self.given = set(self.graph.inputs)

    def values(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Every tensor of the graph."""
        values: dict[str, Array] = dict(self.graph.weights)
        for name, array in inputs.items():
            values[name] = self._settled(self.graph.tensors[name], self._real(name, array))
        for node in self.graph.nodes:
            reals = [self._real(i, values[i]) if i else None for i in node.inputs]
            made = node.op.compute(reals, node.attrs)
            for real, tensor in zip(made, self.graph.outputs_of(node), strict=False):
                values[tensor.name] = self._of_node(node, tensor, np.asarray(real).reshape(tensor.shape))
        return values

    def _real(self, name: str, stored: Array) -> Array:
        quant = self.graph.tensors[name].quant
        return dequantize(stored, quant) if quant and stored.dtype.kind != "f" else stored

    def _of_node(self, node: Node, tensor: Tensor, real: Array) -> Array:
        """A node's result as it is stored."""
        source = node.inputs[0] if node.inputs else ""
        if node.op.name in VIEW_OPS:
            self.given |= {tensor.name} if source in self.given else set()
            return _store(tensor, real)
        if node.op.name == "Quantize" and source in self.given and not self.graph.tensors[source].quant:
            return _store(tensor, real)  # the application rounds the model's input, halves to even
        if node.op.name in MEAN_OPS and tensor.quant:
            return self._settled(tensor, self._mean(node, tensor, real), limit=0)
        return self._settled(tensor, real)

    def _settled(self, tensor: Tensor, real: Array, limit: float = HALF_STEP) -> Array:
        """The accelerator's integers for a tensor that it has in memory, compared.

        Else the result as the graph stores it.
        """
        place = self.formed.find(tensor.name)
        if place is None:
            return _round_half_up(tensor, real)
        # In memory are copies, which the first layer's result is compared with.
        if place[0] == INPUT and self.formed.network_input.fold:
            return _store(tensor, real)
        index, positions = place
        have = self.blocks[index][positions].reshape(tensor.shape)
        step = tensor.quant.scale[0] if tensor.quant else 2.0 ** self.formed.powers[index]
        exact = real / step
        if tensor.quant:
            limits = np.iinfo(tensor.dtype.numpy)
            exact = np.clip(exact, limits.min, limits.max)
        slack = self.slack.get(tensor.name, np.zeros(1)) / step
        wrong = np.abs(exact - have) > limit + FLOAT_NOISE + (
            slack if slack.size in (1, tensor.shape[-1]) else slack.max()
        )
        if wrong.any():
            self._raise(index, have, exact, wrong)
        return have.astype(tensor.dtype.numpy) if tensor.quant else have * step

    def _mean(self, node: Node, tensor: Tensor, real: Array) -> Array:
        """A mean as the hardware rounds it: of whole numbers, towards zero, or halves away from zero.

        A layer of one-dimensional convolution never rounds the mean that it begins with; see `arithmetic`.
        """
        assert tensor.quant is not None
        count = prod(integers(node.attrs, "kernel")) if node.op.name == "AveragePool" else self._reduced(node)
        total = np.rint(real / tensor.quant.scale[0] * count)
        rounded = self.options.avg_pool_rounding and (
            self.options.documented or not self._begins_line(tensor.name)
        )
        if self.options.documented:
            whole = np.floor((2 * total + count) / (2 * count)) if rounded else np.floor(total / count)
        else:
            size = np.abs(total)
            whole = np.sign(total) * (
                np.floor((2 * size + count) / (2 * count)) if rounded else np.floor(size / count)
            )
        return np.asarray(whole * tensor.quant.scale[0])

    def _reduced(self, node: Node) -> int:
        before, after = self.graph.tensors[node.inputs[0]], self.graph.tensors[node.outputs[0]]
        return before.elements // after.elements

    def _begins_line(self, tensor: str) -> bool:
        """Whether the layer that computes a tensor on its way is a one-dimensional convolution."""
        while (place := self.formed.find(tensor)) is None:
            reader = next((n for n in self.graph.nodes if tensor in n.inputs), None)
            if reader is None:
                return False
            tensor = reader.outputs[0]
        return place[0] != INPUT and self.formed.layers[place[0]].one_dimensional

    def _raise(self, index: int, have: Array, exact: Array, wrong: Array) -> None:
        name = "the network's input" if index == INPUT else f"layer {self.formed.layers[index].name!r}"
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        differ = f"{int(wrong.sum())} of {wrong.size} results differ from the graph's"
        problem = f"{differ}: at {list(at)} the accelerator computes {int(have[at])}, the graph {float(exact[at]):g}"
        raise MaceError(f"{self.graph.name}: {name}", problem, REPORT)


def _store(tensor: Tensor, real: Array) -> Array:
    """A result as the graph stores it; real numbers keep all their digits."""
    if tensor.storage:
        return quantize(real, tensor.storage)
    return real if tensor.dtype.is_float else real.astype(tensor.dtype.numpy)


def _round_half_up(tensor: Tensor, real: Array) -> Array:
    """A result on the way of a layer, such as that an Abs is taken of: halves are rounded up, as the hardware does."""
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

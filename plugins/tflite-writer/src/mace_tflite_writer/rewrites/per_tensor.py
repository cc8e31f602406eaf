"""One scale for weights that have several: for runtimes and types that take no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mace_core.ir import Array, DType, Graph, Node, Quant, Storage
from mace_core.quantization import dequantize, quantize
from mace_tflite_writer.rewrites.signedness import EIGHT_BITS, WEIGHTED
from mace_tflite_writer.rewrites.site import Site, rewrite_sites


@dataclass(frozen=True)
class WeightLoss:
    """Tells what weights of one scale lose against several.

    node: whose weights.  largest: the largest change of a weight.  relative: the norm of all changes, as a
    part of the norm of the weights.
    """

    node: str
    largest: float
    relative: float

    def __str__(self) -> str:
        return f"{self.node}: weights change by up to {self.largest:.3g}, {self.relative:.2%} of their norm"


def weights_per_tensor(graph: Graph) -> tuple[Graph, tuple[WeightLoss, ...]]:
    """Quantize weights that have scales along an axis again, with the largest of the scales for all.

    Returns what each node lost. The new integers are the nearest ones, so no weight changes by more than half
    a step of the largest scale; biases follow to the new product of scales.
    """
    losses: list[WeightLoss] = []
    changed = rewrite_sites(graph, lambda site: _one_scale(site, losses))
    return changed, tuple(losses)


def has_weights_of_scales(node: Node, graph: Graph) -> bool:
    """Tell whether a node multiplies activations of eight bits by weights with scales along an axis."""
    if node.op.name not in WEIGHTED or node.inputs[1] not in graph.weights:
        return False
    x, w = (graph.tensors[name] for name in node.inputs[:2])
    if x.quant is None or w.quant is None:
        return False
    return x.dtype in EIGHT_BITS and w.quant.axis is not None


def _one_scale(site: Site, losses: list[WeightLoss]) -> Sequence[str] | None:
    w = site.input(1)
    if site.node.op.name not in WEIGHTED or w is None or w.quant is None or w.quant.axis is None:
        return None
    array = site.builder.weights.get(w.name)
    if array is None or site.x.quant is None or any(w.quant.zero_point):
        return None
    # With a smaller one, the largest weights of some channel would not fit their type.
    scale = max(w.quant.scale)
    real = dequantize(array, w.quant)
    storage = Storage(w.dtype, Quant.of(scale))
    weights = quantize(real, storage)
    losses.append(_loss(site.node.name, real, dequantize(weights, storage.quant)))
    inputs = [site.node.inputs[0], site.builder.weight(f"{w.name}/one-scale", weights, storage.quant)]
    if len(site.node.inputs) > 2 and site.node.inputs[2]:
        inputs.append(_new_bias(site, scale))
    return site.match.emit(site.node.op, inputs, site.node.attrs)


def _loss(name: str, before: Array, after: Array) -> WeightLoss:
    change = np.abs(after - before)
    norm = float(np.sqrt(np.sum(before**2))) or 1.0
    return WeightLoss(name, float(change.max(initial=0)), float(np.sqrt(np.sum(change**2))) / norm)


def _new_bias(site: Site, weight_scale: float) -> str:
    """Return the bias with the product of the input's scale and the new one of the weights."""
    bias = site.input(2)
    assert bias is not None
    assert site.x.quant is not None
    array = site.builder.weights.get(bias.name)
    if array is None or bias.quant is None:
        return bias.name
    scale = float(np.float32(site.x.quant.scale[0]) * np.float32(weight_scale))
    storage = Storage(DType.I32, Quant.of(scale))
    return site.builder.weight(
        f"{bias.name}/one-scale", quantize(dequantize(array, bias.quant), storage), storage.quant
    )

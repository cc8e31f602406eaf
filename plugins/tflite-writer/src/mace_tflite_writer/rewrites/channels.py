"""Channels whose results are constant, but whose sums overflow."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mace_core.ir import Graph
from mace_tflite_writer.operator import NodeView
from mace_tflite_writer.rewrites.site import Site, rewrite_sites
from mace_tflite_writer.storage import largest_sums

NEGLIGIBLE = 0.49
"""Steps of the result: what is less rounds to the zero point."""


def silence_channels(graph: Graph) -> Graph:
    """Set weights and bias to zero in channels whose every result rounds to the zero point.

    Exact. Converters give a channel without weights of note a scale so small that its bias fills 32 bits, and
    the sums of the format's kernels would overflow.
    """
    return rewrite_sites(graph, _silence)


def _silence(site: Site) -> Sequence[str] | None:
    axis = {"Conv": 0, "ConvTranspose": 0, "MatMul": 1}.get(site.node.op.name)
    w, bias, y = site.input(1), site.input(2), site.y
    weights = site.builder.weights
    if axis is None or not site.is_refused or bias is None or bias.name not in weights:
        return None
    if w is None or w.name not in weights or None in (site.x.quant, w.quant, y.quant):
        return None
    assert site.x.quant is not None
    assert w.quant is not None
    assert y.quant is not None
    sums = largest_sums(_view(site), axis)
    steps = sums * site.x.quant.scale[0] * np.asarray(w.quant.scale) / y.quant.scale[0]
    silent = steps < NEGLIGIBLE
    if not silent.any():
        return None
    shape = [-1 if i == axis else 1 for i in range(len(w.shape))]
    # uint8 weights have one zero point, int8 weights and biases 0.
    zero = w.quant.zero_point[0]
    quiet = np.where(silent.reshape(shape), weights[w.name].dtype.type(zero), weights[w.name])
    offset = np.where(silent, np.int32(0), weights[bias.name])
    names = [
        site.builder.weight(f"{w.name}/silent", quiet, w.quant),
        site.builder.weight(f"{bias.name}/silent", offset, bias.quant),
    ]
    return site.last(site.node.op.name, [site.node.inputs[0], *names], site.node.attrs)


def _view(site: Site) -> NodeView:
    graph = Graph(site.old.name, (site.node,), site.builder.tensors, site.builder.weights, (), ())
    return NodeView(site.node, graph)

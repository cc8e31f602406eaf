"""remove-dead-channels: leaves out channels that hold one value for every input, or that nothing reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.ir import Array, Graph, Node, Quant
from mace_core.numerics import Numerics
from mace_core.ops.conv import ConvAttributes
from mace_core.ops.reshape import ReshapeAttributes
from mace_core.ops.split import SplitAttributes
from mace_core.rewrite import Match, rewrite
from mace_transform_standard.channel_links import RULES, ChannelGroups, LinkedChannels, link_equal
from mace_transform_standard.channel_products import ChannelProduct, read_product
from mace_transform_standard.channel_ranges import (
    UNARY,
    Range,
    bound_product,
    bound_result,
    default_range,
    is_constant,
)

GRANULE = 8
"""Channels go in such numbers that a multiple of this remains, or all.

Kernels walk along channels by whole vectors, and finish a row slowly: on AVX2 a pruned MobileNet of 915,436
multiplications with any number of channels took three times as long as one of 1,824,800 with multiples of 8.
With VNNI, 1, 4, 8 and 16 differ by a tenth; 8 is best.
"""


def remove_dead_channels(graph: Graph) -> Graph:
    """Remove channels that are constant for every input, or that are read with weights of 0 only.

    A constant that a convolution or matrix product reads becomes part of its bias; stored integers stay the
    same bit for bit. Where a window of padding would show that the constant was there, where a sum would
    miss it, and at the model's inputs and outputs, the channel stays.
    """
    if graph.origin is not None:
        # A target that follows what the frontend left finds every layer there in its full size.
        return graph
    if graph.numerics is not Numerics.SINGLE_ROUNDING:
        # Which channels are constant is computed by one rounding; another rule may round them to a step more.
        return graph
    channels = _analyze(graph)
    if not channels.dead:
        return graph
    result = rewrite(graph, channels.shrink)
    return replace(result, notes=(*graph.notes, channels.describe()))


@dataclass(frozen=True)
class _Channels:
    """What is known of a graph's channels.

    products: by the name of their node.  dead: for each tensor that loses channels, whether each is kept.
    """

    graph: Graph
    products: Mapping[str, ChannelProduct]
    ranges: Mapping[str, Range]
    dead: Mapping[str, Array]

    def shrink(self, match: Match) -> Sequence[str] | None:
        """The rule that leaves out dead channels; names of tensors stay."""
        node = match.node
        masks = {name: self.dead[name] for name in (*node.inputs, *node.outputs) if name in self.dead}
        if not masks:
            return None
        if node.name in self.products:
            return self._shrink_product(match, self.products[node.name])
        last = node.outputs[0]
        if isinstance(node.attrs, ReshapeAttributes):
            shape = (*node.attrs.shape[:-1], int(masks[last].sum()))
            return match.emit(node.op, node.inputs, replace(node.attrs, shape=shape))
        if isinstance(node.attrs, SplitAttributes):
            return match.emit(node.op, node.inputs, self._shrink_split(node, node.attrs))
        # A constant operand with a number for each channel loses those of the result.
        inputs = [
            _slice_constant(match.builder, self.graph, name, -1, masks[last])
            if name in self.graph.weights and self.graph.tensors[name].shape[-1:] == masks[last].shape
            else name
            for name in node.inputs
        ]
        return match.emit(node.op, inputs, node.attrs)

    def _shrink_product(self, match: Match, product: ChannelProduct) -> Sequence[str]:
        node, builder, graph = match.node, match.builder, self.graph
        rows = self.dead.get(product.y.name, np.ones(product.y.shape[-1], bool))
        columns = self.dead.get(product.x.name, np.ones(product.x.shape[-1], bool))
        w = _slice_constant(builder, graph, node.inputs[1], product.axis, rows)
        attrs = node.attrs
        if isinstance(attrs, ConvAttributes) and product.is_depthwise:
            attrs = replace(attrs, group=int(rows.sum()))
        elif not columns.all():
            w = _slice_constant(builder, graph, w, product.input_axis, columns)
        bias = self._shrink_bias(builder, product, rows, columns)
        return match.emit(node.op, [node.inputs[0], w, *bias], attrs)

    def _shrink_split(self, node: Node, attrs: SplitAttributes) -> SplitAttributes:
        if (
            attrs.axis % len(self.graph.tensors[node.inputs[0]].shape)
            != len(self.graph.tensors[node.inputs[0]].shape) - 1
        ):
            return attrs
        pairs = zip(node.outputs, attrs.sizes, strict=True)
        return replace(attrs, sizes=tuple(int(np.sum(self.dead.get(name, size))) for name, size in pairs))

    def _shrink_bias(
        self, builder: Builder, product: ChannelProduct, rows: Array, columns: Array
    ) -> list[str]:
        """Return the bias with what the dead channels of the input add to every sum; none where that is 0."""
        node, values = product.node, self.ranges[product.x.name][0]
        bias = [name for name in node.inputs[2:] if name]
        added = np.zeros(rows.shape)
        if not product.is_depthwise and not columns.all():
            dead = product.weights[:, :, ~columns].astype(np.float64).sum(1)
            # Channels that are read with zeros only need not be constant; 0 times their bound is 0.
            added = dead @ values[~columns]
        if not added[rows].any():
            return [_slice_constant(builder, self.graph, name, 0, rows) for name in bias]
        total = (product.bias + added)[rows]
        stem = bias[0] if bias else f"{node.name}.bias"
        if product.x.quant is None:
            return [builder.weight(stem, total.astype(product.x.dtype.numpy))]
        unit = Quant(tuple(map(float, product.unit[rows])), (0,) * int(rows.sum()), 0)
        return [builder.weight(stem, total.astype(np.int32), unit)]

    def describe(self) -> str:
        """Tell how many channels, weights and multiplications went."""
        results = before = after = weights = 0
        for product in self.products.values():
            rows, columns = self.dead.get(product.y.name), self.dead.get(product.x.name)
            kept_rows = 1.0 if rows is None else rows.mean()
            kept_columns = 1.0 if columns is None or product.is_depthwise else columns.mean()
            share = kept_rows * kept_columns
            results += 0 if rows is None else int((~rows).sum())
            weights += round(product.weights.size * (1 - share))
            before += product.macs
            after += round(product.macs * share)
        return (
            f"{results} channels of convolutions and matrix products are constant or not read: left out with "
            f"{weights} weights; {after} of {before} multiplications remain"
        )


def _slice_constant(builder: Builder, graph: Graph, name: str, axis: int, is_kept: Array) -> str:
    """Return a constant without some indices of an axis."""
    if is_kept.all():
        return name
    array, quant = builder.weights[name], builder.tensors[name].quant
    axis %= array.ndim
    if quant and quant.axis == axis:
        scale, zero_point = (tuple(np.array(v)[is_kept].tolist()) for v in (quant.scale, quant.zero_point))
        quant = replace(quant, scale=scale, zero_point=zero_point)
    return builder.weight(name, np.compress(is_kept, array, axis), quant)


def _analyze(graph: Graph) -> _Channels:
    activations = [t for t in graph.tensors.values() if t.name not in graph.weights]
    products: dict[str, ChannelProduct] = {}
    ranges = {name: default_range(graph.tensors[name]) for name in graph.inputs}
    links: list[LinkedChannels] = []
    stopped = [*graph.inputs, *graph.outputs]
    for node in graph.nodes:
        product = read_product(node, graph)
        if product is not None:
            products[node.name] = product
            ranges[product.y.name] = bound_product(product, ranges)
            if product.is_depthwise:
                links += link_equal(product.x, product.y) or []
            continue
        linked = _link(node, graph)
        if linked is None:
            stopped += filter(None, (*node.inputs, *node.outputs))
            ranges.update((name, default_range(graph.tensors[name])) for name in node.outputs)
        else:
            links += linked
            ranges.update(bound_result(node, graph, ranges, linked))
    groups = ChannelGroups(iter(activations))
    groups.join(links)
    for name in stopped:
        if name in groups:
            groups.keep(name)
    _keep_needed(groups, [p for p in products.values() if not p.is_depthwise], ranges)
    masks = {t.name: groups.kept_channels(t.name) for t in activations}
    dead = {name: is_kept for name, is_kept in masks.items() if not is_kept.all()}
    return _Channels(graph, products, ranges, dead)


def _link(node: Node, graph: Graph) -> list[LinkedChannels] | None:
    """Return which channels of a node belong together; None for an op that mixes them."""
    tensors = [graph.tensors[name] for name in (*node.inputs, *node.outputs) if name]
    computed = [t for t in tensors if t.name not in graph.weights]
    if any(
        not t.real.dtype.is_float or not t.elements or (t.quant and t.quant.axis is not None)
        for t in computed
    ):
        return None
    if node.op.name in UNARY:
        return None if node.inputs[0] in graph.weights else link_equal(tensors[0], tensors[-1])
    rule = RULES.get(node.op.name)
    return rule(node, graph) if rule else None


def _keep_needed(
    groups: ChannelGroups, products: Sequence[ChannelProduct], ranges: Mapping[str, Range]
) -> None:
    """Keep what products need for the results that are kept, and some channels of each tensor."""
    needs = [_read_needs(product, ranges[product.x.name]) for product in products]
    is_changed = True
    while is_changed:
        is_changed = False
        for product, need in reversed(list(zip(products, needs, strict=True))):
            needed = np.asarray(need[groups.kept_channels(product.y.name)].any(0))
            is_changed |= groups.keep(product.x.name, needed)
        # Last, because a channel that turns out to be needed would fill a tensor up as well as another one.
        is_changed = is_changed or groups.fill_up(GRANULE)


def _read_needs(product: ChannelProduct, bounds: Range) -> Array:
    """Tell for each result and channel of the input whether the channel must be there."""
    may_go = is_constant(bounds)
    if product.is_padded:
        may_go &= bounds[0] == 0
    if not product.has_room(np.where(may_go, bounds[0], 0)):
        may_go[:] = False
    return product.read_weights() & ~may_go

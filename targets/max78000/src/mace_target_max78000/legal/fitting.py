"""What one change would make a network's sizes fit: a wrong pad shows only where the weights of a later layer have another size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

from mace_target_max78000.network import Layer, Network, Operation, Pool

PADS = range(3)
POOLS = range(1, 5)


class Change(NamedTuple):
    """Another value for a key of an earlier layer.

    lost: rows and columns that pools would then leave over.
    """

    layer: str
    key: str
    value: str
    present: str
    lost: int


def fitting(network: Network, index: int, inputs: int) -> list[Change]:
    """Single changes after which the flattened layer `index` gets so many values, the likeliest first."""
    found = []
    before = _ancestors(network, index)
    for i in sorted(before):
        for key, value, changed in _alternatives(network.layers[i]):
            layers = _resized(network, i, changed)
            flat = layers[index]
            if flat.channels * prod(flat.dim) == inputs and all(min(layer.out_dim) > 0 for layer in layers):
                present = _present(network.layers[i], key)
                found.append(
                    Change(network.layers[i].name, key, value, present, sum(_left(layers[j]) for j in before))
                )
    return sorted(found, key=lambda change: (change.lost, len(change.value)))


def _ancestors(network: Network, index: int) -> set[int]:
    """Layers that a layer's input comes from."""
    found: set[int] = set()
    open_ = [i for i in network.layers[index].inputs if i >= 0]
    while open_:
        i = open_.pop()
        if i not in found:
            found.add(i)
            open_ += [k for k in network.layers[i].inputs if k >= 0]
    return found


def _alternatives(layer: Layer) -> Iterator[tuple[str, str, Layer]]:
    """The layer with another pad or pool."""
    if layer.operation in (Operation.CONV1D, Operation.CONV2D, Operation.CONV_TRANSPOSE2D):
        line = layer.operation is Operation.CONV1D
        for pad in PADS:
            if pad != layer.pad[0]:
                yield "pad", str(pad), replace(layer, pad=(pad, 0 if line else pad))
    if layer.pool is None:
        return
    for n in POOLS:
        if n != layer.pool.stride:
            yield "pool_stride", str(n), replace(layer, pool=replace(layer.pool, stride=n))
        pool = Pool(layer.pool.average, (n, n if layer.dim[1] > 1 else 1), n)
        if pool.size != layer.pool.size:
            yield (
                "avg_pool" if pool.average else "max_pool",
                f"{n}, pool_stride: {n}",
                replace(layer, pool=pool),
            )


def _present(layer: Layer, key: str) -> str:
    """What the description says now."""
    size, _, stride = layer.window
    return {"pad": str(layer.pad[0]), "pool_stride": str(stride)}.get(
        key, "x".join(map(str, size)) + f" with stride {stride}"
    )


def _resized(network: Network, index: int, changed: Layer) -> Sequence[Layer]:
    """The layers with one of them changed; sizes that came from the layer before follow, others stay."""
    layers = list(network.layers)
    layers[index] = changed
    for k in range(index + 1, len(layers)):
        source = layers[k].inputs[0]
        if source >= 0 and network.layers[k].dim == network.layers[source].out_dim:
            layers[k] = replace(layers[k], dim=layers[source].out_dim)
    return layers


def _left(layer: Layer) -> int:
    """Rows and columns at the end that no window reaches."""
    window, dilation, stride = layer.window
    axes = zip(layer.dim, layer.pooled, window, dilation, strict=True)
    return sum(n - (count - 1) * stride - (s - 1) * d - 1 for n, count, s, d in axes if n > 1)

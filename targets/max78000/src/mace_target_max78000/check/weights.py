"""Checks parameters: shapes, ranges, bits, shifts; suggests what would make sizes fit.

A wrong pad shows only where the weights of a later, flattened layer have another size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

from mace_frontend_ai8x.network import Layer, Network, Operation, Pool, Weights
from mace_target_max78000.check.context import Fault, LayerContext, format_size
from mace_target_max78000.device import MAX_PADS, SHIFTS, WEIGHT_BITS

CHECK_ORDER = "check that layers and parameters have the same order"


def find_value_faults(site: LayerContext) -> Iterator[Fault]:
    """Find faults of one layer's parameters, whatever their shape."""
    layer = site.layer
    if not site.convolves:
        return
    if layer.weights is None:
        yield site.fault("operation", "weights", "none", "name a checkpoint that has them")
        return
    yield from _check_range(site, layer.weights)
    yield from _check_bias(site)
    # The field has four bits and a sign. Weights of fewer bits have counted the bits that they lack already.
    if not layer.wide and layer.shift not in SHIFTS:
        bits = layer.weights.bits
        actual = f"{layer.shift}" + (
            f", of which {8 - bits} come from {bits}-bit weights" if bits < 8 else ""
        )
        yield site.fault(
            "output_shift", f"{SHIFTS[0]} to {SHIFTS[-1]} in all", actual, "scale the weights instead"
        )


def find_weight_faults(site: LayerContext) -> Iterator[Fault]:
    """Find weights whose shape is not that of the layer."""
    layer = site.layer
    if layer.weights is None:
        return
    values = layer.weights.values
    expected = expected_shape(layer)
    if values.ndim != len(expected):
        actual = f"{values.ndim}: {list(values.shape)}"
        yield site.fault(
            "operation", f"weights of {len(expected)} axes for {layer.operation.value}", actual, CHECK_ORDER
        )
        return
    # PyTorch, where checkpoints come from, keeps the weights of a transposed convolution the other way round.
    inputs, outputs = (0, 1) if layer.operation is Operation.CONV_TRANSPOSE2D else (1, 0)
    if values.shape[2:] != expected[2:]:
        kernel = format_size(values.shape[2:])
        yield site.fault(
            "kernel_size",
            f"{kernel}, as the weights have",
            format_size(expected[2:]),
            f"write kernel_size: {kernel}, or correct the order of layers",
        )
    if values.shape[outputs] != expected[outputs]:
        actual = str(expected[outputs])
        yield site.fault(
            "out_channels", f"{values.shape[outputs]}, as the weights have", actual, "remove out_channels"
        )
    if values.shape[inputs] == expected[inputs]:
        return
    if layer.flatten:
        yield _explain_flattened(site, values.shape[inputs])
        return
    per_group = f" in each of {layer.groups} groups" if layer.groups > 1 else ""
    names = ", ".join(source.name for source in site.sources())
    actual_inputs = f"{expected[inputs]}{per_group} from {names}"
    yield site.fault(
        "in_channels",
        f"{values.shape[inputs]}, as the weights have",
        actual_inputs,
        f"correct in_sequences, or {CHECK_ORDER}",
    )


def expected_shape(layer: Layer) -> tuple[int, ...]:
    """Return the shape of the weights that a layer has."""
    inputs = layer.channels // layer.groups
    if layer.operation is Operation.CONV1D:
        return layer.out_channels, inputs, layer.kernel[0]
    if layer.operation is Operation.LINEAR:
        return layer.out_channels, layer.channels * (prod(layer.pooled) if layer.flatten else 1)
    axes = (
        (layer.channels, layer.out_channels)
        if layer.operation is Operation.CONV_TRANSPOSE2D
        else (layer.out_channels, inputs)
    )
    return *axes, *layer.kernel


def _explain_flattened(site: LayerContext, inputs: int) -> Fault:
    """Explain weights for another size: mostly an earlier layer has another pad or pool than the model."""
    layer = site.layer
    actual = f"{layer.channels} channels of {format_size(layer.dim)} = {layer.channels * prod(layer.dim)}"
    changes = suggest_changes(site.network, site.index, inputs)
    if not changes:
        needed = f"{inputs}, as the weights have"
        if inputs % layer.channels == 0:
            needed += f" ({inputs // layer.channels} positions of {layer.channels} channels)"
        return site.fault(
            "flatten", needed, actual, "compare pad, pools and strides of the layers before with the model"
        )
    first, *others = changes
    also = (
        f" (so would {'; '.join(f'{c.key}: {c.value} in {c.layer}' for c in others[:2])})" if others else ""
    )
    effect = f"with which {layer.name} gets the {inputs} values that its weights have instead of {actual}"
    expected = f"{first.value}, {effect}"
    return Fault(
        first.layer,
        first.key,
        expected,
        first.present,
        f"write {first.key}: {first.value} if the model has it{also}",
    )


def _check_range(site: LayerContext, weights: Weights) -> Iterator[Fault]:
    values, bits = weights.values, weights.bits
    if bits not in WEIGHT_BITS:
        yield site.fault("quantization", "1, 2, 4, 8 or binary", str(bits), "quantize the weights again")
        return
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    actual = f"weights from {low} to {high}"
    if weights.binary:
        # One bit is 0 or -1; that it is +1 or -1 is a switch of the second generation.
        if not site.device.features.binary_weights:
            yield site.fault(
                "quantization",
                f"1, 2, 4 or 8 on the {site.device.name}",
                "binary",
                "write quantization: 1, and train for 0 and -1",
            )
        elif bits != 1 or not (abs(values) == 1).all():
            yield site.fault(
                "quantization", "weights of -1 and 1 for binary", actual, "quantize the weights again"
            )
        return
    if not -(1 << (bits - 1)) <= low <= high < 1 << (bits - 1):
        needed = next((b for b in WEIGHT_BITS if -(1 << (b - 1)) <= low and high < 1 << (b - 1)), None)
        remedy = (
            f"write quantization: {needed}, or quantize the weights to {bits} bits"
            if needed
            else "quantize the weights again"
        )
        limits = f"{bits}: weights from {-(1 << (bits - 1))} to {(1 << (bits - 1)) - 1}"
        yield site.fault("quantization", limits, actual, remedy)


def _check_bias(site: LayerContext) -> Iterator[Fault]:
    layer, bias = site.layer, site.layer.bias
    if bias is None:
        return
    if bias.shape != (layer.out_channels,):
        yield site.fault("bias", f"{layer.out_channels} values", str(list(bias.shape)), CHECK_ORDER)
    # A bias memory holds bytes; the accumulator gets 128 times as much.
    elif not -128 <= bias.min() <= bias.max() <= 127:
        yield site.fault(
            "bias", "bytes from -128 to 127", f"{bias.min()} to {bias.max()}", "quantize the model again"
        )
    # Bias lies in the memory of one quadrant; a bias of zeros is not stored.
    elif bias.size > site.device.bias_bytes and bias.any():
        yield site.fault(
            "bias", f"at most {site.device.bias_bytes} values", str(bias.size), "train the layer without bias"
        )


TRIED_PADS = range(MAX_PADS[Operation.CONV2D] + 1)
TRIED_POOLS = range(1, 5)


class SuggestedChange(NamedTuple):
    """Another value for a key of an earlier layer.

    lost: rows and columns that pools would then leave over.
    """

    layer: str
    key: str
    value: str
    present: str
    lost: int


def suggest_changes(network: Network, index: int, inputs: int) -> list[SuggestedChange]:
    """Single changes after which the flattened layer `index` gets so many values, the likeliest first."""
    actual = []
    before = _find_ancestors(network, index)
    for i in sorted(before):
        for key, value, changed in _list_alternatives(network.layers[i]):
            layers = _resize(network, i, changed)
            flat = layers[index]
            if flat.channels * prod(flat.dim) == inputs and all(min(layer.out_dim) > 0 for layer in layers):
                present = _present_value(network.layers[i], key)
                actual.append(
                    SuggestedChange(
                        network.layers[i].name,
                        key,
                        value,
                        present,
                        sum(_count_left_over(layers[j]) for j in before),
                    )
                )
    return sorted(actual, key=lambda change: (change.lost, len(change.value)))


def _find_ancestors(network: Network, index: int) -> set[int]:
    """Layers that a layer's input comes from."""
    actual: set[int] = set()
    open_ = [i for i in network.layers[index].inputs if i >= 0]
    while open_:
        i = open_.pop()
        if i not in actual:
            actual.add(i)
            open_ += [k for k in network.layers[i].inputs if k >= 0]
    return actual


def _list_alternatives(layer: Layer) -> Iterator[tuple[str, str, Layer]]:
    """Yield the layer with another pad or pool."""
    if layer.operation in (Operation.CONV1D, Operation.CONV2D, Operation.CONV_TRANSPOSE2D):
        line = layer.operation is Operation.CONV1D
        for pad in TRIED_PADS:
            if pad != layer.pad[0]:
                yield "pad", str(pad), replace(layer, pad=(pad, 0 if line else pad))
    if layer.pool is None:
        return
    for n in TRIED_POOLS:
        if n != layer.pool.stride:
            yield "pool_stride", str(n), replace(layer, pool=replace(layer.pool, stride=n))
        pool = Pool(layer.pool.average, (n, n if layer.dim[1] > 1 else 1), n)
        if pool.size != layer.pool.size:
            yield (
                "avg_pool" if pool.average else "max_pool",
                f"{n}, pool_stride: {n}",
                replace(layer, pool=pool),
            )


def _present_value(layer: Layer, key: str) -> str:
    """Return the present value as the description states it."""
    size, _, stride = layer.window
    return {"pad": str(layer.pad[0]), "pool_stride": str(stride)}.get(
        key, "x".join(map(str, size)) + f" with stride {stride}"
    )


def _resize(network: Network, index: int, changed: Layer) -> Sequence[Layer]:
    """Return the layers with one of them changed.

    Sizes that came from the layer before follow, others stay.
    """
    layers = list(network.layers)
    layers[index] = changed
    for k in range(index + 1, len(layers)):
        source = layers[k].inputs[0]
        if source >= 0 and network.layers[k].dim == network.layers[source].out_dim:
            layers[k] = replace(layers[k], dim=layers[source].out_dim)
    return layers


def _count_left_over(layer: Layer) -> int:
    """Return rows and columns at the end that no window reaches."""
    window, dilation, stride = layer.window
    axes = zip(layer.dim, layer.pooled, window, dilation, strict=True)
    return sum(n - (count - 1) * stride - (s - 1) * d - 1 for n, count, s, d in axes if n > 1)

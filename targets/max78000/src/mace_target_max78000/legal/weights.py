"""Parameters that belong to the layer: shapes, ranges, bits, shifts."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from mace_target_max78000.legal.fitting import fitting
from mace_target_max78000.legal.site import Fault, Site, size
from mace_target_max78000.network import Layer, Operation, Weights

BITS = (1, 2, 4, 8)
SHIFTS = range(-15, 16)
ORDER = "check that layers and parameters have the same order"


def value_faults(site: Site) -> Iterator[Fault]:
    """Faults of one layer's parameters, whatever their shape."""
    layer = site.layer
    if not site.convolves:
        return
    if layer.weights is None:
        yield site.fault("operation", "weights", "none", "name a checkpoint that has them")
        return
    yield from _range(site, layer.weights)
    yield from _bias(site)
    if not layer.wide and layer.shift not in SHIFTS:
        bits = layer.weights.bits
        found = f"{layer.shift}" + (f", of which {8 - bits} come from {bits}-bit weights" if bits < 8 else "")
        yield site.fault(
            "output_shift", f"{SHIFTS[0]} to {SHIFTS[-1]} in all", found, "scale the weights instead"
        )


def weight_faults(site: Site) -> Iterator[Fault]:
    """Weights whose shape is not that of the layer."""
    layer = site.layer
    if layer.weights is None:
        return
    values = layer.weights.values
    expected = weights_shape(layer)
    if values.ndim != len(expected):
        found = f"{values.ndim}: {list(values.shape)}"
        yield site.fault(
            "operation", f"weights of {len(expected)} axes for {layer.operation.value}", found, ORDER
        )
        return
    inputs, outputs = (0, 1) if layer.operation is Operation.CONV_TRANSPOSE2D else (1, 0)
    if values.shape[2:] != expected[2:]:
        kernel = size(values.shape[2:])
        yield site.fault(
            "kernel_size",
            f"{kernel}, as the weights have",
            size(expected[2:]),
            f"write kernel_size: {kernel}, or correct the order of layers",
        )
    if values.shape[outputs] != expected[outputs]:
        found = str(expected[outputs])
        yield site.fault(
            "out_channels", f"{values.shape[outputs]}, as the weights have", found, "remove out_channels"
        )
    if values.shape[inputs] == expected[inputs]:
        return
    if layer.flatten:
        yield _flattened(site, values.shape[inputs])
        return
    per_group = f" in each of {layer.groups} groups" if layer.groups > 1 else ""
    given = f"{expected[inputs]}{per_group} from {', '.join(source.name for source in site.sources())}"
    yield site.fault(
        "in_channels",
        f"{values.shape[inputs]}, as the weights have",
        given,
        f"correct in_sequences, or {ORDER}",
    )


def weights_shape(layer: Layer) -> tuple[int, ...]:
    """The shape of the weights that a layer has."""
    inputs = layer.channels // layer.groups
    if layer.operation is Operation.CONV1D:
        return layer.out_channels, inputs, layer.kernel[0]
    if layer.operation is Operation.LINEAR:
        return layer.out_channels, layer.channels * (prod(layer.pooled) if layer.flatten else 1)
    ends = (
        (layer.channels, layer.out_channels)
        if layer.operation is Operation.CONV_TRANSPOSE2D
        else (layer.out_channels, inputs)
    )
    return *ends, *layer.kernel


def _flattened(site: Site, inputs: int) -> Fault:
    """Weights for another size: most often an earlier layer is described with another pad or pool than the model has."""
    layer = site.layer
    found = f"{layer.channels} channels of {size(layer.dim)} = {layer.channels * prod(layer.dim)}"
    changes = fitting(site.network, site.index, inputs)
    if not changes:
        wanted = f"{inputs}, as the weights have"
        if inputs % layer.channels == 0:
            wanted += f" ({inputs // layer.channels} positions of {layer.channels} channels)"
        return site.fault(
            "flatten", wanted, found, "compare pad, pools and strides of the layers before with the model"
        )
    first, *others = changes
    also = (
        f" (so would {'; '.join(f'{c.key}: {c.value} in {c.layer}' for c in others[:2])})" if others else ""
    )
    expected = f"{first.value}, with which {layer.name} gets the {inputs} values that its weights have instead of {found}"
    return Fault(
        first.layer,
        first.key,
        expected,
        first.present,
        f"write {first.key}: {first.value} if the model has it{also}",
    )


def _range(site: Site, weights: Weights) -> Iterator[Fault]:
    values, bits = weights.values, weights.bits
    if bits not in BITS:
        yield site.fault("quantization", "1, 2, 4, 8 or binary", str(bits), "quantise the weights again")
        return
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
    found = f"weights from {low} to {high}"
    if weights.binary:
        if not site.device.pipelined:
            yield site.fault(
                "quantization",
                f"1, 2, 4 or 8 on the {site.device.name}",
                "binary",
                "write quantization: 1, and train for 0 and -1",
            )
        elif bits != 1 or not (abs(values) == 1).all():
            yield site.fault(
                "quantization", "weights of -1 and 1 for binary", found, "quantise the weights again"
            )
        return
    if not -(1 << (bits - 1)) <= low <= high < 1 << (bits - 1):
        needed = next((b for b in BITS if -(1 << (b - 1)) <= low and high < 1 << (b - 1)), None)
        remedy = (
            f"write quantization: {needed}, or quantise the weights to {bits} bits"
            if needed
            else "quantise the weights again"
        )
        limits = f"{bits}: weights from {-(1 << (bits - 1))} to {(1 << (bits - 1)) - 1}"
        yield site.fault("quantization", limits, found, remedy)


def _bias(site: Site) -> Iterator[Fault]:
    layer, bias = site.layer, site.layer.bias
    if bias is None:
        return
    if bias.shape != (layer.out_channels,):
        yield site.fault("bias", f"{layer.out_channels} values", str(list(bias.shape)), ORDER)
    elif not -128 <= bias.min() <= bias.max() <= 127:
        yield site.fault(
            "bias", "bytes from -128 to 127", f"{bias.min()} to {bias.max()}", "quantise the model again"
        )
    elif bias.size > site.device.bias_bytes and bias.any():
        yield site.fault(
            "bias", f"at most {site.device.bias_bytes} values", str(bias.size), "train the layer without bias"
        )

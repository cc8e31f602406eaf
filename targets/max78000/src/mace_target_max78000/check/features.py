"""Checks features that a part lacks, values that its registers cannot hold, and the order of the layers.

Sources: the vendor's document on the limits of either part, and what the vendor's generator refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mace_frontend_ai8x.network import LayerPlacement, Operation
from mace_target_max78000.check.context import Fault, LayerContext, format_size
from mace_target_max78000.device import (
    KERNEL_BYTES,
    LANES,
    MAX_OPERANDS_BEFORE_POOL,
    WORD_BYTES,
    ChipFeatures,
)
from mace_target_max78000.wording import format_count


def find_feature_faults(site: LayerContext) -> Iterator[Fault]:
    """Find switches of one layer that the part lacks, and values that its registers cannot hold."""
    yield from _check_switches(site.place, site)
    if site.device.features.read_ahead:
        yield from _check_read_ahead(site)
    if site.device.features.calcx4:
        yield from _check_calcx4(site)
    yield from _check_write_gap(site)
    yield from _check_counters(site)
    layer, bias_groups = site.layer, site.place.bias_groups
    # Each window must reach an element of the data.
    if site.convolves and layer.pad[0] >= layer.kernel[0]:
        expected = f"less than the kernel of {format_size(layer.kernel)}"
        yield site.fault("pad", expected, str(layer.pad[0]), f"write pad: {layer.kernel[0] - 1} or less")
    # Each processor of a depthwise layer makes its own sums, so each quadrant adds its own bias.
    if layer.groups > 1 and bias_groups is not None:
        actual = ", ".join(map(str, bias_groups))
        yield site.fault(
            "bias_group",
            "none in a depthwise layer, whose quadrants have their own bias",
            actual,
            "remove it",
        )
    # Flattening sums over the positions of a channel; depthwise weights have one kernel a channel.
    if layer.groups > 1 and layer.flatten:
        yield site.fault(
            "flatten", "no flattening in a depthwise layer", "flatten", "flatten in the layer after it"
        )
    # The vendor's generator refuses more; why is not documented.
    if layer.pools and not layer.pool_first and layer.operands > MAX_OPERANDS_BEFORE_POOL:
        expected = f"at most {MAX_OPERANDS_BEFORE_POOL} operands that are combined before they are pooled"
        yield site.fault(
            "pool_first", expected, str(layer.operands), "pool first, or pool in the layer after it"
        )


def find_network_feature_faults(sites: Sequence[LayerContext]) -> Iterator[Fault]:
    """Find faults of the network as a whole."""
    network, device = sites[0].network, sites[0].device
    if network.snoop and not device.features.conditional_layers:
        yield Fault(
            "",
            "snoop",
            f"no conditional layers on the {device.name}",
            "some",
            "use a MAX78002, or remove snoop",
        )
    weights = [site.layer.weights for site in sites if site.layer.weights is not None]
    # Bit 30 of the control register switches the meaning of one-bit weights for all layers.
    if any(w.binary for w in weights) and any(w.bits == 1 and not w.binary for w in weights):
        remedy = "use 1 bit in all of these layers, or binary in all"
        yield Fault(
            "",
            "quantization",
            "one kind of one-bit weights: one switch tells for all layers what they mean",
            "1 and binary",
            remedy,
        )


def _check_switches(place: LayerPlacement, site: LayerContext) -> Iterator[Fault]:
    """Check that the part has every feature that is switched on."""
    features: ChipFeatures = site.device.features
    switches = {
        "bypass": (place.bypass, features.bypass),
        "readahead": (place.read_ahead, features.read_ahead),
        "calcx4": (place.calcx4, features.calcx4),
        "tcalc": (bool(place.tcalc), features.read_ahead),
        "snoop_sequence": (place.conditional_next is not None, features.conditional_layers),
    }
    for key, (is_on, is_available) in switches.items():
        if is_on and not is_available:
            yield site.fault(key, f"none on the {site.device.name}", key, f"remove {key}, or use a MAX78002")


def _check_write_gap(site: LayerContext) -> Iterator[Fault]:
    """Check that the step between positions, in words, fits its field of LCTL2."""
    limit = site.device.limits.write_step
    # A step that the field cannot hold would be cut to a smaller one, and results would overwrite others.
    passes = site.unit.out_passes if site.convolves else 1
    if passes * site.unit.write_step <= limit:
        return
    expected = f"at most {limit // passes - 1}: {limit} words from position to position"
    if passes > 1:
        expected += f" in {passes} passes"
    yield site.fault(
        "write_gap", expected + f" on the {site.device.name}", str(site.place.write_gap), "leave smaller gaps"
    )


def _check_counters(site: LayerContext) -> Iterator[Fault]:
    """Check that the counters hold the rows and columns (twice as many in a transposed convolution)."""
    if site.layer.flatten:
        return
    unit, limits = site.unit, site.device.limits
    # Both are register fields: a count beyond them would begin at zero again.
    padding = unit.pad if limits.counts_padding else (0, 0)
    counts = [count + 2 * pad for count, pad in zip(unit.in_dim, padding, strict=True)]
    if max(counts) > limits.counted_rows:
        actual = f"{max(counts)} with padding" if any(padding) else str(max(counts))
        yield site.fault(
            "in_dim",
            f"at most {limits.counted_rows} rows or columns for the counters",
            actual,
            "crop or fold the input",
        )


def _check_read_ahead(site: LayerContext) -> Iterator[Fault]:
    """Check that what is read ahead does not lie in the physical memory that is written to."""
    place, layer, unit = site.place, site.layer, site.unit
    if not place.read_ahead:
        return
    # A data memory consists of several physical ones, none of which can be read and written at once.
    part = site.device.data_bytes // site.device.limits.memory_parts
    words_in = layer.dim[0] * layer.dim[1] * unit.in_passes * layer.operands
    words_out = layer.out_dim[0] * layer.out_dim[1] * unit.out_passes
    extents = [
        (offset, offset + WORD_BYTES * words - 1)
        for offset, words in ((place.in_offset, words_in), (place.out_offset, words_out))
    ]
    (begin_in, end_in), (begin_out, end_out) = [[end // part for end in pair] for pair in extents]
    if begin_in == begin_out or end_in == end_out:
        expected = f"an output in other parts of {part:#06x} bytes of the data memory than the input"
        actual = f"parts {begin_in} to {end_in} for the input, {begin_out} to {end_out} for the output"
        yield site.fault("readahead", expected, actual, "move one of them, or remove readahead")


def _check_calcx4(site: LayerContext) -> Iterator[Fault]:
    layer = site.layer
    if not site.place.calcx4:
        return
    # The four memories hold every fourth output channel, so their weights must end together.
    if layer.out_channels % LANES:
        yield site.fault(
            "calcx4",
            f"a multiple of {LANES} output channels",
            str(layer.out_channels),
            "add channels, or remove calcx4",
        )
    elif (
        site.unit.bits
        and site.unit.in_passes
        * layer.out_channels
        // LANES
        * site.unit.bits
        * site.unit.taps
        % (8 * KERNEL_BYTES)
    ):
        expected = "weights of which a fourth fills whole words of 72 bits"
        count = site.unit.in_passes * layer.out_channels // LANES
        actual = f"{format_count(count, 'kernel')} of {format_size(layer.kernel)} with {site.unit.bits} bits"
        yield site.fault("calcx4", expected, actual, "add channels, or remove calcx4")
    if layer.operation is Operation.PASSTHROUGH or layer.groups > 1 or layer.flatten or site.place.bypass:
        yield site.fault("calcx4", "a plain convolution", "another layer", "remove calcx4")


def find_order_faults(sites: Sequence[LayerContext]) -> Iterator[Fault]:
    """Find too many layers, and layers in an order that the part cannot run."""
    device = sites[0].device
    if len(sites) > device.layers:
        remedy = "put pools and element-wise operations into the layer of the convolution that follows"
        yield Fault("", "layers", f"at most {device.layers} on the {device.name}", str(len(sites)), remedy)
    for site in sites:
        if site.place.next is not None and not device.features.next_layer:
            yield site.fault(
                "next_sequence",
                f"the next layer on the {device.name}",
                "another",
                "order the layers as they run",
            )
        source = site.place.weight_source
        if source is not None and source >= site.index:
            yield site.fault(
                "weight_source", "an earlier layer", sites[source].layer.name, "name an earlier layer"
            )

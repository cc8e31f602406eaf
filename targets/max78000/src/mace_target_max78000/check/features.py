"""Checks features that a part lacks, values that its registers cannot hold, and the order of the layers.

Sources: the vendor's document on the limits of either part, and what the vendor's generator refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mace_frontend_ai8x.network import Operation
from mace_target_max78000.check.context import Fault, LayerContext, format_size
from mace_target_max78000.device import KERNEL_BYTES
from mace_target_max78000.encode.weight_runs import LANES

MEMORY_PARTS = 5
"""Physical memories that a data memory of the second generation consists of."""
MAX_LATE_OPERANDS = 2
"""Operands that can be combined before they are pooled."""


def find_feature_faults(site: LayerContext) -> Iterator[Fault]:
    """Faults of one layer's switches."""
    if site.device.pipelined:
        yield from _check_read_ahead(site)
        yield from _check_calcx4(site)
    else:
        yield from _check_second_generation(site)
    yield from _check_write_gap(site)
    yield from _check_counters(site)
    layer, bias_groups = site.layer, site.place.bias_groups
    if site.convolves and layer.pad[0] >= layer.kernel[0]:
        expected = f"less than the kernel of {format_size(layer.kernel)}"
        yield site.fault("pad", expected, str(layer.pad[0]), f"write pad: {layer.kernel[0] - 1} or less")
    if layer.groups > 1 and bias_groups is not None:
        found = ", ".join(map(str, bias_groups))
        yield site.fault(
            "bias_group", "none in a depthwise layer, whose quadrants have their own bias", found, "remove it"
        )
    if layer.groups > 1 and layer.flatten:
        yield site.fault(
            "flatten", "no flattening in a depthwise layer", "flatten", "flatten in the layer after it"
        )
    if layer.pools and not layer.pool_first and layer.operands > MAX_LATE_OPERANDS:
        expected = f"at most {MAX_LATE_OPERANDS} operands that are combined before they are pooled"
        yield site.fault(
            "pool_first", expected, str(layer.operands), "pool first, or pool in the layer after it"
        )


def find_network_feature_faults(sites: Sequence[LayerContext]) -> Iterator[Fault]:
    """Faults of the network as a whole."""
    network, device = sites[0].network, sites[0].device
    if network.snoop and not device.pipelined:
        yield Fault(
            "",
            "snoop",
            f"no conditional layers on the {device.name}",
            "some",
            "use a MAX78002, or remove snoop",
        )
    weights = [site.layer.weights for site in sites if site.layer.weights is not None]
    if any(w.binary for w in weights) and any(w.bits == 1 and not w.binary for w in weights):
        remedy = "use 1 bit in all of these layers, or binary in all"
        yield Fault(
            "",
            "quantization",
            "one kind of one-bit weights: one switch tells for all layers what they mean",
            "1 and binary",
            remedy,
        )


def _check_second_generation(site: LayerContext) -> Iterator[Fault]:
    place = site.place
    switches = {
        "bypass": place.bypass,
        "readahead": place.read_ahead,
        "calcx4": place.calcx4,
        "tcalc": bool(place.tcalc),
        "snoop_sequence": place.conditional_next is not None,
    }
    for key, asked in switches.items():
        if asked:
            yield site.fault(key, f"none on the {site.device.name}", key, f"remove {key}, or use a MAX78002")


def _check_write_gap(site: LayerContext) -> Iterator[Fault]:
    """The step between positions, in words, must fit its field.

    A step that does not would become a smaller one.
    """
    limit = 1 << (8 if site.device.pipelined else 4)
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
    """Rows and columns with their padding.

    The first generation counts both, transposed convolutions twice as many as there are.
    """
    if site.layer.flatten:
        return
    unit, bits = site.unit, 11 if site.device.pipelined else 10
    padding = (0, 0) if site.device.pipelined else unit.pad
    counts = [count + 2 * pad for count, pad in zip(unit.in_dim, padding, strict=True)]
    if max(counts) > 1 << bits:
        found = f"{max(counts)} with padding" if any(padding) else str(max(counts))
        yield site.fault(
            "in_dim", f"at most {1 << bits} rows or columns for the counters", found, "crop or fold the input"
        )


def _check_read_ahead(site: LayerContext) -> Iterator[Fault]:
    """What is read ahead must not lie in the physical memory that is written to."""
    place, layer, unit = site.place, site.layer, site.unit
    if not place.read_ahead:
        return
    part = site.device.data_bytes // MEMORY_PARTS
    words_in = layer.dim[0] * layer.dim[1] * unit.in_passes * layer.operands
    words_out = layer.out_dim[0] * layer.out_dim[1] * unit.out_passes
    ends = [
        (offset, offset + 4 * words - 1)
        for offset, words in ((place.in_offset, words_in), (place.out_offset, words_out))
    ]
    (begin_in, end_in), (begin_out, end_out) = [[end // part for end in pair] for pair in ends]
    if begin_in == begin_out or end_in == end_out:
        expected = f"an output in other parts of {part:#06x} bytes of the data memory than the input"
        found = f"parts {begin_in} to {end_in} for the input, {begin_out} to {end_out} for the output"
        yield site.fault("readahead", expected, found, "move one of them, or remove readahead")


def _check_calcx4(site: LayerContext) -> Iterator[Fault]:
    layer = site.layer
    if not site.place.calcx4:
        return
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
        found = f"{site.unit.in_passes * layer.out_channels // LANES} kernels of {format_size(layer.kernel)} with {site.unit.bits} bits"
        yield site.fault("calcx4", expected, found, "add channels, or remove calcx4")
    if layer.operation is Operation.PASSTHROUGH or layer.groups > 1 or layer.flatten or site.place.bypass:
        yield site.fault("calcx4", "a plain convolution", "another layer", "remove calcx4")


def find_order_faults(sites: Sequence[LayerContext]) -> Iterator[Fault]:
    """Faults of the network as a list of layers."""
    device = sites[0].device
    if len(sites) > device.layers:
        remedy = "put pools and element-wise operations into the layer of the convolution that follows"
        yield Fault("", "layers", f"at most {device.layers} on the {device.name}", str(len(sites)), remedy)
    for site in sites:
        if site.place.next is not None and not device.pipelined:
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

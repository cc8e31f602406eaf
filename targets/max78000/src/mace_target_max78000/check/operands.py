"""Checks what layers read: inputs that fit together, and element-wise operations."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from mace_frontend_ai8x.network import INPUT, Operation
from mace_target_max78000.check.context import Fault, LayerContext, LayerInput, format_size
from mace_target_max78000.device import MAX_OPERANDS, PER_MEMORY

OPERAND_COUNTS = range(2, MAX_OPERANDS + 1)


def find_operand_faults(site: LayerContext) -> Iterator[Fault]:
    """Find faults of what one layer reads, if the layers before it have none."""
    for source in site.sources():
        # Processors read bytes; a sum of 32 bits takes four words that nothing can read.
        if source.wide:
            remedy = "remove output_width there, or use it as a result only"
            yield site.fault("in_sequences", "8-bit data", f"32-bit sums of {source.name}", remedy)
    yield from _check_eltwise(site) if site.layer.operands > 1 else _check_joined(site)
    if site.layer.operands > 1:
        yield from _check_combinations(site)
    # A description of the first generation can only leave gaps when writing.
    if site.place.read_gap and not site.device.features.read_gaps:
        yield site.fault(
            "read_gap",
            f"0 on the {site.device.name}",
            str(site.place.read_gap),
            "reformat by a passthrough layer",
        )
    elif site.place.read_gap and site.unit.in_passes > 1:
        yield site.fault(
            "read_gap",
            "0 with more than 64 channels",
            str(site.place.read_gap),
            "reformat by a passthrough layer",
        )


def _check_joined(site: LayerContext) -> Iterator[Fault]:
    """Check one input, or several that are joined along channels."""
    layer, sources = site.layer, site.sources()
    channels = sum(source.channels for source in sources)
    if channels != layer.channels:
        remedy = "correct in_channels or in_sequences"
        yield site.fault(
            "in_channels", f"{channels}, as {_list_names(sources)} has", str(layer.channels), remedy
        )
    if len(sources) == 1:
        yield from _check_positions(site, sources[0], prod(layer.dim))
        return
    for source in sources:
        if not _has_same_size(site, source):
            yield site.fault(
                "in_sequences",
                f"inputs of {format_size(layer.dim)}",
                f"{source.name} of {format_size(source.dim)}",
                "make the sizes equal",
            )
    # A layer writes whole words of four channels, so only the last input may end inside one.
    for source in sources[:-1]:
        if source.channels % PER_MEMORY:
            expected = f"a multiple of {PER_MEMORY} channels in all inputs but the last"
            yield site.fault(
                "in_sequences",
                expected,
                f"{source.channels} in {source.name}",
                "add channels whose weights are zero",
            )


def _has_same_size(site: LayerContext, source: LayerInput) -> bool:
    """Whether one of several inputs has the rows and columns of the layer.

    In a graph's network as many positions suffice: its views count them in another way.
    """
    return source.dim == site.layer.dim or (
        site.network.recounts and source.positions == prod(site.layer.dim)
    )


def _check_positions(site: LayerContext, source: LayerInput, positions: int) -> Iterator[Fault]:
    if source.positions != positions:
        key = "in_crop" if any(site.place.in_crop) else "in_dim"
        expected = f"{source.positions} positions, as {source.name} has ({format_size(source.dim)})"
        actual = f"{format_size(site.layer.dim)}, which takes {positions}"
        yield site.fault(key, expected, actual, "correct in_dim, in_crop or in_sequences")


def _check_eltwise(site: LayerContext) -> Iterator[Fault]:
    layer, sources = site.layer, site.sources()
    if layer.operands not in OPERAND_COUNTS:
        yield site.fault(
            "operands",
            f"{OPERAND_COUNTS[0]} to {OPERAND_COUNTS[-1]}",
            str(layer.operands),
            "combine in several layers",
        )
    if len(sources) == 1:
        (source,) = sources
        # The network's input brings all operands of a position; a layer's output counts them as positions.
        is_network_input = layer.inputs == (INPUT,)
        if source.channels != layer.channels * (layer.operands if is_network_input else 1):
            actual = f"{source.channels} channels of {source.name}"
            yield site.fault(
                "in_channels",
                f"{layer.operands} operands of {layer.channels} channels",
                actual,
                "correct in_channels",
            )
        operands_in_turn = 1 if is_network_input else layer.operands
        yield from _check_positions(site, source, prod(layer.dim) * operands_in_turn)
        return
    if len(sources) != layer.operands:
        actual = f"{len(sources)}: {_list_names(sources)}"
        yield site.fault(
            "in_sequences", f"{layer.operands} operands", actual, f"write operands: {len(sources)}"
        )
    for source in sources:
        if source.channels != layer.channels or not _has_same_size(site, source):
            actual = f"{source.name} of {source.channels} x {format_size(source.dim)}"
            expected = f"operands of equal size, {layer.channels} x {format_size(layer.dim)}"
            yield site.fault("in_sequences", expected, actual, "make the sizes equal")


def _check_combinations(site: LayerContext) -> Iterator[Fault]:
    """Check element-wise operations before a convolution.

    The parts do them before Conv2d only (source: the vendor's document, "Limitations"), and in few
    combinations with more than 64 channels.
    """
    layer, passes = site.layer, site.unit.in_passes
    name = layer.eltwise.name.lower() if layer.eltwise else "element-wise operation"
    if layer.operation not in (Operation.CONV2D, Operation.PASSTHROUGH):
        remedy = f"write it as a layer of its own, operation: {name}"
        yield site.fault("eltwise", "conv2d or no operation after it", layer.operation.value, remedy)
    # With one pass the operands of a position are read one after another, without a limit.
    if passes == 1:
        return
    actual = f"{name} of {layer.operands} operands of {layer.channels} channels with "
    remedy = f"write the {name} as a layer of its own"
    if site.device.features.wide_operands:
        if site.convolves and layer.bias is not None:
            expected = "no bias after an element-wise operation on more than 64 channels"
            yield site.fault("eltwise", expected, actual + "a convolution and bias", remedy)
    # The first generation computes two operands in two passes itself. Other combinations are emulated as
    # further rows (see `Unit.emulated_rows`), behind which nothing can follow in the same layer.
    elif (layer.operands, passes) != (2, 2) and (site.convolves or layer.pool):
        expected = (
            "neither pooling nor convolution with more than 64 channels, or more than 128 of two operands"
        )
        yield site.fault(
            "eltwise", expected, actual + ("a convolution" if site.convolves else "pooling"), remedy
        )


def _list_names(sources: list[LayerInput]) -> str:
    return ", ".join(source.name for source in sources)

"""Checks what layers read: inputs that fit together, and element-wise operations."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from mace_frontend_ai8x.network import INPUT, Operation
from mace_target_max78000.check.context import Fault, LayerContext, LayerInput, format_size
from mace_target_max78000.device import PER_MEMORY

OPERAND_COUNTS = range(2, 17)


def find_operand_faults(site: LayerContext) -> Iterator[Fault]:
    """All faults of what one layer reads, if the layers before are as they should be."""
    for source in site.sources():
        if source.wide:
            remedy = "remove output_width there, or use it as a result only"
            yield site.fault("in_sequences", "8-bit data", f"32-bit sums of {source.name}", remedy)
    yield from _check_eltwise(site) if site.layer.operands > 1 else _check_joined(site)
    if site.layer.operands > 1:
        yield from _check_combinations(site)
    if site.place.read_gap and not site.device.pipelined:
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
    """One input, or several joined along channels."""
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
    """Whether one of several inputs has the rows and columns of the layer, or as many positions where these may be counted anew."""
    return source.dim == site.layer.dim or (
        site.network.recounts and source.positions == prod(site.layer.dim)
    )


def _check_positions(site: LayerContext, source: LayerInput, positions: int) -> Iterator[Fault]:
    if source.positions != positions:
        key = "in_crop" if any(site.place.in_crop) else "in_dim"
        expected = f"{source.positions} positions, as {source.name} has ({format_size(source.dim)})"
        found = f"{format_size(site.layer.dim)}, which takes {positions}"
        yield site.fault(key, expected, found, "correct in_dim, in_crop or in_sequences")


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
        own = layer.inputs == (INPUT,)
        if source.channels != layer.channels * (layer.operands if own else 1):
            found = f"{source.channels} channels of {source.name}"
            yield site.fault(
                "in_channels",
                f"{layer.operands} operands of {layer.channels} channels",
                found,
                "correct in_channels",
            )
        yield from _check_positions(site, source, prod(layer.dim) * (1 if own else layer.operands))
        return
    if len(sources) != layer.operands:
        found = f"{len(sources)}: {_list_names(sources)}"
        yield site.fault(
            "in_sequences", f"{layer.operands} operands", found, f"write operands: {len(sources)}"
        )
    for source in sources:
        if source.channels != layer.channels or not _has_same_size(site, source):
            found = f"{source.name} of {source.channels} x {format_size(source.dim)}"
            expected = f"operands of equal size, {layer.channels} x {format_size(layer.dim)}"
            yield site.fault("in_sequences", expected, found, "make the sizes equal")


def _check_combinations(site: LayerContext) -> Iterator[Fault]:
    """Element-wise operations before a convolution.

    The parts do them before Conv2d only (source: the vendor's document, "Limitations"), and in few
    combinations with more than 64 channels.
    """
    layer, passes = site.layer, site.unit.in_passes
    name = layer.eltwise.name.lower() if layer.eltwise else "element-wise operation"
    if layer.operation not in (Operation.CONV2D, Operation.PASSTHROUGH):
        remedy = f"write it as a layer of its own, operation: {name}"
        yield site.fault("eltwise", "conv2d or no operation after it", layer.operation.value, remedy)
    if passes == 1:
        return
    found = f"{name} of {layer.operands} operands of {layer.channels} channels with "
    remedy = f"write the {name} as a layer of its own"
    if site.device.pipelined:
        if site.convolves and layer.bias is not None:
            expected = "no bias after an element-wise operation on more than 64 channels"
            yield site.fault("eltwise", expected, found + "a convolution and bias", remedy)
    elif (layer.operands, passes) != (2, 2) and (site.convolves or layer.pool):
        expected = (
            "neither pooling nor convolution with more than 64 channels, or more than 128 of two operands"
        )
        yield site.fault(
            "eltwise", expected, found + ("a convolution" if site.convolves else "pooling"), remedy
        )


def _list_names(sources: list[LayerInput]) -> str:
    return ", ".join(source.name for source in sources)

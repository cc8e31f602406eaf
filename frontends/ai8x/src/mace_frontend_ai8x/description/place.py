"""Reads where a description's layers lie: processors and offsets, some with defaults from other layers."""

from __future__ import annotations

from collections.abc import Sequence

from mace_core.deployment.faults import Faults
from mace_frontend_ai8x.description.keys import Description
from mace_frontend_ai8x.description.layer import axes, line_or_plane
from mace_frontend_ai8x.description.links import Links
from mace_frontend_ai8x.network import Buffer, Layer, LayerPlacement, Unload, processors_needed
from mace_frontend_ai8x.options import NetworkOptions


def places(
    description: Description, links: Sequence[Links], layers: Sequence[Layer], options: NetworkOptions
) -> tuple[LayerPlacement, ...]:
    """Return the placements of the layers, which may be fewer than the description has."""
    placements: list[LayerPlacement] = []
    for index, (d, link) in enumerate(zip(description.layers, links, strict=True)):
        if index == len(layers):
            break
        # The vendor's default: the previous layer's out_offset, and 0 for the first layer.
        before = placements[-1].out_offset if placements else options.input_offset or 0
        placements.append(
            LayerPlacement(
                processors=d.processors,
                # Zero bits would write nowhere, so they mean the default as well.
                output_processors=d.output_processors or _following(description, index, layers[index]),
                in_offset=before if d.in_offset is None else d.in_offset,
                out_offset=d.out_offset,
                write_gap=d.write_gap,
                read_gap=d.read_gap,
                streaming=(d.streaming and not options.ignore_streaming) or index in options.streaming_layers,
                chw=d.chw,
                bias_groups=d.bias_group,
                next=link.following,
                in_crop=axes(d.in_crop),
                weight_source=None if link.weights == index else link.weights,
                bypass=d.bypass,
                read_ahead=d.read_ahead or options.read_ahead,
                calcx4=d.calcx4 or options.calcx4,
                tcalc=d.tcalc,
                conditional_next=link.conditional,
            )
        )
    return tuple(placements)


def _following(description: Description, index: int, layer: Layer) -> int:
    """Return the slots that a layer writes to by default: the processors of the next layer.

    For the last layer those of output_map, or as many as are needed from 0 on.
    """
    if index + 1 < len(description.layers):
        return description.layers[index + 1].processors
    return description.output_map or (1 << processors_needed(layer.out_channels)) - 1


def unloads(description: Description) -> tuple[Unload, ...]:
    """Return the blocks of results under the key `unload`."""
    return tuple(
        Unload(u.processors, u.channels, line_or_plane(u.dim), u.offset, u.width, u.write_gap)
        for u in description.unload
    )


def check_buffers(description: Description, laid: Sequence[LayerPlacement], faults: Faults) -> None:
    """Report layers that shift or extend a buffer and lie at another offset than that needs."""
    all_buffers = buffers(description)
    for d, place in zip(description.layers, laid, strict=False):
        if not (d.buffer_shift or d.buffer_insert):
            continue
        key = "buffer_shift" if d.buffer_shift else "buffer_insert"
        of_processors = [buffer for buffer in all_buffers if buffer.processors == place.output_processors]
        at_offset = [buffer for buffer in of_processors if buffer.offset <= place.out_offset < buffer.end]
        if not at_offset:
            location = f"out_offset {place.out_offset:#06x} of its output_processors"
            problem = f"{d.title}: {key}: no buffer lies at {location}"
            faults.add(d.lines[key], problem, "list the buffer as data_buffer, or correct out_offset")
            continue
        buffer = at_offset[0]
        # A shift copies all positions but the oldest to the beginning: it reads so many further on.
        if d.buffer_shift and place.in_offset - place.out_offset != d.buffer_shift * buffer.pitch:
            remedy = f"write in_offset: {place.out_offset + d.buffer_shift * buffer.pitch:#06x}"
            distance = f"{d.buffer_shift} positions behind out_offset"
            problem = f"{d.title}: {key}: in_offset {place.in_offset:#06x} is not {distance}"
            faults.add(d.lines[key], problem, remedy)
        # New positions go to the end, which a shift has made free.
        if d.buffer_insert and place.out_offset != buffer.end - d.buffer_insert * buffer.pitch:
            remedy = f"write out_offset: {buffer.end - d.buffer_insert * buffer.pitch:#06x}"
            distance = f"{d.buffer_insert} positions before the end of {buffer.name}"
            problem = f"{d.title}: {key}: out_offset {place.out_offset:#06x} is not {distance}"
            faults.add(d.lines[key], problem, remedy)


def buffers(description: Description) -> tuple[Buffer, ...]:
    """Return the buffers under the key `data_buffer`."""
    return tuple(
        Buffer(b.name, b.processors, b.channels, line_or_plane(b.dim), b.offset)
        for b in description.data_buffer
    )

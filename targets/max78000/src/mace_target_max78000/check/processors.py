"""Checks which processors read and which slots results are written to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mace_frontend_ai8x.network import INPUT, processors_needed
from mace_target_max78000.check.context import Fault, LayerContext
from mace_target_max78000.device import PER_MEMORY, PER_QUADRANT, PROCESSORS
from mace_target_max78000.encode.hardware_layers import bits_of
from mace_target_max78000.wording import format_count

GROUP_MASK = (1 << PER_MEMORY) - 1
QUADRANT_MASK = (1 << PER_QUADRANT) - 1


def find_processor_faults(site: LayerContext) -> Iterator[Fault]:
    """Find faults of one layer's processors and output slots."""
    layer, place = site.layer, site.place
    count_faults = _check_count(site, "processors", place.processors, layer.channels)
    yield from count_faults
    if not _is_reported_by_reader(site):
        yield from _check_count(site, "output_processors", place.output_processors, layer.out_channels)
    # Passes are interleaved word by word, and a word is that of four processors.
    if not count_faults and layer.channels > PROCESSORS and not _has_whole_groups(place.processors):
        expected = "whole groups of four processors with more than 64 channels"
        remedy = f"write processors: {format_mask(_align_mask(place.processors))}"
        yield site.fault("processors", expected, format_mask(place.processors), remedy)
    yield from _check_output_slots(site)
    if not count_faults:
        yield from _check_input(site)


def find_quadrant_faults(sites: list[LayerContext]) -> Iterator[Fault]:
    """Check that the first quadrant is used, and that bias lies in used ones."""
    used = 0
    for site in sites:
        used |= site.place.processors
    # The quadrants in use are those of all processors, and of the slots of the last layer.
    used |= sites[-1].place.output_processors
    quadrants = {p // PER_QUADRANT for p in bits_of(used)}
    # The vendor's generator demands it; why is not documented.
    if 0 not in quadrants:
        remedy = "move a layer or the results to processors 0 to 15"
        yield Fault(
            "",
            "processors",
            "quadrant 0 (processors 0 to 15) in use",
            f"quadrants {sorted(quadrants)} only",
            remedy,
        )
    for site in sites:
        groups = site.place.bias_groups
        if groups is not None and not set(groups) <= quadrants:
            actual = ", ".join(map(str, groups))
            remedy = "name quadrants whose processors are used, or remove bias_group"
            yield site.fault("bias_group", f"quadrants among {sorted(quadrants)}", actual, remedy)


def _check_count(site: LayerContext, key: str, mask: int, channels: int) -> list[Fault]:
    """Check that there are as many bits as channels, or as channels of one pass."""
    needed, count = processors_needed(channels), mask.bit_count()
    if count == needed or not 1 <= channels <= site.device.channels:
        return []
    passes = -(-channels // PROCESSORS)
    why = format_count(channels, "channel") + (f" in {format_count(passes, 'pass')}" if passes > 1 else "")
    if site.layer.flatten and key == "processors":
        why += " before flattening"
    in_planes = site.place.chw and key == "processors" and needed <= PROCESSORS // PER_MEMORY
    mask_wanted = _spread_mask(needed) if in_planes else suggest_mask(mask, needed)
    remedy = f"write {key}: {format_mask(mask_wanted)} or other processors, as many as that"
    return [
        site.fault(
            key,
            f"{format_count(needed, 'bit')} for {why}",
            f"{format_count(count, 'bit')} in {format_mask(mask)}",
            remedy,
        )
    ]


def _is_reported_by_reader(site: LayerContext) -> bool:
    """Whether a later layer's processors are these slots, so that its check reports a wrong count."""
    layers, places = site.network.layers, site.network.places
    slots = site.place.output_processors
    readers = [i for i, layer in enumerate(layers) if layer.inputs == (site.index,)]
    return any(
        places[i].processors == slots and layers[i].channels == site.layer.out_channels for i in readers
    )


def _has_whole_groups(mask: int) -> bool:
    return all(mask >> i & GROUP_MASK in (0, GROUP_MASK) for i in range(0, PROCESSORS, PER_MEMORY))


def _check_output_slots(site: LayerContext) -> Iterator[Fault]:
    """Check output slots: passthrough layers pack each quadrant, depthwise ones begin with a word."""
    place = site.place
    # It does not sum over processors: each quadrant sends its bytes in order, four to a word.
    if not site.convolves and not _is_packed(place.processors, place.output_processors):
        packed = _pack(place.processors)
        rule = "as many slots in each quadrant as it has processors, in a row"
        expected = f"{format_mask(packed)} in a passthrough layer: {rule}"
        remedy = f"write output_processors: {format_mask(packed)}"
        yield site.fault("output_processors", expected, format_mask(place.output_processors), remedy)
    if site.layer.groups == 1:
        return
    # The write pointer counts words of four slots.
    if place.output_processors & -place.output_processors not in (
        1 << p for p in range(0, PROCESSORS, PER_MEMORY)
    ):
        remedy = f"write output_processors: {format_mask(_align_mask(place.output_processors))}"
        yield site.fault(
            "output_processors",
            "a first slot that is a multiple of 4 in a depthwise layer",
            format_mask(place.output_processors),
            remedy,
        )
    first = bits_of(place.processors)[0] if place.processors else 0
    if first % PER_MEMORY and place.processors >> first >= 1 << PER_QUADRANT:
        expected = "a first processor that is a multiple of 4 in a depthwise layer of several quadrants"
        yield site.fault(
            "processors",
            expected,
            format_mask(place.processors),
            f"write processors: {format_mask(_align_mask(place.processors))}",
        )


def _is_packed(processors: int, slots: int) -> bool:
    """Whether each quadrant's slots are a row of as many as it has processors."""
    return all(
        _count_row(slots >> q & QUADRANT_MASK) == (processors >> q & QUADRANT_MASK).bit_count()
        for q in range(0, PROCESSORS, PER_QUADRANT)
    )


def _count_row(slots: int) -> int:
    """How many slots follow each other without a gap; -1 where there are gaps."""
    first = slots & -slots
    count = slots.bit_count()
    return count if slots == ((1 << count) - 1) * first else -1


def _pack(processors: int) -> int:
    """Return the slots of a passthrough layer, in each quadrant in a row from the first processor on."""
    slots = 0
    for quadrant in range(0, PROCESSORS, PER_QUADRANT):
        inside = processors >> quadrant & QUADRANT_MASK
        if inside:
            # As many slots as processors never reach beyond the last processor of the quadrant.
            slots |= ((1 << inside.bit_count()) - 1) * (inside & -inside) << quadrant
    return slots


def _check_input(site: LayerContext) -> Iterator[Fault]:
    """Check the network's input: channel by channel in a memory of its own each, or through FIFOs."""
    place, numbers = site.place, bits_of(site.place.processors)
    if place.chw:
        if site.layer.inputs != (INPUT,):
            yield site.fault("data_format", "hwc in layers that read results", "chw", "remove data_format")
        if site.layer.channels > PROCESSORS // PER_MEMORY or site.layer.operands > 1:
            actual = f"{site.layer.channels} channels" + (
                f" of {site.layer.operands} operands" if site.layer.operands > 1 else ""
            )
            yield site.fault(
                "data_format", "at most 16 channels, one operand, in chw", actual, "write data_format: hwc"
            )
        # A plane fills whole words, so no two can share a memory.
        elif len({p // PER_MEMORY for p in numbers}) < len(numbers):
            remedy = f"write processors: {format_mask(_spread_mask(len(numbers)))}, or data_format: hwc"
            yield site.fault(
                "processors", "processors of different memories in chw", format_mask(place.processors), remedy
            )
    if site.fifo:
        yield from _check_fifo(site, numbers)


def _check_fifo(site: LayerContext, numbers: tuple[int, ...]) -> Iterator[Fault]:
    options, actual = site.options, format_mask(site.place.processors)
    if site.layer.inputs != (INPUT,) or site.layer.operands > 1:
        yield site.fault(
            "in_sequences", "one operand, the network's input, through a FIFO", "others", "do not use FIFOs"
        )
    if not options.fast_fifo:
        # A channel in planes has a FIFO's words for itself: they go to the first processor of its memory.
        served, names = (
            (1, "0, 16, 32 and 48") if site.place.chw else (PER_MEMORY, "0-3, 16-19, 32-35 and 48-51")
        )
        if any(p % PER_QUADRANT >= served for p in numbers):
            expected = f"processors {names}, which FIFOs serve" + (
                " where data_format is chw" if site.place.chw else ""
            )
            yield site.fault("processors", expected, actual, "move the channels, or do not use FIFOs")
        return
    # Only the RISC-V core reaches the fast FIFO.
    if not (options.riscv or options.riscv_debug or options.riscv_exclusive):
        yield site.fault("fast_fifo", "the RISC-V core", "the Arm core", "ask for riscv, or for fifo")
    allowed: Sequence[int] = (0,) if site.place.chw else range(PER_MEMORY)
    if options.fast_fifo_quad:
        allowed = range(0, PROCESSORS, PER_QUADRANT)
    if not set(numbers) <= set(allowed):
        yield site.fault(
            "processors",
            f"processors among {', '.join(map(str, allowed))} with the fast FIFO",
            actual,
            "move the channels",
        )


def format_mask(mask: int) -> str:
    """Write a mask as a description has it."""
    return f"{mask:#018x}"


def suggest_mask(mask: int, count: int) -> int:
    """Return so many processors in a row, from where the mask begins or as near as they fit."""
    first = (mask & -mask).bit_length() - 1 if mask else 0
    if first + count > PROCESSORS:
        first = (PROCESSORS - count) // PER_MEMORY * PER_MEMORY
    return ((1 << count) - 1) << first


def _spread_mask(count: int) -> int:
    """Return so many processors, one of each memory."""
    return sum(1 << PER_MEMORY * i for i in range(count))


def _align_mask(mask: int) -> int:
    """Return as many bits, from the multiple of four at or before the first one on."""
    first = ((mask & -mask).bit_length() - 1) // PER_MEMORY * PER_MEMORY
    return ((1 << mask.bit_count()) - 1) << first

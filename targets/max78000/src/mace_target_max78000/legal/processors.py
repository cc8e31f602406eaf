"""Which processors may read and where results may go."""

from __future__ import annotations

from collections.abc import Iterator

from mace_target_max78000.device import PER_MEMORY, PER_QUADRANT, PROCESSORS
from mace_target_max78000.legal.site import Fault, Site, counted
from mace_target_max78000.network import INPUT, processors_needed
from mace_target_max78000.unit import bits_of

ALIGNED = 4
EVERY_GROUP = 0xF


def processor_faults(site: Site) -> Iterator[Fault]:
    """All faults of one layer's processors and output slots."""
    layer, place = site.layer, site.place
    count = _count(site, "processors", place.processors, layer.channels)
    yield from count
    if not _told_by_a_reader(site):
        yield from _count(site, "output_processors", place.output_processors, layer.out_channels)
    if not count and layer.channels > PROCESSORS and not _whole_groups(place.processors):
        expected = "whole groups of four processors with more than 64 channels"
        remedy = f"write processors: {written(_moved(place.processors))}"
        yield site.fault("processors", expected, written(place.processors), remedy)
    yield from _same(site)
    if not count:
        yield from _input(site)


def network_processor_faults(sites: list[Site]) -> Iterator[Fault]:
    """Quadrants: the first one must be used, bias must lie in used ones."""
    used = 0
    for site in sites:
        used |= site.place.processors
    used |= sites[-1].place.output_processors
    quadrants = {p // PER_QUADRANT for p in bits_of(used)}
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
            found = ", ".join(map(str, groups))
            remedy = "name quadrants whose processors are used, or remove bias_group"
            yield site.fault("bias_group", f"quadrants among {sorted(quadrants)}", found, remedy)


def _count(site: Site, key: str, mask: int, channels: int) -> list[Fault]:
    """As many bits as channels, or as channels of one pass."""
    needed, given = processors_needed(channels), mask.bit_count()
    if given == needed or not 1 <= channels <= site.device.channels:
        return []
    passes = -(-channels // PROCESSORS)
    why = counted(channels, "channel") + (f" in {passes} passes" if passes > 1 else "")
    if site.layer.flatten and key == "processors":
        why += " before flattening"
    apart = site.place.chw and key == "processors" and needed <= PROCESSORS // PER_MEMORY
    remedy = f"write {key}: {written(_apart(needed) if apart else suggested(mask, needed))} or other processors, as many as that"
    return [
        site.fault(
            key, f"{counted(needed, 'bit')} for {why}", f"{counted(given, 'bit')} in {written(mask)}", remedy
        )
    ]


def _told_by_a_reader(site: Site) -> bool:
    """Whether a later layer's processors are these slots, so that it tells of a wrong count."""
    layers, places = site.network.layers, site.network.places
    slots = site.place.output_processors
    readers = [i for i, layer in enumerate(layers) if layer.inputs == (site.index,)]
    return any(
        places[i].processors == slots and layers[i].channels == site.layer.out_channels for i in readers
    )


def _whole_groups(mask: int) -> bool:
    return all(mask >> i & EVERY_GROUP in (0, EVERY_GROUP) for i in range(0, PROCESSORS, PER_MEMORY))


def _same(site: Site) -> Iterator[Fault]:
    """Passthrough layers pack the results of each quadrant; depthwise slots begin with a group of four."""
    place = site.place
    if not site.convolves and not _packed(place.processors, place.output_processors):
        packed = _packing(place.processors)
        expected = f"{written(packed)} in a passthrough layer: as many slots in each quadrant as it has processors, in a row"
        remedy = f"write output_processors: {written(packed)}"
        yield site.fault("output_processors", expected, written(place.output_processors), remedy)
    if site.layer.groups == 1:
        return
    if place.output_processors & -place.output_processors not in (1 << p for p in range(0, 64, ALIGNED)):
        remedy = f"write output_processors: {written(_moved(place.output_processors))}"
        yield site.fault(
            "output_processors",
            "a first slot that is a multiple of 4 in a depthwise layer",
            written(place.output_processors),
            remedy,
        )
    first = bits_of(place.processors)[0] if place.processors else 0
    if first % ALIGNED and place.processors >> first >= 1 << PER_QUADRANT:
        expected = "a first processor that is a multiple of 4 in a depthwise layer of several quadrants"
        yield site.fault(
            "processors",
            expected,
            written(place.processors),
            f"write processors: {written(_moved(place.processors))}",
        )


def _packed(processors: int, slots: int) -> bool:
    """Whether each quadrant's slots are a row of as many as it has processors."""
    return all(
        _row(slots >> q & 0xFFFF) == (processors >> q & 0xFFFF).bit_count()
        for q in range(0, PROCESSORS, PER_QUADRANT)
    )


def _row(slots: int) -> int:
    """How many slots follow each other without a gap; -1 where there are gaps."""
    first = slots & -slots
    count = slots.bit_count()
    return count if slots == ((1 << count) - 1) * first else -1


def _packing(processors: int) -> int:
    """The slots that a passthrough layer's results are packed to, in each quadrant from the memory of the first processor on."""
    found = 0
    for quadrant in range(0, PROCESSORS, PER_QUADRANT):
        inside = processors >> quadrant & 0xFFFF
        if inside:
            count = inside.bit_count()
            first = min((inside & -inside).bit_length() - 1, PER_QUADRANT - count)
            found |= ((1 << count) - 1) << quadrant + first
    return found


def _input(site: Site) -> Iterator[Fault]:
    """The network's input: channel by channel in a memory of its own each, and through FIFOs."""
    place, numbers = site.place, bits_of(site.place.processors)
    if place.chw:
        if site.layer.inputs != (INPUT,):
            yield site.fault("data_format", "hwc in layers that read results", "chw", "remove data_format")
        if site.layer.channels > PROCESSORS // PER_MEMORY or site.layer.operands > 1:
            found = f"{site.layer.channels} channels" + (
                f" of {site.layer.operands} operands" if site.layer.operands > 1 else ""
            )
            yield site.fault(
                "data_format", "at most 16 channels, one operand, in chw", found, "write data_format: hwc"
            )
        elif len({p // PER_MEMORY for p in numbers}) < len(numbers):
            remedy = f"write processors: {written(_apart(len(numbers)))}, or data_format: hwc"
            yield site.fault(
                "processors", "processors of different memories in chw", written(place.processors), remedy
            )
    if site.fifo:
        yield from _fifo(site, numbers)


def _fifo(site: Site, numbers: tuple[int, ...]) -> Iterator[Fault]:
    options, found = site.options, written(site.place.processors)
    if site.layer.inputs != (INPUT,) or site.layer.operands > 1:
        yield site.fault(
            "in_sequences", "one operand, the network's input, through a FIFO", "others", "do not use FIFOs"
        )
    if not options.fast_fifo:
        # a channel in planes has a FIFO's words for itself: they go to the first processor of its memory
        served, names = (
            (1, "0, 16, 32 and 48") if site.place.chw else (PER_MEMORY, "0-3, 16-19, 32-35 and 48-51")
        )
        if any(p % PER_QUADRANT >= served for p in numbers):
            expected = f"processors {names}, which FIFOs serve" + (
                " where data_format is chw" if site.place.chw else ""
            )
            yield site.fault("processors", expected, found, "move the channels, or do not use FIFOs")
        return
    if not (options.riscv or options.riscv_debug or options.riscv_exclusive):
        yield site.fault("fast_fifo", "the RISC-V core", "the Arm core", "ask for riscv, or for fifo")
    allowed = (0, 16, 32, 48) if options.fast_fifo_quad else (0,) if site.place.chw else (0, 1, 2, 3)
    if not set(numbers) <= set(allowed):
        yield site.fault(
            "processors",
            f"processors among {', '.join(map(str, allowed))} with the fast FIFO",
            found,
            "move the channels",
        )


def written(mask: int) -> str:
    """A mask as the language has it."""
    return f"{mask:#018x}"


def suggested(mask: int, count: int) -> int:
    """So many processors in a row, from where the mask begins or as near as they fit."""
    first = (mask & -mask).bit_length() - 1 if mask else 0
    if first + count > PROCESSORS:
        first = (PROCESSORS - count) // PER_MEMORY * PER_MEMORY
    return ((1 << count) - 1) << first


def _apart(count: int) -> int:
    """So many processors, one of each memory."""
    return sum(1 << PER_MEMORY * i for i in range(count))


def _moved(mask: int) -> int:
    """As many bits from the multiple of four at or before the first one on."""
    first = ((mask & -mask).bit_length() - 1) // PER_MEMORY * PER_MEMORY
    return ((1 << mask.bit_count()) - 1) << first

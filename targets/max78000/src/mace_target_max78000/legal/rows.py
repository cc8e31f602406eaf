"""What keeps rows for convolutions, and the registers that say when streaming layers wait, as the layers run in hardware."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mace_target_max78000.legal.site import Fault, Site
from mace_target_max78000.synthesis.streaming import streams
from mace_target_max78000.unit import Unit, units

COLUMN_BITS = 5
NARROWER = "make the rows shorter: pool or crop before, or fold the data into more channels"


def row_faults(sites: Sequence[Site]) -> Iterator[Fault]:
    """Rows that do not fit into the processors' row memory, streaming that the registers cannot say.

    For a network without other faults.
    """
    device, options = sites[0].device, sites[0].options
    lowered = units(sites[0].network, device.pipelined)
    yield from _row_memory(sites, lowered)
    start_bits, row_bits = (15, 14) if device.pipelined else (14, 12)
    for index, stream in streams(lowered, options, device.pipelined).items():
        if not sites[index].place.streaming:
            continue
        limits = {
            "start": (stream.start, start_bits),
            "columns": (stream.columns, COLUMN_BITS),
            "rows": (stream.rows, row_bits),
        }
        for name, (value, bits) in limits.items():
            if value >= 1 << bits:
                expected = f"a wait for {name} of fewer than {1 << bits} words"
                yield sites[index].fault("streaming", expected, str(value), NARROWER)


def _row_memory(sites: Sequence[Site], lowered: Sequence[Unit]) -> Iterator[Fault]:
    """Streaming layers have their rows beside one another, others after one another."""
    device, streaming = sites[0].device, 0
    for site, unit in zip(sites, lowered, strict=True):
        if not unit.convolves or unit.pointwise or unit.layer.one_dimensional:
            continue
        words = unit.tram * unit.in_passes + (streaming if site.place.streaming else 0)
        if site.place.streaming:
            streaming = words
        if words > device.tram_words:
            expected = f"at most {device.tram_words} words of a processor's row memory"
            found = f"{words}, {unit.tram} for each of {unit.in_passes} passes" + (
                " with the layers before" if site.place.streaming else ""
            )
            yield site.fault("in_dim", expected, found, NARROWER)

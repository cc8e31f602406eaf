"""A report as a picture: weight memory by processor and column, data memory over time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files

from mace_core.emit.render import render
from mace_core.emit.text import Code, Word, XmlText
from mace_frontend_ai8x.network import INPUT
from mace_target_max78000.device import PER_MEMORY, PROCESSORS
from mace_target_max78000.report.analysis import LayerReport, Report
from mace_target_max78000.report.formats import shorten_name

TEMPLATE = files("mace_target_max78000") / "report" / "templates" / "memory.svg.in"
HUE = 137.5
"""Degrees from a layer's hue to the next one's: the golden angle, so that neighbours differ most."""
ROW = 6
WEIGHTS = 640
"""Units of length: height of a processor's row, width of the weight memory."""
PANEL = 150, 110
PANELS = 4
"""A data memory's panel, and how many lie side by side: those of a quadrant."""


@dataclass(frozen=True)
class Box:
    """A rectangle.  title: what a viewer shows where one points at it."""

    x: float
    y: float
    width: float
    height: float
    colour: Code
    title: XmlText


def draw_memory_map(report: Report) -> str:
    """SVG text, the same for the same report."""
    return render(
        TEMPLATE,
        name=XmlText(shorten_name(report.name)),
        device=Word(report.device.name),
        weights=list(_weights(report)),
        data=list(_data(report)),
        rows=PROCESSORS,
        row=ROW,
        weights_width=WEIGHTS,
        panel=PANEL,
        panels=[(m, m % PANELS, m // PANELS) for m in range(PROCESSORS // PER_MEMORY)],
        legend=[(XmlText(shorten_name(layer.name)), _colour(i)) for i, layer in enumerate(report.layers)],
    )


def _colour(layer: int) -> Code:
    return Code("hsl(0,0%,60%)" if layer == INPUT else f"hsl({layer * HUE % 360:g},60%,60%)")


def _weights(report: Report) -> Iterator[Box]:
    """A box for each layer's run in each processor's row, neighbouring rows together."""
    scale = WEIGHTS / max(report.device.kernel_capacity(p) for p in range(PROCESSORS))
    for index, layer in enumerate(report.layers):
        if layer.run is None:
            continue
        title = (
            f"{shorten_name(layer.name)}: words {layer.run.column}-{layer.run.column + layer.run.count - 1}"
        )
        for first, count in _rows(layer):
            x, width = round(layer.run.column * scale, 2), round(layer.run.count * scale, 2)
            yield Box(x, first * ROW, width, count * ROW, _colour(index), XmlText(title))


def _rows(layer: LayerReport) -> Iterator[tuple[int, int]]:
    """Runs of processors side by side: the first and how many."""
    first = None
    for p in range(PROCESSORS + 1):
        active = layer.processors >> p & 1
        if active and first is None:
            first = p
        elif not active and first is not None:
            yield first, p - first
            first = None


def _data(report: Report) -> Iterator[Box]:
    """A box for each range of bytes in each memory; time goes to the right, bytes go up."""
    width, height = PANEL
    across, up = width / (len(report.layers) + 1), height / report.device.data_bytes
    for found in report.ranges:
        name = "input" if found.maker == INPUT else shorten_name(report.layers[found.maker].name)
        for memory in found.memories:
            yield Box(
                x=round(memory % PANELS * (width + 10) + found.start * across, 2),
                y=round(memory // PANELS * (height + 20) + height - found.last * up, 2),
                width=round((found.end - found.start + 1) * across, 2),
                height=round((found.last - found.first) * up, 2),
                colour=_colour(found.maker),
                title=XmlText(
                    f"{name}: bytes {found.first}-{found.last - 1} of data memory {memory}, layers {found.start}-{found.end}"
                ),
            )

"""Formats a report: as lines of text, as data for JSON, and as a picture.

The picture shows weight memory by processor and column, and data memory over time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any

from mace_core.emit.render import render
from mace_core.emit.text import Code, Word, XmlText, shorten, visible
from mace_frontend_ai8x.network import INPUT
from mace_target_max78000.device import PER_MEMORY, PER_QUADRANT, PROCESSORS
from mace_target_max78000.report.analysis import DataRange, LayerUsage, Operations, ProgramReport

LONGEST = 60
"""Characters of a name."""
HEADINGS = ("layer", "name", "processors", "output", "weights", "operations", "cycles")


def format_summary(report: ProgramReport) -> str:
    """Operations, memory and cycles of the whole, then a table of layers and one of data memory."""
    quadrants = ", ".join(map(str, report.quadrants))
    weights = _share(report.weight_bytes, report.weight_capacity)
    lines = [
        f"{shorten_name(report.name)} on {report.device.name}, quadrants {quadrants}",
        f"Operations: {_operations(report.operations)}",
        f"Weight memory: {weights}; at most {max(report.columns)} words of a processor",
        f"Bias memory: {_share(report.bias_bytes, report.bias_capacity)}",
        f"Data memory: {_share(report.data_bytes, report.data_capacity)}",
        f"Cycles: {report.cycles:,} (estimate)",
        f"Tables in flash: {', '.join(f'{name} {size:,}' for name, size in report.flash.items())} bytes",
        "",
        *_table([HEADINGS, *(_row(i, layer) for i, layer in enumerate(report.layers))]),
        "",
        *_table(
            [("data of", "data memories", "bytes", "layers"), *(_range(report, r) for r in report.ranges)]
        ),
    ]
    return "\n".join(lines) + "\n"


def shorten_name(name: str) -> str:
    """Return a model's name as a report shows it: printable characters only, cut to the width of a column."""
    return shorten(visible(name), LONGEST)


def _operations(counts: Operations) -> str:
    parts = (
        ("macc", counts.multiplications),
        ("comp", counts.comparisons),
        ("add", counts.additions),
        ("bitwise", counts.bitwise),
    )
    return f"{counts.total:,} ({'; '.join(f'{count:,} {name}' for name, count in parts)})"


def _share(used: int, capacity: int) -> str:
    return f"{used:,} of {capacity:,} bytes ({100 * used // capacity} %)"


def _row(index: int, layer: LayerUsage) -> tuple[str, ...]:
    run = layer.run
    weights = "-" if run is None else f"{run.column}-{run.column + run.count - 1}"
    masks = _mask(layer.processors), _mask(layer.output_processors)
    return (
        str(index),
        shorten_name(layer.name),
        *masks,
        weights,
        f"{layer.operations.total:,}",
        f"{layer.cycles:,}",
    )


def _mask(mask: int) -> str:
    return ".".join(f"{mask >> PER_QUADRANT * q & 0xFFFF:04x}" for q in (3, 2, 1, 0))


def _range(report: ProgramReport, data_range: DataRange) -> tuple[str, ...]:
    name = "input" if data_range.producer == INPUT else shorten_name(report.layers[data_range.producer].name)
    end = "end" if data_range.end >= len(report.layers) else str(data_range.end)
    return (
        name,
        _runs(data_range.memories),
        f"0x{data_range.first:05x}-0x{data_range.last - 1:05x}",
        f"{data_range.start}-{end}",
    )


def _runs(numbers: tuple[int, ...]) -> str:
    """Return ascending numbers with consecutive ones as `first-last`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def format_data(report: ProgramReport) -> dict[str, Any]:
    """Return the report as numbers, strings, lists and dictionaries.

    Masks are hexadecimal strings, byte ranges [first, after the last].
    """
    return {
        "network": report.name,
        "device": report.device.name,
        "quadrants": list(report.quadrants),
        "cycles": report.cycles,
        "operations": asdict(report.operations),
        "weights": {
            "bytes": report.weight_bytes,
            "capacity": report.weight_capacity,
            "words": list(report.columns),
        },
        "bias": {"bytes": report.bias_bytes, "capacity": report.bias_capacity},
        "data": {"bytes": report.data_bytes, "capacity": report.data_capacity},
        "flash": dict(report.flash),
        "layers": [
            {
                "name": layer.name,
                "processors": f"{layer.processors:016x}",
                "output_processors": f"{layer.output_processors:016x}",
                "columns": None if layer.run is None else [layer.run.column, layer.run.count],
                "weight_bytes": layer.weight_bytes,
                "bias_bytes": layer.bias_bytes,
                "operations": asdict(layer.operations),
                "cycles": layer.cycles,
            }
            for layer in report.layers
        ],
        "ranges": [
            {
                "layer": r.producer,
                "memories": list(r.memories),
                "bytes": [r.first, r.last],
                "layers": [r.start, r.end],
            }
            for r in report.ranges
        ],
    }


TEMPLATE = files("mace_target_max78000") / "report" / "templates" / "memory.svg.in"
HUE = 137.5
"""Degrees from a layer's hue to the next one's: the golden angle, so that neighbors differ most."""
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
    color: Code
    title: XmlText


def draw_memory_map(report: ProgramReport) -> str:
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
        legend=[(XmlText(shorten_name(layer.name)), _color(i)) for i, layer in enumerate(report.layers)],
    )


def _color(layer: int) -> Code:
    return Code("hsl(0,0%,60%)" if layer == INPUT else f"hsl({layer * HUE % 360:g},60%,60%)")


def _weights(report: ProgramReport) -> Iterator[Box]:
    """Yield a box for each layer's run in each processor's row, neighboring rows together."""
    scale = WEIGHTS / max(report.device.kernel_capacity(p) for p in range(PROCESSORS))
    for index, layer in enumerate(report.layers):
        if layer.run is None:
            continue
        title = (
            f"{shorten_name(layer.name)}: words {layer.run.column}-{layer.run.column + layer.run.count - 1}"
        )
        for first, count in _rows(layer):
            x, width = round(layer.run.column * scale, 2), round(layer.run.count * scale, 2)
            yield Box(x, first * ROW, width, count * ROW, _color(index), XmlText(title))


def _rows(layer: LayerUsage) -> Iterator[tuple[int, int]]:
    """Yield runs of processors side by side: the first and how many."""
    first = None
    for p in range(PROCESSORS + 1):
        active = layer.processors >> p & 1
        if active and first is None:
            first = p
        elif not active and first is not None:
            yield first, p - first
            first = None


def _data(report: ProgramReport) -> Iterator[Box]:
    """Yield a box for each range of bytes in each memory; time goes to the right, bytes go up."""
    width, height = PANEL
    across, up = width / (len(report.layers) + 1), height / report.device.data_bytes
    for data_range in report.ranges:
        name = (
            "input" if data_range.producer == INPUT else shorten_name(report.layers[data_range.producer].name)
        )
        bytes_held = f"bytes {data_range.first}-{data_range.last - 1}"
        layers = f"layers {data_range.start}-{data_range.end}"
        for memory in data_range.memories:
            yield Box(
                x=round(memory % PANELS * (width + 10) + data_range.start * across, 2),
                y=round(memory // PANELS * (height + 20) + height - data_range.last * up, 2),
                width=round((data_range.end - data_range.start + 1) * across, 2),
                height=round((data_range.last - data_range.first) * up, 2),
                color=_color(data_range.producer),
                title=XmlText(f"{name}: {bytes_held} of data memory {memory}, {layers}"),
            )

"""Formats a report as text for people and as data.

A report as plain lines.

A report as plain data, for JSON.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from mace_core.emit.text import shortened, visible
from mace_frontend_ai8x.network import INPUT
from mace_target_max78000.device import PER_QUADRANT
from mace_target_max78000.report.analysis import DataRange, LayerReport, Report
from mace_target_max78000.report.costs import Operations

LONGEST = 60
"""Characters of a name."""
HEADINGS = ("layer", "name", "processors", "output", "weights", "operations", "cycles")


def format_summary(report: Report) -> str:
    """Operations, memory and cycles of the whole, then a table of layers and one of data memory."""
    lines = [
        f"{shorten_name(report.name)} on {report.device.name}, quadrants {', '.join(map(str, report.quadrants))}",
        f"Operations: {_operations(report.operations)}",
        f"Weight memory: {_share(report.weight_bytes, report.weight_capacity)}; at most {max(report.columns)} words of a processor",
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
    """A name from a model as a report shows it: without signs that are not shown, and not longer than a column should be."""
    return shortened(visible(name), LONGEST)


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


def _row(index: int, layer: LayerReport) -> tuple[str, ...]:
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


def _range(report: Report, found: DataRange) -> tuple[str, ...]:
    name = "input" if found.maker == INPUT else shorten_name(report.layers[found.maker].name)
    end = "end" if found.end >= len(report.layers) else str(found.end)
    return name, _runs(found.memories), f"0x{found.first:05x}-0x{found.last - 1:05x}", f"{found.start}-{end}"


def _runs(numbers: tuple[int, ...]) -> str:
    """Ascending numbers with consecutive ones as `first-last`."""
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


def format_data(report: Report) -> dict[str, Any]:
    """Numbers, texts, lists and dicts only.

    Masks are hexadecimal texts, byte ranges [first, after the last].
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
                "layer": r.maker,
                "memories": list(r.memories),
                "bytes": [r.first, r.last],
                "layers": [r.start, r.end],
            }
            for r in report.ranges
        ],
    }

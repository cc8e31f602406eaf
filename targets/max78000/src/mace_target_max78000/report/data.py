"""A report as plain data, for JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from mace_target_max78000.report.analysis import Report


def as_dict(report: Report) -> dict[str, Any]:
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

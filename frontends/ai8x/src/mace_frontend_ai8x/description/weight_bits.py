"""Reads the bits of weights that a network description states, for the quantization of its checkpoint."""

from __future__ import annotations

from pathlib import Path

from mace_frontend_ai8x.description.keys import BINARY, parse


def read_weight_bits(path: Path) -> tuple[int | None, ...]:
    """Return what a description states under `quantization` for each layer with weights of its own.

    In the order of the sequence numbers, which is that of the checkpoint; None where nothing is stated.
    MaceError with all faults of the keys, and for weights of -1 and +1, which no quantization makes.
    """
    description, faults = parse(path)
    layers = [layer for layer in description.layers if layer.weighted]
    for layer in layers:
        if layer.quantization == BINARY:
            problem = f"{layer.title}: quantization: weights of -1 and +1 come from training alone"
            faults.add(layer.lines["quantization"], problem, "write 1, 2, 4 or 8")
    faults.check()
    return tuple(layer.quantization for layer in layers)

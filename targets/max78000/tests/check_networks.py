"""Small networks for the tests of `check`: each limit is broken by one of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from mace_core.ir import Array
from mace_frontend_ai8x.network import (
    INPUT,
    Eltwise,
    Layer,
    LayerPlacement,
    Network,
    Operation,
    Weights,
    processors_needed,
)
from mace_target_max78000.check import find_faults
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.options import Options


def mask(channels: int, first: int = 0) -> int:
    return (1 << processors_needed(channels)) - 1 << first


def layer(operation: Operation, shape: tuple[int, ...], out: int | None = None, **changes: Any) -> Layer:
    """A layer that is legal but for its changes, on an input of [channels, rows, columns] or [channels, length]."""
    channels, rows, columns = (*shape, 1)[:3]
    out = channels if out is None else out
    kernel = {Operation.CONV2D: (3, 3), Operation.CONV_TRANSPOSE2D: (3, 3), Operation.CONV1D: (3, 1)}.get(
        operation, (1, 1)
    )
    kernel = changes.pop("kernel", kernel)
    pad = {Operation.CONV2D: (1, 1), Operation.CONV_TRANSPOSE2D: (1, 1)}.get(operation, (0, 0))
    given: dict[str, Any] = {
        "inputs": (INPUT,),
        "channels": channels,
        "dim": (rows, columns),
        "out_channels": out,
        "pad": pad,
        **changes,
    }
    made = Layer("one", operation, kernel=kernel, **given)
    if operation is Operation.PASSTHROUGH or "weights" in changes:
        return made
    return replace(made, weights=Weights(np.ones(weights_shape(made), np.int64)))


def weights_shape(made: Layer) -> tuple[int, ...]:
    inputs = made.channels // made.groups
    if made.operation is Operation.LINEAR:
        return made.out_channels, made.channels * (made.dim[0] * made.dim[1] if made.flatten else 1)
    if made.operation is Operation.CONV1D:
        return made.out_channels, inputs, made.kernel[0]
    ends = (
        (made.channels, made.out_channels)
        if made.operation is Operation.CONV_TRANSPOSE2D
        else (made.out_channels, inputs)
    )
    return *ends, *made.kernel


def network(
    *layers: Layer, sample: Array | None = None, places: tuple[LayerPlacement, ...] = (), **changes: Any
) -> Network:
    """Layers one after the other, each writing behind what it reads."""
    named = (
        [
            replace(made, name=name)
            for made, name in zip(layers, ("one", "two", "three", "four"), strict=False)
        ]
        if len(layers) < 5
        else layers
    )
    if sample is None:
        first = layers[0]
        sample = np.zeros((first.channels * first.operands, *first.dim), np.int64)
    if not places:
        begin = (0 if made.inputs == (INPUT,) else 0x4000 * (i % 2) for i, made in enumerate(layers))
        places = tuple(
            place(made, offset, 0x4000 * (1 - i % 2))
            for i, (made, offset) in enumerate(zip(layers, begin, strict=True))
        )
    return Network("net", tuple(named), places, sample, **changes)


def place(made: Layer, in_offset: int = 0, out_offset: int = 0x4000, **changes: Any) -> LayerPlacement:
    return replace(
        LayerPlacement(mask(made.channels), mask(made.out_channels), in_offset, out_offset), **changes
    )


def list_faults(given: Network, device: Chip = MAX78000, **options: Any) -> list[str]:
    """Layer and key of each fault."""
    return [f"{fault.layer}: {fault.key}" for fault in find_faults(given, device, Options(**options))]


C1, C2, T2, FC, NO = (
    Operation.CONV1D,
    Operation.CONV2D,
    Operation.CONV_TRANSPOSE2D,
    Operation.LINEAR,
    Operation.PASSTHROUGH,
)


def eltwise(shape: tuple[int, ...], operation: Operation = NO, **changes: Any) -> Layer:
    return layer(operation, shape, **{"eltwise": Eltwise.ADD, "operands": 2, **changes})

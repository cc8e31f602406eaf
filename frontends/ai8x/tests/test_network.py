"""Sizes that follow from a layer's description, and where a fault of it is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mace_frontend_ai8x.network import (
    BUFFER,
    INPUT,
    STOP,
    Buffer,
    Eltwise,
    Layer,
    LayerPlacement,
    Network,
    Operation,
    Origin,
    Pool,
    Section,
    Unload,
    processors_needed,
)

C1, C2, T2 = Operation.CONV1D, Operation.CONV2D, Operation.CONV_TRANSPOSE2D
FC, NO = Operation.LINEAR, Operation.PASSTHROUGH


def layer(operation: Operation, dim: tuple[int, int], **changes: Any) -> Layer:
    return Layer("layer", operation, (INPUT,), 6, dim, 10, **changes)


@pytest.mark.parametrize(
    ("made", "pooled", "out"),
    [
        (layer(NO, (7, 9)), (7, 9), (7, 9)),
        (layer(NO, (7, 9), stride=2), (4, 5), (4, 5)),
        (layer(NO, (7, 9), pool=Pool(False, (2, 2), 2)), (3, 4), (3, 4)),
        (layer(NO, (7, 9), pool=Pool(True, (3, 2), 1)), (5, 8), (5, 8)),
        (layer(NO, (7, 9), pool=Pool(False, (3, 3), 1, (2, 3))), (3, 3), (3, 3)),
        (layer(NO, (9, 1), pool=Pool(False, (3, 1), 3)), (3, 1), (3, 1)),
        (layer(C2, (7, 9), kernel=(3, 3)), (7, 9), (5, 7)),
        (layer(C2, (7, 9), kernel=(3, 3), pad=(1, 2)), (7, 9), (7, 11)),
        (layer(C2, (7, 9), kernel=(3, 3), dilation=(2, 3)), (7, 9), (3, 3)),
        (layer(C2, (8, 8), kernel=(3, 3), pad=(1, 1), pool=Pool(False, (2, 2), 2)), (4, 4), (4, 4)),
        (layer(T2, (4, 5), kernel=(3, 3), pad=(1, 1)), (4, 5), (8, 10)),
        (layer(T2, (4, 5), kernel=(3, 3), pad=(0, 2)), (4, 5), (10, 8)),
        (layer(C1, (20, 1), kernel=(5, 1), pad=(2, 0)), (20, 1), (20, 1)),
        (layer(C1, (20, 1), kernel=(3, 1), dilation=(4, 1)), (20, 1), (12, 1)),
        (layer(C1, (20, 1), kernel=(3, 1), pool=Pool(True, (2, 1), 2)), (10, 1), (8, 1)),
        (layer(FC, (4, 5), flatten=True), (4, 5), (1, 1)),
        (layer(FC, (4, 5)), (4, 5), (4, 5)),
    ],
)
def test_rows_and_columns(made: Layer, pooled: tuple[int, int], out: tuple[int, int]) -> None:
    """Against PyTorch's formulas: no dilated window reaches over the end, a stride rounds down."""
    assert (made.pooled, made.out_dim) == (pooled, out)


@pytest.mark.parametrize(
    ("made", "shape"),
    [
        (layer(C2, (7, 9), kernel=(3, 3)), (10, 6, 3, 3)),
        (layer(C2, (7, 9), kernel=(1, 1), groups=3), (10, 2, 1, 1)),
        (layer(C1, (7, 1), kernel=(5, 1)), (10, 6, 5)),
        (layer(C1, (7, 1), kernel=(5, 1), groups=2), (10, 3, 5)),
        (layer(T2, (7, 9), kernel=(3, 3)), (6, 10, 3, 3)),
        (layer(FC, (1, 1)), (10, 6)),
        (layer(FC, (4, 5), flatten=True), (10, 120)),
        (layer(FC, (4, 6), flatten=True, pool=Pool(False, (2, 2), 2)), (10, 36)),
    ],
)
def test_shape_of_weights(made: Layer, shape: tuple[int, ...]) -> None:
    assert made.weights_shape == shape


def test_defaults_change_nothing() -> None:
    """A layer that states nothing else computes one operand, unpooled, unshifted, in 8 bits."""
    result = layer(C2, (4, 4))
    assert (result.kernel, result.pad, result.dilation, result.groups, result.stride) == (
        (1, 1),
        (0, 0),
        (1, 1),
        1,
        1,
    )
    assert (result.operands, result.pool_first, result.flatten, result.shift, result.wide, result.output) == (
        *(1, True, False, 0, False, False),
    )
    assert result.window == ((1, 1), (1, 1), 1)
    assert (result.width, layer(C2, (4, 4), wide=True).width) == (8, 32)
    assert (result.one_dimensional, layer(C1, (4, 1)).one_dimensional) == (False, True)
    place = LayerPlacement(1, 2)
    assert (place.in_offset, place.out_offset, place.write_gap, place.read_gap, place.in_crop) == (
        0,
        0,
        0,
        0,
        (0, 0),
    )
    switches = (place.streaming, place.chw, place.bypass, place.read_ahead, place.calcx4)
    assert not any(switches)
    assert (Unload(1, 4, (1, 1), 0).width, Unload(1, 4, (1, 1), 0).write_gap) == (8, 0)
    assert (INPUT, STOP, BUFFER) == (-1, -2, -3)
    assert [(e.name, e.value) for e in Eltwise] == [("SUB", 0), ("ADD", 1), ("OR", 2), ("XOR", 3)]


@pytest.mark.parametrize(
    ("pool", "pools"), [(None, False), (Pool(False, (1, 1), 2), False), (Pool(False, (1, 2), 1), True)]
)
def test_a_window_of_one_position_only_subsamples(pool: Pool | None, pools: bool) -> None:
    assert layer(NO, (4, 4), pool=pool).pools is pools


@pytest.mark.parametrize(
    ("channels", "needed"),
    [(1, 1), (63, 63), (64, 64), (65, 36), (72, 36), (73, 40), (128, 64), (129, 44), (192, 64), (1024, 64)],
)
def test_processors_of_channels(channels: int, needed: int) -> None:
    """The vendor's document: passes of equal size, each a multiple of four where there are several."""
    assert processors_needed(channels) == needed


@pytest.mark.parametrize(("channels", "pitch"), [(1, 4), (64, 4), (65, 8), (128, 8), (129, 12)])
def test_positions_of_a_buffer(channels: int, pitch: int) -> None:
    buffer = Buffer("past", 1, channels, (5, 3), 0x100)
    assert (buffer.pitch, buffer.end) == (pitch, 0x100 + 15 * pitch)


def test_lines_of_faults() -> None:
    """A key that is not written is shown at its layer, what belongs to none at the first line of the file's own keys."""
    origin = Origin(Path("net.yaml"), {"a": Section("layer 0 (a)", 7, {"pad": 9})}, {"arch": 3, "dataset": 2})
    assert origin.locate("a", "pad") == (9, "layer 0 (a)")
    assert origin.locate("a", "kernel_size") == (7, "layer 0 (a)")
    assert origin.locate("", "arch") == (3, "")
    assert origin.locate("", "layers") == (2, "")
    assert Origin(Path("net.yaml"), {}).locate("", "layers") == (1, "")


def test_layers_that_run() -> None:
    network = Network("net", (), (), np.zeros((1, 1, 1), np.int64))
    assert network.runs(3)
    assert not network.recounts
    some = Network("net", (), (), np.zeros((1, 1, 1), np.int64), sampled=(0, 2))
    assert [some.runs(i) for i in range(3)] == [True, False, True]

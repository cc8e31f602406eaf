"""Depthwise convolutions of bytes: the order of their weights, the lines that they copy, and their bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from byte_graphs import draw
from emulated import assert_equal
from test_dsp_products import I8, OUT, U8, U8_OUT, convolve

from mace_core.ir import Graph
from mace_core.program import Arg
from mace_core.testing.compiled import merge
from mace_target_hexagon.depthwise import MAX_LINE_BYTES, MAX_ROWS, REGISTER, Lines, RepeatedOrder


def describe(out: tuple[int, int], channels: int, stride: int = 1, dilation: int = 1) -> dict[str, Arg]:
    """Return the arguments of a window of 3 x 3."""
    return {
        "channels": channels,
        "kernel": (1, 3, 3),
        "stride": (1, stride, stride),
        "dilation": (1, dilation, dilation),
        "out": (1, *out),
    }


def test_first_channels_follow_the_last() -> None:
    order = RepeatedOrder(REGISTER, 1)
    assert order.arrange(np.arange(3)).tolist() == [i % 3 for i in range(3 + REGISTER)]


def test_four_taps_of_a_channel_lie_together() -> None:
    summands = np.arange(2 * 8).reshape(2, 8).astype(np.int8)
    packed = RepeatedOrder(REGISTER, 1).pack(summands)
    assert packed.shape == (2, 2 + REGISTER, 4)
    assert packed[0, :3].tolist() == [[0, 1, 2, 3], [8, 9, 10, 11], [0, 1, 2, 3]]
    assert packed[1, 1].tolist() == [12, 13, 14, 15]


def test_rows_are_computed_together_as_far_as_their_lines_fit() -> None:
    small, large = Lines.of(describe((20, 20), 16)), Lines.of(describe((20, 200), 100))
    assert (small.together, small.lines) == (MAX_ROWS, MAX_ROWS + 2)
    assert 1 < large.together < MAX_ROWS
    assert large.lines * large.line_bytes <= MAX_LINE_BYTES


def test_lines_have_room_for_the_last_register() -> None:
    for channels in (1, 24, 128, 130):
        lines = Lines.of(describe((4, 7), channels))
        assert lines.line_bytes % REGISTER == 0
        assert lines.line_bytes >= -(-7 * channels // REGISTER) * REGISTER + 2 * channels


def test_strides_and_dilation_compute_row_by_row() -> None:
    assert not Lines.of(describe((8, 8), 24, stride=2)).is_flat
    dilated = Lines.of(describe((8, 8), 24, dilation=2))
    assert (dilated.is_flat, dilated.together, dilated.lines) == (True, 1, 3)
    assert not Lines.of(describe((8, 8), 256, dilation=2)).is_flat


def window(sizes: tuple[int, ...], **attrs: object) -> dict[str, object]:
    """Return attributes for so many axes, with no padding where none is stated."""
    axes = len(sizes) - 2
    plain = {"strides": (1,) * axes, "dilations": (1,) * axes}
    pads = {"pads_before": (0,) * axes, "pads_after": (0,) * axes}
    return {**plain, **pads, **attrs}


def depthwise(name: str, shape: tuple[int, ...], kernel: tuple[int, ...], **attrs: object) -> Graph:
    """Return a depthwise convolution of int8 where the name has an i, else of uint8."""
    channels = shape[-1]
    x, y = (I8, OUT) if "i" in name else (U8, U8_OUT)
    filters = (channels, *kernel, 1)
    return convolve(name, shape, filters, x, y, group=channels, **window(shape, **attrs))


ONE = {"pads_before": (1, 1), "pads_after": (1, 1)}
CASES = (
    depthwise("one_run", (1, 9, 4, 32), (3, 3), **ONE),
    depthwise("thin", (2, 7, 5, 3), (3, 3), **ONE),
    depthwise("two", (1, 5, 40, 2), (3, 3), **ONE),
    depthwise("uneven", (1, 4, 9, 58), (3, 3), **ONE),
    depthwise("wide", (1, 3, 4, 260), (5, 5), pads_before=(2, 2), pads_after=(2, 2)),
    depthwise("slow", (1, 9, 11, 40), (3, 3), strides=(2, 2), pads_before=(0, 0), pads_after=(1, 1)),
    depthwise("tall_strides", (1, 9, 6, 24), (3, 3), strides=(2, 1), **ONE),
    depthwise("flat_strides", (1, 6, 9, 140), (3, 3), strides=(1, 2), **ONE),
    depthwise("dilated", (2, 9, 8, 20), (3, 3), dilations=(2, 3), pads_before=(2, 3), pads_after=(2, 3)),
    depthwise(
        "dilated_wide", (1, 7, 5, 128), (3, 3), dilations=(2, 1), pads_before=(2, 1), pads_after=(2, 1)
    ),
    depthwise("bare", (1, 6, 7, 48), (2, 4)),
    depthwise("far_pads", (1, 2, 2, 16), (3, 3), pads_before=(4, 5), pads_after=(3, 4)),
    depthwise("line", (1, 30, 12), (5,), pads_before=(4,), pads_after=(0,)),
    depthwise("solid", (1, 4, 5, 6, 10), (3, 3, 3), pads_before=(1, 1, 1), pads_after=(1, 1, 1)),
    depthwise("tall", (1, 23, 3, 64), (3, 3), **ONE),
)


@pytest.mark.slow
@pytest.mark.emulator
def test_depthwise_convolutions_have_the_bits_of_the_cpu(tmp_path: Path) -> None:
    graph = merge("depthwise", CASES)
    assert_equal(graph, draw(graph), tmp_path, flags=("-O1", "-s"))

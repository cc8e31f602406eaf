"""Depthwise convolutions of floats with every padding of every side, for rows of every remainder."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from emulated_levels import QUIET
from test_conv import OneLevel, conv

from mace_core.ir import Graph
from mace_core.run.reference import execute
from mace_core.testing.compiled import assert_close, random_inputs, run_merged

CHANNELS = (8, 20, 16, 3)
"""A vector of AVX2 and half of one of AVX-512, a vector and a part, whole vectors, and less than any."""


def pad(number: int, width: int, stride: int, before: int, after: int, *, gap: int = 1) -> Graph:
    """Return a convolution whose lines of a window lie `gap` apart."""
    channels = CHANNELS[number % len(CHANNELS)]
    return conv(
        f"borders_{width}_{stride}_{before}_{after}_{gap}_{channels}",
        (1, 4, 5 + number % 7, channels),
        (channels, width, width, 1),
        group=channels,
        strides=(stride, stride),
        pads_before=(after, before),
        pads_after=(before, after),
        dilations=(gap, 1),
        high=0.5,
    )


PADDED = [
    pad(number, width, stride, before, after)
    for number, (width, stride, before, after) in enumerate(product((3, 5), (1, 2), range(4), range(4)))
    # Lines of four, and columns of five at least, have windows all the same.
    if 4 + before + after >= width
]
# Lines that lie apart go the same way, with some of a window beside the image.
PADDED += [pad(number, 3, stride, 1, 1, gap=2) for number, stride in enumerate((1, 2, 1, 2))]


@pytest.mark.slow
@pytest.mark.sampled(cases="avx2")
@pytest.mark.parametrize("level", ["avx2", "sse2", "avx512"])
def test_taps_in_the_padding_are_left_out(tmp_path: Path, level: str) -> None:
    target = OneLevel(QUIET[level])
    inputs = {graph.name: random_inputs(graph) for graph in PADDED}
    results = run_merged(target, PADDED, tmp_path, inputs)
    for graph in PADDED:
        (name,) = graph.outputs
        expected = execute(graph, inputs[graph.name])[name]
        assert_close(results[graph.name][name], expected, graph.name)

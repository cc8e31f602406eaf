"""Layers of more outputs than a bias memory has bytes, in parts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from check_networks import C2, T2, layer

from mace_frontend_ai8x.network import Layer
from mace_target_max78000.device import MAX78000
from mace_target_max78000.legalize.pipeline import _split_layer


def biased(outputs: int) -> Layer:
    return layer(C2, (4, 2, 2), outputs, bias=np.arange(1, outputs + 1))


@pytest.mark.parametrize(
    ("outputs", "sizes"), [(512, [512]), (513, [260, 253]), (1024, [512, 512]), (1030, [344, 344, 342])]
)
def test_parts_are_of_equal_whole_words(outputs: int, sizes: list[int]) -> None:
    """Of four channels each, as few parts as 512 bytes of a quadrant's bias memory allow."""
    whole = biased(outputs)
    parts = _split_layer(whole, MAX78000)
    assert [part.out_channels for part in parts] == sizes
    assert len({part.name for part in parts}) == len(parts)
    biases = [part.bias for part in parts if part.bias is not None]
    assert np.concatenate(biases).tolist() == list(range(1, outputs + 1))
    assert [part.weights.values.shape for part in parts if part.weights] == [
        (size, 4, 3, 3) for size in sizes
    ]


def test_what_needs_no_bias_or_cannot_be_cut_stays_whole() -> None:
    whole = biased(600)
    unbiased = [replace(whole, bias=None), replace(whole, bias=np.zeros(600, np.int64))]
    transposed = layer(T2, (4, 2, 2), 600, bias=np.ones(600, np.int64))
    for made in (*unbiased, transposed, replace(whole, groups=2)):
        assert _split_layer(made, MAX78000) == [made]

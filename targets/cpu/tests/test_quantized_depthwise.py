"""Weights of depthwise convolutions as summands of 8 bits, and their order."""

from __future__ import annotations

import numpy as np
import pytest

from mace_target_cpu.quantized.depthwise import LANES_OF_128_BITS, ChannelOrder, split_taps


@pytest.mark.parametrize("limit", [1, 127, 128, 255])
def test_summands_add_up_to_weights_of_nine_bits(limit: int) -> None:
    taps = np.random.default_rng(limit).integers(-limit, limit + 1, (70, 9)).astype(np.int16)
    taps[3, 4], taps[5, 0] = limit, -limit
    slots, summands = split_taps(taps)
    assert len(slots) % 4 == 0
    assert summands.dtype == np.int8
    sums = np.zeros((70, 9), np.int16)
    for slot, tap in enumerate(slots):
        sums[:, tap] += summands[:, slot]
    assert np.array_equal(sums, taps)


def test_taps_without_a_weight_have_a_slot() -> None:
    slots, summands = split_taps(np.zeros((2, 5), np.int16))
    assert list(slots) == [0, 1, 2, 3, 4, 0, 0, 0]
    assert not summands.any()


def test_a_part_of_128_bits_has_sixteen_neighboring_channels() -> None:
    summands = np.arange(70)[:, None].repeat(4, 1).astype(np.int8)
    packed = LANES_OF_128_BITS.pack(summands)
    assert packed.shape == (2, 1, 4, 4, 4, 4)
    for vector in range(4):
        for part in range(4):
            first = 16 * part + 4 * vector
            assert packed[0, 0, vector, part, :, 0].tolist() == [first, first + 1, first + 2, first + 3]


def test_one_part_keeps_the_order_of_channels() -> None:
    summands = np.arange(300)[:, None].repeat(8, 1).astype(np.int8)
    packed = ChannelOrder(128, 1).pack(summands)
    assert packed.shape == (3, 2, 4, 1, 32, 4)
    channels = packed[:, 1, :, :, :, 3].reshape(-1)
    assert channels[:300].tolist() == summands[:, 0].tolist()
    assert not channels[300:].any()

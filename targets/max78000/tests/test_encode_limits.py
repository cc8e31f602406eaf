"""Weight and bias memory filled to their last byte, and one byte beyond."""

from __future__ import annotations

import check_networks
import numpy as np
import pytest

from mace_core.errors import MaceError
from mace_frontend_ai8x.network import INPUT, Layer, LayerPlacement, Operation, Weights
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.encode import synthesize
from mace_target_max78000.encode.bias_memory import place_bias
from mace_target_max78000.encode.hardware_layers import HardwareLayer, make_hardware_layers
from mace_target_max78000.encode.weight_runs import place_runs
from mace_target_max78000.options import Options
from mace_target_max78000.place.attempt import _find_idle_quadrants
from mace_target_max78002.device import MAX78002

DEVICES = pytest.mark.parametrize("device", [MAX78000, MAX78002], ids=lambda d: d.name)
ALL = (1 << 64) - 1


def linear(index: int, outputs: int, bias: bool = True) -> HardwareLayer:
    """A pointwise layer of one channel, whose bias differs from that of every other layer."""
    layer = Layer(
        f"layer{index}",
        Operation.CONV2D,
        (INPUT,),
        1,
        (1, 1),
        outputs,
        weights=Weights(np.ones((outputs, 1, 1, 1), np.int64), 8),
        bias=np.full(outputs, index + 1) if bias else None,
    )
    return HardwareLayer(layer, LayerPlacement(1, ALL), index)


@DEVICES
def test_a_bias_memory_is_filled_to_its_last_byte(device: Chip) -> None:
    units = [linear(index, 64) for index in range(device.bias_bytes // 64)]
    biases, memories = place_bias(units, (0,), device, ignore_groups=False)
    assert sorted(bias.offset(0) for bias in biases.values()) == list(range(0, device.bias_bytes, 64))
    assert set(memories) == {0}
    assert len(memories[0]) == device.bias_bytes
    with pytest.raises(MaceError) as fault:
        place_bias([*units, linear(len(units), 1)], (0,), device, ignore_groups=False)
    assert f"quadrant 0 would hold {device.bias_bytes + 1} bytes of bias, {device.bias_bytes} fit" in str(
        fault.value
    )


@DEVICES
def test_a_bias_goes_to_the_emptiest_quadrant(device: Chip) -> None:
    units = [linear(0, 64), linear(1, 32), linear(2, 16), linear(3, 8)]
    biases, memories = place_bias(units, (0, 1), device, ignore_groups=False)
    assert {index: (bias.quadrant, bias.offset(bias.quadrant)) for index, bias in biases.items()} == {
        0: (0, 0),
        1: (1, 0),
        2: (1, 32),
        3: (1, 48),
    }
    assert {quadrant: len(data) for quadrant, data in memories.items()} == {0: 64, 1: 56}


def test_a_bias_of_zeros_takes_no_memory() -> None:
    unit = linear(0, 4, bias=False)
    assert place_bias([unit], (0,), MAX78000, ignore_groups=False) == ({}, {})


@DEVICES
def test_a_weight_memory_is_filled_to_its_last_word(device: Chip) -> None:
    """A word holds nine weights of 8 bits; processor 0 of the larger part has more words than the others."""
    words = device.kernel_capacity(1)
    unit = HardwareLayer(linear(0, 9 * 16, bias=False).layer, LayerPlacement(2, (1 << 48) - 1), 0)
    runs = place_runs([unit], device)
    count = runs[0].count
    full = [HardwareLayer(unit.layer, unit.place, index) for index in range(words // (-(-count // 4) * 4))]
    placed = place_runs(full, device, deduplicate=False)
    assert max(run.column + run.count for run in placed.values()) <= words
    with pytest.raises(MaceError, match=r"layer \d+ \(layer0\) needs \d+ words in 1 processors"):
        place_runs([*full, HardwareLayer(unit.layer, unit.place, len(full))], device, deduplicate=False)


@pytest.mark.slow
def test_only_the_first_processor_of_a_quadrant_has_the_larger_weight_memory() -> None:
    """1024 kernels in 4 passes fill the 4096 words of 64 processors; in 5 they would fill the 5120 of four alone."""
    full = check_networks.network(check_networks.layer(Operation.CONV2D, (256, 2, 2), 1024, output=True))
    assert synthesize(full, Options(), MAX78002).image.kernels
    wider = check_networks.network(check_networks.layer(Operation.CONV2D, (320, 2, 2), 1024, output=True))
    with pytest.raises(MaceError, match=r"needs 5120 words in 64 processors, 4096 are free in all of them"):
        synthesize(wider, Options(), MAX78002)


FIRST, SECOND, BOTH = 0x1, 0x10000, 0x10001
"""The first processors of two quadrants, whose weight memory goes up to word 5119."""


@pytest.mark.parametrize(
    ("runs", "columns"),
    [
        # A run of 5 ends at the top, 5115 to 5119, and is moved down to a multiple of four.
        ([(FIRST, 5)], [5112]),
        ([(FIRST, 8), (FIRST, 4)], [5112, 5108]),
        # 5117 to 5119 are free, but 5116, to which a run of 3 is moved down, is not: it goes to the bottom.
        ([(FIRST, 5), (FIRST, 3)], [5112, 0]),
        # Below what either of two processors has taken.
        ([(FIRST, 8), (SECOND, 5), (BOTH, 3)], [5112, 5112, 5108]),
        ([(FIRST, 6), (SECOND, 12), (BOTH, 4)], [5112, 5108, 5100]),
        ([(FIRST, 8), (SECOND, 3), (SECOND, 6), (BOTH, 8)], [5112, 5116, 5104, 5092]),
        # Four processors of one quadrant have 4096 words in common.
        ([(0xF, 8), (FIRST, 4), (0xF, 3)], [0, 5116, 8]),
    ],
)
def test_runs_of_first_processors_go_to_the_top(runs: list[tuple[int, int]], columns: list[int]) -> None:
    layers = [check_networks.layer(Operation.CONV2D, (mask.bit_count(), 2, 2), count) for mask, count in runs]
    places = [
        check_networks.place(layer, processors=mask) for layer, (mask, _) in zip(layers, runs, strict=True)
    ]
    units = make_hardware_layers(check_networks.network(*layers, places=tuple(places)), MAX78002)
    placed = place_runs(units, MAX78002, deduplicate=False)
    assert [placed[index].column for index in range(len(runs))] == columns


def test_quadrants_that_must_work_and_do_not() -> None:
    """The first layer's results go to the second quadrant, where no layer reads."""
    first = check_networks.layer(Operation.CONV2D, (4, 2, 2), 4, output=True)
    last = check_networks.layer(Operation.CONV2D, (4, 2, 2), 4, output=True)
    for slots, idle in ((0xF, 0), (0xF << 16, 0b10), (0xF << 48, 0b1000)):
        places = (
            check_networks.place(first, 0, 0x400, output_processors=slots),
            check_networks.place(last, 0, 0x800),
        )
        network = check_networks.network(first, last, places=places)
        assert _find_idle_quadrants(make_hardware_layers(network, MAX78000)) == idle

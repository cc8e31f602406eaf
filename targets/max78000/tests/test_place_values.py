"""How much of the data memory values take: words, slots, and which layers read them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mace_frontend_ai8x.network import INPUT, Eltwise, Layer, Operation, Weights
from mace_target_max78000.device import MAX78000
from mace_target_max78000.place.adjacency import ReadLayout, Ties, arrange_values, list_layouts
from mace_target_max78000.place.values import (
    StoredValue,
    contiguous_slots,
    count_passes,
    describe_source,
    find_readers,
    list_values,
    processors_per_pass,
    runs_as_image,
)
from mace_target_max78002.device import MAX78002


def pointwise(inputs: tuple[int, ...], channels: int, outputs: int, dim: tuple[int, int] = (4, 5)) -> Layer:
    weights = Weights(np.ones((outputs, channels, 1, 1), np.int64))
    return Layer("layer", Operation.CONV2D, inputs, channels, dim, outputs, weights=weights)


@pytest.mark.parametrize(
    ("channels", "passes", "processors"),
    [(1, 1, 1), (3, 1, 3), (64, 1, 64), (65, 2, 36), (100, 2, 52), (128, 2, 64), (129, 3, 44)],
)
def test_passes_and_processors(channels: int, passes: int, processors: int) -> None:
    """Where a processor has several channels, whole groups of four processors take part."""
    assert count_passes(channels) == passes
    assert processors_per_pass(channels) == processors
    assert contiguous_slots(channels) == (1 << processors) - 1


def test_slots_and_memories_of_a_value() -> None:
    value = StoredValue(0b10011, 7)
    assert (value.extent, value.memories, value.lead) == (5, 2, 0)
    assert StoredValue(0xF, 7).memories == 1


def test_the_input_is_what_its_reader_reads() -> None:
    source = describe_source([pointwise((INPUT,), 3, 8)], (99, 9, 9))
    assert (source.channels, source.dim, source.out_channels) == (3, (4, 5), 3)


@pytest.mark.parametrize(("shape", "dim"), [((3, 6, 7), (6, 7)), ((3, 6), (6, 1))])
def test_a_joined_input_has_its_own_shape(shape: tuple[int, ...], dim: tuple[int, int]) -> None:
    layers = [pointwise((INPUT,), 3, 8), pointwise((INPUT, 0), 11, 4)]
    joined = describe_source(layers[1:], shape)
    assert (joined.channels, joined.dim, joined.out_channels) == (3, dim, 3)
    summed = replace(layers[1], eltwise=Eltwise.ADD, operands=2)
    assert describe_source([summed], shape).channels == 11
    assert describe_source(layers[1:], None).channels == 11


def test_words_of_values() -> None:
    layers = [pointwise((INPUT,), 70, 8), replace(pointwise((0,), 8, 130), wide=True)]
    values = list_values(layers, describe_source(layers, None), MAX78000)
    # 4 x 5 positions of two passes; of one word; of three passes of four words each.
    assert values[INPUT] == StoredValue((1 << 36) - 1, 40)
    assert values[0] == StoredValue(0xFF, 20)
    assert values[1] == StoredValue((1 << 44) - 1, 240)


def test_operands_of_the_first_layer_come_in_turn() -> None:
    layer = Layer("sum", Operation.PASSTHROUGH, (INPUT,), 4, (4, 5), 4, eltwise=Eltwise.ADD, operands=3)
    assert list_values([layer], describe_source([layer], None), MAX78000)[INPUT].words == 60
    several = replace(layer, inputs=(INPUT, INPUT, INPUT))
    assert list_values([several], describe_source([several], None), MAX78000)[INPUT].words == 20


def test_readers_in_order() -> None:
    layers = [pointwise((INPUT,), 3, 8), pointwise((0, INPUT, 0), 19, 4), pointwise((0,), 8, 4)]
    assert find_readers(layers) == {INPUT: (0, 1), 0: (1, 1, 2), 1: (), 2: ()}


def test_which_dilated_lines_run_as_images() -> None:
    """A kernel of nine elements is the longest that a line has; beyond it the data become rows."""
    line = Layer(
        "line",
        Operation.CONV1D,
        (INPUT,),
        1,
        (40, 1),
        1,
        weights=Weights(np.ones((1, 1, 3), np.int64)),
        kernel=(3, 1),
    )
    assert line.one_dimensional
    runs = {dilation: runs_as_image(replace(line, dilation=(dilation, 1))) for dilation in (1, 2, 4, 5, 9)}
    assert runs == {1: False, 2: False, 4: False, 5: True, 9: True}


def ties(*slots: int) -> Ties:
    """So many values of one word, tied to none."""
    return Ties({number: StoredValue((1 << count) - 1, 1) for number, count in enumerate(slots)})


@pytest.mark.parametrize(
    ("slots", "shift", "fits"),
    [
        ((4, 60), 4, True),
        ((4, 60), 8, False),
        ((60, 4), 60, True),
        ((60, 4), 64, False),
        ((4, 60), -60, True),
        ((4, 60), -64, False),
        ((64, 64), 0, True),
        ((64, 64), 4, False),
    ],
)
def test_tied_values_fit_the_slots_of_all_processors(slots: tuple[int, int], shift: int, fits: bool) -> None:
    known = ties(*slots)
    assert known.tie(0, 1, shift) is fits
    assert known.groups == ({0: (0, 0), 1: (0, shift)} if fits else {0: (0, 0), 1: (1, 0)})


def test_a_group_moves_as_a_whole_and_values_of_one_group_stay() -> None:
    known = ties(4, 4, 4, 4)
    assert known.tie(2, 3, 8)
    assert known.tie(0, 1, 4)
    assert known.tie(1, 2, 4)
    assert known.groups == {0: (0, 0), 1: (0, 4), 2: (0, 8), 3: (0, 16)}
    assert known.tie(0, 3, 16)
    assert not known.tie(0, 3, 12)
    saved = known.save()
    known.add(4, StoredValue(0xF, 1))
    assert known.tie(3, 4, 4)
    known.restore(saved)
    assert 4 not in known.values
    assert known.groups == saved[1]


@pytest.mark.parametrize(("shift", "shares"), [(4, True), (0, False), (8, True)])
def test_values_share_an_offset_where_they_do_not_collide(shift: int, shares: bool) -> None:
    known = ties(4, 4)
    assert known.share(0, 1, shift) is shares
    assert (known.lanes[1].cluster == known.lanes[0].cluster) is shares
    assert known.groups[1] == ((0, shift) if shares else (1, 0))


@pytest.mark.parametrize(
    ("channels", "expected"),
    [
        # In one pass, inputs begin with the memories of their own, of four slots each.
        ((4, 8), [(1, 0, 0), (1, 0, 4)]),
        ((1, 1, 1), [(1, 0, 0), (1, 0, 4), (1, 0, 8)]),
        ((17, 40), [(1, 0, 0), (1, 0, 20)]),
        # In two passes each is every second word, of 64, 36 or 56 slots.
        ((64, 64), [(2, 0, 0), (2, 1, 0)]),
        ((36, 36), [(2, 0, 0), (2, 1, 0)]),
        ((36, 72), [(2, 0, 0), (2, 0, 36)]),
    ],
)
def test_where_a_layer_reads_inputs_beside_each_other(
    channels: tuple[int, ...], expected: list[tuple[int, int, int]]
) -> None:
    inputs = tuple(range(len(channels)))
    layer = pointwise(inputs, sum(channels), 4)
    values = {i: StoredValue(contiguous_slots(c), 20) for i, c in enumerate(channels)}
    result = list_layouts(layer, values, dict(enumerate(channels)))
    assert [(layout.gap, layout.position, layout.shift) for layout in result] == expected
    assert {layout.side_by_side for layout in result} == {inputs}


def test_operands_are_interleaved_word_by_word() -> None:
    layer = replace(pointwise((0, 1, 2), 4, 4), eltwise=Eltwise.ADD, operands=3)
    values = {i: StoredValue(0xF, 20) for i in range(3)}
    result = list_layouts(layer, values, dict.fromkeys(range(3), 4))
    assert [(layout.gap, layout.position, layout.shift) for layout in result] == [
        (3, 0, 0),
        (3, 1, 0),
        (3, 2, 0),
    ]
    assert list_layouts(pointwise((0,), 4, 4), values, {0: 4}) == [ReadLayout()]


@pytest.mark.parametrize("groups", [1, 2])
def test_channels_of_a_depthwise_layer_stay_in_their_slots(groups: int) -> None:
    """Two channels that lie in the first slots are written to the slots that they are read from."""
    first = pointwise((INPUT,), 3, 2)
    weights = Weights(np.ones((2, 2 // groups, 1, 1), np.int64))
    second = replace(pointwise((0,), 2, 2), groups=groups, weights=weights)
    layers = [first, second, pointwise((1,), 2, 5)]
    arranged = arrange_values(layers, describe_source(layers, (3, 4, 5)), MAX78002)
    is_tied = arranged.groups[0][0] == arranged.groups[1][0]
    assert is_tied == (groups == 2)

"""Which ways of placing a network are tried, and that processors are chosen by the weights that they must hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from test_place import combined, conv, proven

from mace_frontend_ai8x.network import INPUT, Layer, Operation
from mace_target_max78000.design import _count_missing_words
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.options import Options
from mace_target_max78000.place.adjacency import Arrangement, arrange_values
from mace_target_max78000.place.inserted_layers import split_unsupported
from mace_target_max78000.place.search import _list_arrivals
from mace_target_max78000.place.values import describe_source
from mace_target_max78002.device import MAX78002

DIM = (8, 8)
WORDS, PLANES, FIFO = (False, False), (True, False), (False, True)
"""How an input may arrive: in words of four channels, channel by channel, or through FIFOs."""


def arrangement(layers: Sequence[Layer], device: Chip) -> Arrangement:
    source = describe_source(layers, (layers[0].channels, *layers[0].dim))
    return arrange_values(split_unsupported(layers, source, device), source, device)


def arrivals(
    layers: Sequence[Layer], device: Chip = MAX78000, fifo: bool = False
) -> list[tuple[tuple[bool, bool], int]]:
    """Each way with how many layers stream then."""
    result = _list_arrivals(arrangement(layers, device), device, Options(fifo=fifo))
    return [((chw, through), count) for chw, through, count in result]


@pytest.mark.parametrize(
    ("channels", "fifo", "expected"),
    [
        (1, False, [(PLANES, 0), (FIFO, 1)]),
        (2, False, [(WORDS, 0), (PLANES, 0), (FIFO, 1)]),
        (16, False, [(WORDS, 0), (PLANES, 0), (FIFO, 1)]),
        (17, False, [(WORDS, 0)]),
        (16, True, [(FIFO, 0), (FIFO, 1)]),
        (17, True, []),
    ],
)
def test_how_the_input_of_one_convolution_may_arrive(
    channels: int, fifo: bool, expected: list[tuple[tuple[bool, bool], int]]
) -> None:
    assert arrivals([conv("a", INPUT, channels, DIM, 4)], fifo=fifo) == expected


def test_an_input_that_is_not_read_by_one_convolution_alone_arrives_in_words() -> None:
    two = [conv("a", INPUT, 3, DIM, 4), conv("b", INPUT, 3, DIM, 4), combined("c", (0, 1), 4, DIM)]
    summed = conv("a", INPUT, 4, DIM, 4, eltwise=combined("x", (0, 1), 4, DIM).eltwise, operands=2)
    flat = replace(conv("a", INPUT, 3, (2, 2), 4, kernel=1), operation=Operation.LINEAR, flatten=True)
    assert arrivals(two) == [(WORDS, 0)]
    assert PLANES not in dict(arrivals([summed]))
    assert PLANES not in dict(arrivals([flat]))


def chain(*pads: int) -> list[Layer]:
    """Convolutions one after another with these paddings."""
    layers: list[Layer] = []
    dim = (32, 32)
    for index, pad in enumerate(pads):
        layers.append(conv(f"l{index}", index - 1, 4, dim, 4, pad=pad))
        dim = layers[-1].out_dim
    return layers


def streaming(layers: Sequence[Layer], device: Chip = MAX78000) -> list[int]:
    return [count for _, count in arrivals(layers, device) if count]


def test_the_last_layer_that_streams_is_padded_on_the_first_generation() -> None:
    assert streaming(chain(1, 0, 1)) == [1, 3]
    assert streaming(chain(1, 0, 1), MAX78002) == [1, 2, 3]


def test_eight_layers_may_stream() -> None:
    assert streaming(chain(*[1] * 9)) == list(range(1, 9))


def test_layers_of_half_the_processors_need_not_share_weight_memory() -> None:
    """Two layers whose weights take 420 of 768 words of each processor fit side by side on 32 processors each."""
    for channels, missing in ((32, False), (33, True)):
        layers = [conv("a", INPUT, channels, DIM, 400), conv("b", 0, channels, DIM, 400)]
        assert (_count_missing_words(layers, MAX78000) > 0) == missing


def test_nothing_streams_behind_a_result() -> None:
    layers = chain(1, 1, 1)
    assert streaming([layers[0], replace(layers[1], output=True), layers[2]]) == [1, 2]


def test_a_layer_whose_results_lie_between_others_ends_no_stream() -> None:
    """The second layer's results are an operand of the sum, and so every second word.

    The third layer reads them with gaps.
    """
    layers = [*chain(1, 1), conv("d", 1, 4, (32, 32), 4), combined("e", (1, 2), 4, (32, 32))]
    assert arrangement(layers, MAX78002).lanes[1].gap == 2
    assert streaming(layers, MAX78002) == [1]
    assert streaming(layers) == [1, 2]  # the first generation copies them first


def test_layers_whose_weights_do_not_fit_beside_each_other_read_other_processors() -> None:
    """Layers of four input channels take more than half of a processor's weight memory each, so no two can share one."""
    wide, count = 8 * (MAX78000.kernel_words // 16 + 8), 4
    layers: list[Layer] = []
    for number in range(count):
        layers.append(conv(f"wide{number}", len(layers) - 1, 4, (2, 2), wide))
        layers.append(conv(f"narrow{number}", len(layers) - 1, wide, (2, 2), 4))
    assert 2 * arrangement(layers, MAX78000).words[0] > MAX78000.kernel_words
    masks = [place.processors for place in proven(layers).places[::2]]
    assert sum(mask.bit_count() for mask in masks) == (masks[0] | masks[1] | masks[2] | masks[3]).bit_count()

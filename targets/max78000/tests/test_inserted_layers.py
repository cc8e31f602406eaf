"""Which layers are split before they are placed: operations of several inputs, one-bit weights, inputs side by side."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from check_networks import C1, C2, NO, eltwise, layer
from test_place_choices import arrangement

from mace_frontend_ai8x.network import INPUT, Layer, Pool, Weights
from mace_target_max78000.device import MAX78000
from mace_target_max78000.place.inserted_layers import (
    COPY_BITS,
    _list_pieces,
    _must_separate,
    _widen_one_bit,
    select_layer,
)
from mace_target_max78002.device import MAX78002

HALF = Pool(False, (2, 2), 2)
BIAS = np.zeros(4, np.int64)


@pytest.mark.parametrize(
    ("made", "first", "second"),
    [
        # More than 64 channels take several passes: 68 take 2, 132 take 3.
        (layer(C2, (68, 4, 4), 4), False, False),
        (eltwise((4, 8), C1), True, True),
        (eltwise((4, 4, 4)), False, False),
        (eltwise((4, 4, 4), C2, operands=3, bias=BIAS), False, False),
        (eltwise((68, 4, 4), C2, out=4), False, False),
        (eltwise((68, 4, 4), C2, out=4, bias=BIAS), False, True),
        (eltwise((68, 4, 4), C2, out=4, operands=3), True, False),
        (eltwise((132, 4, 4), C2, out=4), True, False),
        (eltwise((132, 4, 4)), False, False),
        (eltwise((132, 4, 4), pool=HALF, pool_first=False), True, False),
        (eltwise((132, 4, 4), C2, out=4, pool=HALF), False, False),
        (eltwise((132, 4, 4), C2, out=4, pool=HALF, pool_first=False), True, False),
    ],
)
def test_operations_that_need_a_layer_of_their_own(made: Layer, first: bool, second: bool) -> None:
    assert (_must_separate(made, MAX78000), _must_separate(made, MAX78002)) == (first, second)


@pytest.mark.parametrize(
    ("outputs", "bits", "expected"),
    [(4, 1, 1), (64, 1, 1), (68, 1, COPY_BITS), (80, 1, 1), (128, 1, 1), (68, 2, 2), (68, 8, 8)],
)
def test_one_bit_takes_two_where_passes_would_begin_inside_a_byte(
    outputs: int, bits: int, expected: int
) -> None:
    """Passes of 68 channels are of 36, of 80 of 40: the second one's weights begin at bit 36 or 40."""
    weights = Weights(np.zeros((outputs, 4, 3, 3), np.int64), bits)
    widened = _widen_one_bit(layer(C2, (4, 4, 4), outputs, weights=weights))
    assert widened.weights is not None
    assert widened.weights.bits == expected


@pytest.mark.parametrize(
    ("channels", "expected"),
    [
        ((4, 8), [[(0, 4)], [(0, 8)]]),
        ((64, 64), [[(0, 64)], [(0, 64)]]),
        ((36, 72), [[(0, 36)], [(0, 20), (20, 72)]]),
        ((8, 100, 24), [[(0, 8)], [(0, 36), (36, 80), (80, 100)], [(0, 24)]]),
    ],
)
def test_inputs_beside_each_other_are_cut_where_a_pass_ends(
    channels: tuple[int, ...], expected: list[list[tuple[int, int]]]
) -> None:
    """Passes are of 64 channels, of 56 in the third case and of 44 in the last."""
    made = replace(layer(C2, (sum(channels), 4, 4), 4), inputs=tuple(range(len(channels))))
    pieces = _list_pieces(made, dict(enumerate(channels)))
    assert [[(piece.start, piece.stop) for piece in part] for part in pieces] == expected
    summed = replace(made, eltwise=eltwise((4, 4, 4)).eltwise)
    whole = [[range(count)] for count in channels]
    assert _list_pieces(summed, dict(enumerate(channels))) == whole


@pytest.mark.parametrize("shape", [(6, 5), (6, 4, 5)])
def test_some_channels_are_copied_by_weights_of_one(shape: tuple[int, ...]) -> None:
    producer = layer(C1 if len(shape) == 2 else C2, shape, 6, pad=(1, 1) if len(shape) == 3 else (1, 0))
    copy = select_layer(producer, "part", 3, range(2, 5))
    assert copy.weights is not None
    assert copy.weights.values.reshape(3, 6).tolist() == np.eye(6, dtype=int)[2:5].tolist()
    assert copy.weights.values.ndim == len(shape) + 1
    assert (copy.inputs, copy.channels, copy.out_channels, copy.dim) == ((3,), 6, 3, producer.out_dim)


def test_layers_without_weights_take_no_words() -> None:
    """A word is a kernel of 3 x 3; 4 channels of one processor's input take 4 of them, and 5 take 8."""
    layers = [
        layer(C2, (4, 4, 4), 4),
        layer(NO, (4, 4, 4), inputs=(0,)),
        layer(C2, (4, 4, 4), 5, inputs=(1,)),
    ]
    assert layers[0].inputs == (INPUT,)
    assert list(arrangement(layers, MAX78000).words) == [4, 0, 8]

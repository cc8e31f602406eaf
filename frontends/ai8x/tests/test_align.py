"""A description and a checkpoint of different length are aligned by the sizes of their layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from mace_frontend_ai8x.checkpoint import LayerParameters
from mace_frontend_ai8x.description.align import Alignment, align

SIZES = {1: 5, 3: 6, 4: 7, 7: 8}
"""Layers with weights -> outputs that each has by its description."""


def parameters(sizes: Sequence[int]) -> list[LayerParameters]:
    return [LayerParameters(f"p{i}", np.zeros((size, 2), np.int64)) for i, size in enumerate(sizes)]


def count_misfits(pairs: Mapping[int, LayerParameters]) -> int:
    return sum(SIZES[index] != layer.weights.shape[0] for index, layer in pairs.items())


def find_alignment(*sizes: int) -> Alignment:
    return align(tuple(SIZES), parameters(sizes), count_misfits)


@pytest.mark.parametrize(
    ("sizes", "unweighted", "by_shape"),
    [
        ((5, 6, 7, 8), (), False),
        # The last layer, where those before it fit, or none does whichever is left out.
        ((5, 6, 7), (7,), False),
        ((1, 1, 1), (7,), False),
        ((6, 7, 8), (1,), True),
        ((5, 7, 8), (3,), True),
        ((5, 8), (3, 4), True),
    ],
)
def test_layers_without_weights(sizes: tuple[int, ...], unweighted: tuple[int, ...], by_shape: bool) -> None:
    assert find_alignment(*sizes) == Alignment(unweighted=unweighted, by_shape=by_shape)


@pytest.mark.parametrize(
    ("sizes", "count"), [((5, 6, 7, 8, 9), 1), ((1, 1, 1, 1, 1), 1), ((5, 6, 7, 8, 1, 2), 2), ((9,) * 9, 5)]
)
def test_layers_at_the_end_of_a_checkpoint_are_not_used(sizes: tuple[int, ...], count: int) -> None:
    """So it is where those before fit, where no other is a better explanation, and where more than 4 are missing."""
    result = find_alignment(*sizes)
    assert [layer.name for layer in result.unused] == [f"p{i}" for i in range(len(sizes) - count, len(sizes))]
    assert (result.undescribed, result.unweighted, result.by_shape) == ((), (), False)


@pytest.mark.parametrize(
    ("sizes", "names", "before"),
    [
        # Without it all fit; without a neighbor one of the others does not.
        ((9, 5, 6, 7, 8), "layer 'p0' (9x2) or 'p1' (5x2)", 1),
        ((5, 9, 6, 7, 8), "layer 'p1' (9x2) or 'p0' (5x2) or 'p2' (6x2)", 3),
        ((5, 6, 7, 9, 8), "layer 'p3' (9x2) or 'p2' (7x2) or 'p4' (8x2)", 7),
    ],
)
def test_a_layer_of_the_checkpoint_that_is_not_described(
    sizes: tuple[int, ...], names: str, before: int
) -> None:
    assert find_alignment(*sizes) == Alignment(undescribed=((names, before),))


def test_a_description_without_weights_needs_none() -> None:
    assert align((), parameters((5, 6)), count_misfits) == Alignment()

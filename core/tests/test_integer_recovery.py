"""Integers and scales are found again in weights of floats, whatever the storage was, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

from mace_core.integer_recovery import IntegerForm, find_integers, usual_zero
from mace_core.ir import Array


def make_weights(
    shape: tuple[int, int], bits: int, block: int, *, has_zeros: bool, seed: int = 0
) -> tuple[Array, Array]:
    """Return floats [depth, columns] of random integers, and those less their zero points.

    Scales may be negative, as those of ONNX Runtime's quantizer are.
    """
    rng = np.random.default_rng(seed)
    depth, columns = shape
    blocks = -(-depth // block)
    scales = rng.uniform(0.001, 0.1, (blocks, columns)) * rng.choice([-1, 1], (blocks, columns))
    points = rng.integers(0, 1 << bits, scales.shape) if has_zeros else np.full(scales.shape, 1 << (bits - 1))
    of_block = np.arange(depth) // block
    integers = rng.integers(0, 1 << bits, shape) - points[of_block]
    return integers.astype(np.float32) * scales.astype(np.float32)[of_block], integers


def restore(form: IntegerForm | None, array: Array) -> Array:
    assert form is not None
    return form.restore(form.pack(array)).reshape(array.shape)


@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize("block", [16, 32, 64, 128, 256, 301])
@pytest.mark.parametrize("bits", [4, 8])
def test_integers_and_blocks_are_found(bits: int, block: int, has_zeros: bool) -> None:
    array, integers = make_weights((301, 9), bits, block, has_zeros=has_zeros)
    form = find_integers(array)
    assert form is not None
    assert (form.bits, form.block, form.depth, form.lanes) == (bits, block, 301, 9)
    assert (form.zeros is not None) == has_zeros
    assert np.array_equal(restore(form, array), array)
    assert form.bytes == form.pack(array).nbytes + sum(factor.nbytes for factor in form.factors)
    # Nibbles of an odd depth end in half a byte.
    assert form.stored_shape == (1, 151 if bits == 4 else 301, 9)
    assert np.abs(integers).max() < 1 << bits


def test_a_scale_for_each_row_of_a_table() -> None:
    columns, _ = make_weights((64, 500), 8, 64, has_zeros=False)
    table = np.ascontiguousarray(columns.T)
    form = find_integers(table)
    assert form is not None
    assert (form.outer, form.depth, form.lanes, form.block) == (500, 64, 1, 64)
    assert np.array_equal(restore(form, table), table)


def test_panels_are_matrices_of_their_columns() -> None:
    array, _ = make_weights((40, 48), 4, 16, has_zeros=True)
    panels = np.ascontiguousarray(array.reshape(40, 3, 16).transpose(1, 0, 2))[None]
    form = find_integers(panels)
    assert form is not None
    assert (form.outer, form.depth, form.lanes, form.bits, form.block) == (3, 40, 16, 4, 16)
    assert np.array_equal(restore(form, panels), panels)


def test_four_bits_without_a_zero_point_stay_without_one() -> None:
    """-8 to 7 in each column, and with a negative scale: the largest value then is 8 times its magnitude."""
    steps = np.arange(-8, 8, dtype=np.float32)[:, None] * np.float32([0.1, -0.3, 0.7])
    form = find_integers(steps)
    assert form is not None
    assert form.zeros is None
    assert form.scales.reshape(-1).tolist() == pytest.approx([0.1, -0.3, 0.7])
    assert form.pack(steps)[0, 0].tolist() == [0x10] * 3
    assert usual_zero(4) == 8


def test_common_factors_become_part_of_the_scale() -> None:
    """Multiples of 16 in eight bits are integers of four; those of a column of one value are 1."""
    array = np.float32([[48, 0.5], [-16, 0.5], [80, 0.5], [32, 0.5]]) * np.float32([0.017, 1])
    form = find_integers(array)
    assert form is not None
    assert form.bits == 4
    assert form.scales.reshape(-1).tolist() == pytest.approx([16 * 0.017, 0.5])
    assert np.array_equal(restore(form, array), array)


@pytest.mark.parametrize(
    "array",
    [
        np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32),
        np.full((4, 4), np.nan, np.float32),
        np.array([[1, np.inf]], np.float32),
        # More than 256 steps of one scale in every block, and a weight that is off by its last bit.
        np.tile(np.float32([0, 1, 256, 255]), 64)[:, None],
        np.float32([[3], [127], [np.nextafter(np.float32(64), 65)], [1]]),
    ],
    ids=["floats", "nan", "infinity", "nine bits", "one bit off"],
)
def test_other_floats_are_left(array: Array) -> None:
    assert find_integers(array) is None


def test_zeros_have_any_scale() -> None:
    array = np.zeros((40, 7), np.float32)
    array[::2] = -0.0
    form = find_integers(array)
    assert form is not None
    assert np.array_equal(restore(form, array), array)
    assert form.bits == 4

"""Sums of bytes in words have the bits of the CPU's floats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from byte_graphs import draw
from emulated import assert_equal

from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Quant, Storage, Tensor
from mace_core.lowering import Refused
from mace_core.testing.compiled import merge
from mace_target_hexagon.elementwise import MAX_BITS, SumInWords

SCALES = ((0.05, 0.04, 0.07), (0.0235, 0.0471, 0.0236), (0.5, 0.25, 1.0), (0.001, 0.9, 0.8), (3.1, 2.9, 0.4))


def _tensor(name: str, dtype: DType, scale: float, zero: int) -> Tensor:
    return Tensor(name, dtype, (256,), Quant.of(scale, zero))


def _every_byte(dtype: DType) -> Array:
    limits = np.iinfo(dtype.numpy)
    return np.arange(limits.min, limits.max + 1)


def _add_floats(x: Tensor, y: Tensor, z: Tensor, sign: int) -> Array:
    """What binary_quantized.c.in stores for every pair of bytes: [x, y]."""
    quants = (x.quant, y.quant, z.quant)
    (xs, xz), (ys, yz), (zs, zz) = ((np.float32(q.scale[0]), q.zero_point[0]) for q in quants if q)
    left = (_every_byte(x.dtype) - xz).astype(np.float32) * xs
    right = (_every_byte(y.dtype) - yz).astype(np.float32) * np.float32(sign * ys)
    steps = (left[:, None] + right[None, :]) * np.float32(1 / float(zs))
    limits = np.iinfo(z.dtype.numpy)
    return np.clip(np.rint(steps), limits.min - zz, limits.max - zz).astype(np.int64) + zz


def _add_words(x: Tensor, y: Tensor, z: Tensor, sign: int) -> tuple[Array, Array]:
    """What sum_bytes.c.in stores where it is in no doubt, and where that is: even and odd halves."""
    words = SumInWords.of((x, y), z, sign)
    halves = np.arange(256, dtype=np.int64) * 128
    stored, doubts = [], []
    for factor_x, factor_y, shift in (
        (words.x_even, words.y_even, 16),
        (words.x_odd, words.y_odd, 15),
    ):
        sums = (factor_x * halves >> shift)[:, None] + words.start + (factor_y * halves >> shift)[None, :]
        assert np.abs(sums).max() < 1 << 31, "a word overflows"
        limits = np.iinfo(z.dtype.numpy)
        # Packed as signed bytes; those of uint8 have 128 added behind that.
        offset = 128 if z.dtype is DType.U8 else 0
        stored.append(np.clip((sums >> words.bits) + offset, limits.min, limits.max))
        doubts.append((sums & ((1 << words.bits) - 1)) < words.near)
    return np.stack(stored), np.stack(doubts)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("dtype", [DType.I8, DType.U8])
def test_every_sum_is_that_of_floats_or_in_doubt(
    dtype: DType, scales: tuple[float, float, float], sign: int
) -> None:
    zeros = (-7, 20, -3) if dtype is DType.I8 else (128, 99, 130)
    x, y, z = (_tensor(n, dtype, s, zero) for n, s, zero in zip("xyz", scales, zeros, strict=True))
    expected = _add_floats(x, y, z, sign)
    stored, doubts = _add_words(x, y, z, sign)
    assert (doubts | (stored == expected)).all()
    if scales == SCALES[0]:  # others are nearly multiples of each other, so that many sums are nearly ties
        assert doubts.mean() < 1e-3


def test_small_sums_leave_all_bits_behind_the_point() -> None:
    x, y, z = (_tensor(name, DType.I8, 0.05, 0) for name in "xyz")
    assert SumInWords.of((x, y), z, 1).bits == MAX_BITS


def test_sums_beyond_a_word_are_refused() -> None:
    x, y = (_tensor(name, DType.I8, 5.0, 0) for name in "xy")
    with pytest.raises(Refused, match="scales differ too much"):
        SumInWords.of((x, y), _tensor("z", DType.I8, 0.001, 0), 1)


def add(name: str, op: str, storages: tuple[Storage, Storage, Storage], elements: int) -> Graph:
    """Return a sum of two inputs of so many elements."""
    builder = Builder(name)
    x, y, z = storages
    operands = [builder.input(n, s.dtype, (1, elements), s.quant) for n, s in (("x", x), ("y", y))]
    return builder.finish(builder.add(op, operands, {}, outputs=[builder.reserve_output("z", z)]))


def _store(dtype: DType, scale: float, zero: int) -> Storage:
    return Storage(dtype, Quant.of(scale, zero))


def _store_all(
    dtype: DType, scales: tuple[float, float, float], zero: int
) -> tuple[Storage, Storage, Storage]:
    x, y, z = scales
    return _store(dtype, x, zero), _store(dtype, y, zero), _store(dtype, z, zero)


MIXED = (_store(DType.U8, 0.02, 7), _store(DType.I8, 0.05, 9), _store(DType.U8, 0.04, 80))
CASES = (
    add("bytes", "Add", _store_all(DType.U8, SCALES[0], 120), 5000),
    add("difference", "Sub", _store_all(DType.I8, SCALES[1], -4), 2100),
    add("ties", "Add", _store_all(DType.I8, SCALES[2], 3), 300),
    add("mixed", "Sub", MIXED, 77),
    add("few", "Add", _store_all(DType.U8, SCALES[0], 10), 3),
    add("coarse", "Add", _store_all(DType.I8, (5.0, 5.0, 0.001), 0), 140),
)


@pytest.mark.slow
@pytest.mark.emulator
def test_sums_have_the_bits_of_the_cpu(tmp_path: Path) -> None:
    graph = merge("sums", CASES)
    assert_equal(graph, draw(graph), tmp_path, ("hvx", "plain"))

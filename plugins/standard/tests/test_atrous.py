"""flatten-atrous and fuse-crop: what frameworks without dilated convolutions write for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from expressions import Expressions, ops_after

from mace_core import decompositions
from mace_core.attributes import values_of
from mace_core.ir import DType, Quant, Storage
from mace_transform_standard.canonicalize.remove_identity import remove_identity
from mace_transform_standard.fuse.fuse_crop import fuse_crop
from mace_transform_standard.layout.flatten_atrous import flatten_atrous

SEEDS = range(30)
PASSES = (remove_identity, flatten_atrous, fuse_crop, remove_identity)
STORED = Storage(DType.I8, Quant.of(0.05))
PLAIN = {"strides": (1, 1), "pads_before": (0, 0), "pads_after": (0, 0), "dilations": (1, 1)}


def steps(e: Expressions, made: decompositions.Steps, x: str) -> str:
    return decompositions.apply(made, x, lambda op, operands, attrs: e(op, *operands, **values_of(attrs)))


def blocks(e: Expressions, size: int, block: int, reach: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Paddings that fill whole blocks and crops of what the last ones have too much."""
    low, high = (int(v) for v in e.rng.integers(0, reach + 1, 2))
    spare = -(size + low + high) % block
    return (low, high + spare), (0, spare)


def conv_of_blocks(
    e: Expressions, x: str, block: tuple[int, ...], conv: Callable[[str], str], kernel: tuple[int, ...]
) -> str:
    """A convolution between space-to-batch and batch-to-space."""
    shape = e.new.shape(x)
    results = [blocks(e, n, b, b * (k - 1)) for n, b, k in zip(shape[1:], block, kernel, strict=False)]
    y = conv(steps(e, decompositions.space_to_batch(shape, block, [pads for pads, _ in results]), x))
    return steps(e, decompositions.batch_to_space(e.new.shape(y), block, [crops for _, crops in results]), y)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_image_has_one_dilated_convolution(seed: int) -> None:
    e = Expressions(seed)
    channels, kernel = int(e.rng.integers(1, 4)), (e.pick(2, 3), e.pick(1, 2, 3))
    block = e.pick((2, 2), (3, 2), (2, 1), (2,))
    x = e("Sin", e.input(e.pick(1, 2), *(int(n) for n in e.rng.integers(6, 10, 2)), channels))
    group = e.pick(1, channels)
    filters, bias = e.constant(channels * 2, *kernel, channels // group), e.constant(channels * 2)
    y = conv_of_blocks(
        e, x, block, lambda y: e("Conv", y, filters, bias, **PLAIN, group=group, low=0.0), kernel
    )
    assert ops_after(PASSES, e.graph(e("Neg", y))) == ["Sin", "Conv", "Neg"]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sequence_has_one_too_through_an_image_of_one_row(seed: int) -> None:
    e = Expressions(seed)
    x, block, kernel = e("Sin", e.input(1, 12, 3)), e.pick(2, 3), e.pick(2, 3)
    filters = e.constant(4, 1, kernel, 3)

    def conv(y: str) -> str:
        n, length, _ = e.new.shape(y)
        wide = e("Conv", e("Reshape", y, shape=(n, 1, length, 3)), filters, **PLAIN)
        return e("Reshape", wide, shape=(n, length - kernel + 1, 4))

    y = conv_of_blocks(e, x, (block,), conv, (kernel,))
    result = ops_after(PASSES, e.graph(e("Neg", y)))
    assert [op for op in result if op != "Reshape"] in (
        ["Sin", "Conv", "Neg"],
        ["Sin", "Conv", "Slice", "Neg"],
    )


@pytest.mark.parametrize("rows", [2, 3])
def test_a_sequence_as_an_image_of_more_rows_stays(rows: int) -> None:
    e = Expressions(0)
    x, filters = e.input(1, 24, 3), e.constant(4, 1, 1, 3)

    def conv(y: str) -> str:
        wide = e("Conv", e("Reshape", y, shape=(2, rows, 12 // rows, 3)), filters, **PLAIN)
        return e("Reshape", wide, shape=(2, 12, 4))

    graph = remove_identity(e.graph(conv_of_blocks(e, x, (2,), conv, (1,))))
    assert ops_after([flatten_atrous], graph) == [n.op.name for n in graph.nodes]


def test_stored_integers_stay_stored() -> None:
    e = Expressions(0)
    x = e.input(1, 8, 8, 2, storage=STORED)
    result = Storage(DType.I8, Quant.of(0.1))
    filters = e.new.weight("w", np.ones((2, 3, 3, 2), np.int8), Quant.of(0.25))
    y = conv_of_blocks(e, x, (2, 2), lambda y: e("Conv", y, filters, **PLAIN, storage=result), (3, 3))
    assert ops_after(PASSES, e.graph(y)) == ["Conv"]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_nearly_it_stays(seed: int) -> None:
    e = Expressions(seed)
    x, filters = e.input(1, 8, 8, 2), e.constant(2, 2, 2, 2)
    inner = e.pick(
        lambda y: e("Conv", y, filters, **(PLAIN | {"strides": (2, 2)})),
        lambda y: e("Conv", y, filters, **(PLAIN | {"pads_before": (1, 1)})),
        lambda y: e("Conv", y, filters, **(PLAIN | {"dilations": (2, 1)})),
        lambda y: e("Neg", e("Conv", y, filters, **PLAIN)),
        lambda y: e("MaxPool", y, kernel=(2, 2), **PLAIN),
    )
    graph = e.graph(conv_of_blocks(e, x, (2, 2), inner, (2, 2)))
    assert ops_after([flatten_atrous], graph) == [n.op.name for n in graph.nodes]


@pytest.mark.parametrize("seed", SEEDS)
def test_other_blocks_after_than_before_stay(seed: int) -> None:
    e = Expressions(seed)
    x, filters = e.input(1, 8, 8, 2), e.constant(2, 1, 1, 2)
    before, after = e.pick(((2, 1), (1, 2)), ((4, 1), (2, 2)), ((2, 2), (4, 1)))
    y = e(
        "Conv",
        steps(e, decompositions.space_to_batch((1, 8, 8, 2), before, [(0, 0)] * 2), x),
        filters,
        **PLAIN,
    )
    graph = remove_identity(
        e.graph(steps(e, decompositions.batch_to_space(e.new.shape(y), after, [(0, 0)] * 2), y))
    )
    assert ops_after([flatten_atrous], graph) == [n.op.name for n in graph.nodes]


def test_a_convolution_that_something_else_reads_stays() -> None:
    e = Expressions(0)
    y = e(
        "Conv",
        steps(e, decompositions.space_to_batch((1, 8, 8, 2), (2, 2), [(0, 0)] * 2), e.input(1, 8, 8, 2)),
        e.constant(2, 1, 1, 2),
        **PLAIN,
    )
    graph = remove_identity(
        e.graph(steps(e, decompositions.batch_to_space(e.new.shape(y), (2, 2), [(0, 0)] * 2), y), y)
    )
    assert ops_after([flatten_atrous], graph) == [n.op.name for n in graph.nodes]


def test_other_padding_than_zeros_stays_before_it() -> None:
    e = Expressions(0)
    padded = e("Pad", e.input(1, 6, 6, 2), before=(0, 1, 1, 0), after=(0, 1, 1, 0), value=1.0)
    filters = e.constant(2, 2, 2, 2)
    split = [s for s in decompositions.space_to_batch((1, 8, 8, 2), (2, 2), [(0, 0)] * 2) if s[0] != "Pad"]
    y = e("Conv", steps(e, split, padded), filters, **PLAIN)
    graph = e.graph(steps(e, decompositions.batch_to_space(e.new.shape(y), (2, 2), [(0, 0)] * 2), y))
    assert ops_after(PASSES, graph) == ["Pad", "Conv"]


@pytest.mark.parametrize("seed", SEEDS)
def test_edges_that_padding_made_are_not_computed(seed: int) -> None:
    e = Expressions(seed)
    stride = e.pick(1, 2)
    pads = tuple(int(p) for p in e.rng.integers(0, 4, 4))
    attrs = {
        "strides": (stride, stride),
        "pads_before": pads[:2],
        "pads_after": pads[2:],
        "dilations": (1, 1),
    }
    y = e("Conv", e.input(1, 9, 10, 2), e.constant(3, 3, 3, 2), **attrs)
    shape = e.new.shape(y)
    cut = [int(n) for n in e.rng.integers(0, 3, 4)]
    sizes = (1, shape[1] - cut[0] - cut[2], shape[2] - cut[1] - cut[3], 3)
    graph = e.graph(e("Slice", y, starts=(0, cut[0], cut[1], 0), sizes=sizes, steps=(1, 1, 1, 1)))
    inside = all(c * stride <= p for c, p in zip(cut, pads, strict=True)) and any(cut)
    assert ops_after([fuse_crop], graph) == (["Conv"] if inside else ["Conv", "Slice"])


def test_channels_steps_and_other_readers_keep_a_slice() -> None:
    e = Expressions(0)
    attrs = PLAIN | {"pads_before": (2, 2), "pads_after": (2, 2)}
    y = e("Conv", e.input(1, 6, 6, 2), e.constant(3, 3, 3, 2), **attrs)
    near = (
        e("Slice", y, starts=(0, 0, 0, 1), sizes=(1, 8, 8, 2), steps=(1, 1, 1, 1)),
        e("Slice", y, starts=(0, 0, 0, 0), sizes=(1, 4, 8, 3), steps=(1, 2, 1, 1)),
    )
    # Of 3 x 3 results of one pixel in wide padding, every second one or none.
    single = e("Conv", e.input(1, 1, 1, 2), e.constant(3, 3, 3, 2), **attrs)
    wide = (
        e("Slice", single, starts=(0, 0, 0, 0), sizes=(1, 2, 3, 3), steps=(1, 2, 1, 1)),
        e("Slice", single, starts=(0, 2, 0, 0), sizes=(1, 0, 3, 3), steps=(1, 1, 1, 1)),
    )
    for graph in (
        *(e.graph(n) for n in (*near, *wide)),
        e.graph(y, e("Slice", y, starts=(0, 1, 1, 0), sizes=(1, 6, 6, 3), steps=(1, 1, 1, 1))),
    ):
        assert ops_after([fuse_crop], graph) == [n.op.name for n in graph.nodes]

"""fold-scale, fold-input, fold-conv-conv: constants after and before filters, filters before filters."""

from __future__ import annotations

import numpy as np
import pytest
from expressions import Expressions, ops_after

from mace_core.attributes import Attribute
from mace_core.ir import DType, Quant, Storage
from mace_transform_standard.combine.fold_conv_conv import fold_conv_conv
from mace_transform_standard.combine.fold_input import fold_input
from mace_transform_standard.fold.fold_batch_norm import fold_batch_norm
from mace_transform_standard.fold.fold_scale import fold_scale
from mace_transform_standard.fold.fuse_bias import fuse_bias
from mace_transform_standard.layout.layout import layout

SEEDS = range(24)
STORED = Storage(DType.I8, Quant.of(0.02))


def window(rank: int, pad: int = 0, stride: int = 1) -> dict[str, tuple[int, ...]]:
    ones = (1,) * rank
    return {
        "strides": (stride,) * rank,
        "pads_before": (pad,) * rank,
        "pads_after": ones if pad else (0,) * rank,
        "dilations": ones,
    }


def conv(e: Expressions, x: str, group: int = 1, **attrs: Attribute) -> str:
    """A convolution with or without a bias."""
    channels, rank = e.new.shape(x)[-1], len(e.new.shape(x)) - 2
    filters = e.constant(2 * group, *(2,) * rank, channels // group)
    bias = [e.constant(2 * group)] if e.rng.random() < 0.5 else []
    return e("Conv", x, filters, *bias, group=group, **(window(rank) | attrs))


def channel_constant(e: Expressions, channels: int, *, number: bool = True) -> str:
    return e.constant(*e.pick((channels,), (1, channels), *([(), (1,)] if number else [])), positive=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_constants_before_a_convolution_are_part_of_it(seed: int) -> None:
    e = Expressions(seed)
    group = e.pick(1, 2, 4)
    shape = (2, *(int(n) for n in e.rng.integers(3, 6, e.pick(1, 2, 3))), 4)
    pad = e.pick(0, 1)
    y = e("Sin", e.input(*shape))
    for _ in range(3):
        y = e(e.pick("Mul", "Div") if pad else e.pick("Mul", "Div", "Add", "Sub"), y, channel_constant(e, 4))
    assert ops_after([fold_input], e.graph(conv(e, y, group, **window(len(shape) - 2, pad))), 2e-5) == [
        "Sin",
        "Conv",
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_and_before_a_matrix(seed: int) -> None:
    e = Expressions(seed)
    y = e("Sin", e.input(*e.pick((3, 4), (2, 3, 4))))
    for _ in range(3):
        y = e(e.pick("Mul", "Div", "Add", "Sub"), y, channel_constant(e, 4))
    bias = [e.constant(5)] if e.rng.random() < 0.5 else []
    assert ops_after([fold_input], e.graph(e("MatMul", y, e.constant(4, 5), *bias)), 2e-5) == [
        "Sin",
        "MatMul",
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_channels_in_another_order_are_part_of_the_filters(seed: int) -> None:
    e = Expressions(seed)
    order = e.array(e.rng.permutation(4), "i4")
    if e.rng.random() < 0.5:
        y = e("Gather", e("Sin", e.input(1, 4, 5, 4)), order, axis=e.pick(3, -1))
        expected, graph = (
            ["Sin", "Conv"],
            e.graph(conv(e, e("Mul", y, channel_constant(e, 4)), **window(2, e.pick(0, 1)))),
        )
    else:
        y = e("Gather", e("Sin", e.input(2, 4)), order, axis=-1)
        expected, graph = ["Sin", "MatMul"], e.graph(e("MatMul", y, e.constant(4, 5)))
    assert ops_after([fold_input], graph, 2e-6) == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_what_cannot_be_part_of_it_stays(seed: int) -> None:
    e = Expressions(seed)
    x = e.input(1, 4, 5, 4)
    scaled = e("Mul", x, channel_constant(e, 4))
    graph = e.pick(
        lambda: e.graph(conv(e, e("Add", x, channel_constant(e, 4)), **window(2, 1))),  # zeros around x + b
        lambda: e.graph(conv(e, e("Mul", x, e.constant(5, 1)))),
        lambda: e.graph(conv(e, e("Mul", e.input(1, 4, 5, 1), e.constant(4)))),  # stretched
        lambda: e.graph(conv(e, e("Mul", x, e.input(4)))),
        lambda: e.graph(conv(e, e("Div", x, e.array([1, 0, 2, 3])))),
        lambda: e.graph(conv(e, e("Sub", e.constant(4), x))),
        lambda: e.graph(conv(e, scaled), scaled),
        lambda: e.graph(conv(e, e("Gather", x, e.array([3, 2, 1, 1], "i4"), axis=3))),
        lambda: e.graph(conv(e, e("Gather", x, e.array([3, 1, 2, 0], "i4"), axis=1))),
        lambda: e.graph(conv(e, e("Gather", x, e.array([2, 1, 0], "i4"), axis=3))),
        lambda: e.graph(conv(e, e("Gather", x, e.array([3, 2, 1, 0], "i4"), axis=3), group=2)),
        lambda: e.graph(conv(e, e("Mul", x, channel_constant(e, 4), storage=STORED))),
        lambda: e.graph(e("Conv", scaled, e.input(3, 1, 1, 4), **window(2))),
        lambda: e.graph(e("MatMul", e("Mul", x, e.constant(4)), e.constant(1, 4, 4, 5))),
        lambda: e.graph(e("MatMul", e.constant(3, 4), e("Mul", e.input(4, 5), 2.0))),
    )()
    assert ops_after([fold_input], graph) == [n.op.name for n in graph.nodes]


@pytest.mark.parametrize("shape", [(3,), (1, 3), (1, 1, 1, 3)])
def test_a_factor_that_makes_several_channels_of_one_stays(shape: tuple[int, ...]) -> None:
    e = Expressions(0)
    one_channel = e("Conv", e.input(1, 4, 5, 2), e.constant(1, 1, 1, 2), **window(2))
    assert ops_after([fold_scale], e.graph(e("Mul", one_channel, e.constant(*shape)))) == ["Conv", "Mul"]


def test_a_factor_for_each_of_as_many_rows_as_channels_stays() -> None:
    e = Expressions(0)
    graph = e.graph(conv(e, e("Mul", e.input(1, 4, 5, 4), e.constant(4, 1, 1))))
    assert ops_after([fold_input], graph) == ["Mul", "Conv"]


def pair(e: Expressions, channels: int, between: int, results: int, **attrs: Attribute) -> tuple[str, str]:
    """A convolution of single pixels, and one after it."""
    bias = [e.constant(between)] if e.rng.random() < 0.5 and not attrs.get("pads_before") else []
    first = e(
        "Conv", e("Sin", e.input(1, 5, 6, channels)), e.constant(between, 1, 1, channels), *bias, **window(2)
    )
    bias = [e.constant(results)] if e.rng.random() < 0.5 else []
    return first, e("Conv", first, e.constant(results, 2, 3, between), *bias, **(window(2) | attrs))


@pytest.mark.parametrize("seed", SEEDS)
def test_pixels_then_windows_are_windows_where_that_is_less(seed: int) -> None:
    e = Expressions(seed)
    attrs = e.pick({}, {"low": 0.0}, window(2, 1), window(2, stride=2))
    assert ops_after([fold_conv_conv], e.graph(pair(e, 2, 6, 3, **attrs)[1]), 2e-5) == ["Sin", "Conv"]


@pytest.mark.parametrize(("results", "ops"), [(3, ["Conv"]), (4, ["Conv", "Conv"])])
def test_products_are_counted_over_the_whole_images(results: int, ops: list[str]) -> None:
    # 5 x 6 pixels of 4 channels become 3 channels, then 4 x 4 pixels of windows of 2 x 3: apart they take
    # 30 * 4 * 3 + 96 * 3 * results products, as one Conv 96 * 4 * results: less up to 3 results.
    e = Expressions(0)
    first = e("Conv", e.input(1, 5, 6, 4), e.constant(3, 1, 1, 4), **window(2))
    graph = e.graph(e("Conv", first, e.constant(results, 2, 3, 3), **window(2)))
    assert ops_after([fold_conv_conv], graph, 2e-5) == ops


def test_as_many_products_are_left_apart() -> None:
    # 2 x 3 pixels of 2 channels become 1 channel, then 1 x 1 results of a window of 2 x 3:
    # 6 * 2 * 1 + 6 * 1 * 2 products apart, 6 * 2 * 2 as one.
    e = Expressions(0)
    first = e("Conv", e.input(1, 2, 3, 2), e.constant(1, 1, 1, 2), **window(2))
    graph = e.graph(e("Conv", first, e.constant(2, 2, 3, 1), **window(2)))
    assert ops_after([fold_conv_conv], graph) == ["Conv", "Conv"]


@pytest.mark.parametrize("seed", SEEDS)
def test_more_work_limits_and_other_readers_keep_them_apart(seed: int) -> None:
    e = Expressions(seed)
    x, filters = e.input(1, 5, 6, 2), e.constant(3, 2, 2, 6)
    one = e.constant(6, 1, 1, 2)
    limited = e("Conv", x, one, **window(2), low=0.0)
    shifted = e("Conv", x, one, e.constant(6), **window(2))
    grouped = e("Conv", x, e.constant(6, 1, 1, 1), **window(2), group=2)
    wide = e("Conv", x, e.constant(6, 1, 2, 2), **window(2))
    tall = e("Conv", x, e.constant(6, 2, 1, 2), **window(2))
    padded = e("Conv", x, one, **window(2, 1))
    plain = e("Conv", x, one, **window(2))
    stored = e("Conv", x, one, **window(2), storage=STORED)
    graph = e.pick(
        lambda: e.graph(pair(e, 6, 2, 3)[1]),
        *(
            lambda y=y: e.graph(e("Conv", y, filters, **window(2)))
            for y in (limited, grouped, wide, tall, padded, stored)
        ),
        lambda: e.graph(e("Conv", shifted, filters, **window(2, 1))),
        lambda: e.graph(e("Conv", plain, filters, **window(2)), plain),
        lambda: e.graph(e("Conv", plain, e.constant(6, 2, 2, 3), **window(2), group=2)),
    )()
    assert ops_after([fold_conv_conv], graph) == [n.op.name for n in graph.nodes]


@pytest.mark.parametrize("seed", SEEDS)
def test_with_channels_first_a_transpose_lies_between(seed: int) -> None:
    e = Expressions(seed)
    y = e("Sin", e.input(1, 4, 5, 6))
    for _ in range(2):
        y = e(
            e.pick("Mul", "Div", "Add", "Sub"),
            y,
            e.constant(*e.pick((4, 1, 1), (1, 4, 1, 1), ()), positive=True),
        )
    graph = e.graph(conv(e, e("Transpose", y, perm=(0, 2, 3, 1))))
    assert ops_after([fold_input, layout], graph, 2e-5) == ["Sin", "Transpose", "Conv"]
    e = Expressions(seed)
    y = e("Mul", e.input(1, 4, 5, 6), e.pick(e.constant(6), e.constant(5, 1)))
    assert ops_after([fold_input], e.graph(conv(e, e("Transpose", y, perm=(0, 2, 3, 1))))) == [
        "Mul",
        "Transpose",
        "Conv",
    ]


@pytest.mark.parametrize(("axis", "ops"), [(1, []), (2, ["Gather"]), (-1, ["Gather"])])
def test_an_order_of_channels_goes_through_a_transpose(axis: int, ops: list[str]) -> None:
    for count in (1, 3):
        e = Expressions(count)
        y = e("Gather", e("Sin", e.input(1, 4, 4, 4)), e.array([2, 0, 3, 1], "i8"), axis=axis)
        graph = e.graph(conv(e, e("Transpose", y, perm=(0, 2, 3, 1))))
        assert ops_after([fold_input], graph, 2e-5) == ["Sin", *ops, "Transpose", "Conv"]


def move_somehow(e: Expressions, y: str) -> str:
    """The result of filters, here and there in another form."""
    for _ in range(int(e.rng.integers(1, 4))):
        shape = e.new.shape(y)
        y = e.pick(
            lambda y=y, s=shape: e("Reshape", y, shape=(s[0] * s[1], *s[2:], 1)),
            lambda y=y, s=shape: e("Transpose", y, perm=tuple(reversed(range(len(s))))),
            lambda y=y, s=shape: e("Slice", y, starts=(0,) * len(s), sizes=(1, *s[1:]), steps=(1,) * len(s)),
        )()
    return y


@pytest.mark.parametrize("seed", SEEDS)
def test_a_number_goes_back_through_what_only_moves(seed: int) -> None:
    e = Expressions(seed)
    bias = [e.constant(4)] if e.rng.random() < 0.5 else []
    y = e.pick(
        lambda: e("MatMul", e.input(3, 5), e.constant(5, 4), *bias), lambda: conv(e, e.input(1, 3, 4, 2))
    )()
    y = move_somehow(e, y)
    if e.rng.random() < 0.5 and len(e.new.shape(y)) > 1:
        y = e("MatMul", y, e.input(e.new.shape(y)[-1], 2))
    graph = e.graph(y)
    assert ops_after([fold_scale], e.graph(e(e.pick("Mul", "Div"), y, 0.3)), 2e-5) == [
        n.op.name for n in graph.nodes
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_but_not_through_what_others_read_or_what_limits(seed: int) -> None:
    e = Expressions(seed)
    y = e("MatMul", e.input(3, 5), e.constant(5, 4))
    turned = e("Transpose", y, perm=(1, 0))
    graph = e.pick(
        lambda: e.graph(e("Mul", turned, 0.3), y),
        lambda: e.graph(e("Mul", turned, 0.3), turned),
        lambda: e.graph(e("Mul", turned, e.constant(3))),
        lambda: e.graph(e("Mul", e("Sin", y), 0.3)),
        lambda: e.graph(
            e("Mul", e("Transpose", e("MatMul", e.input(3, 5), e.constant(5, 4), low=0.0), perm=(1, 0)), 0.3)
        ),
        lambda: e.graph(e("Mul", e("MatMul", y, e.input(4, 2), high=1.0), 0.3)),
        lambda: e.graph(e("Mul", e("MatMul", y, e.input(4, 2), e.input(2)), 0.3)),
        lambda: e.graph(e("Mul", e("MatMul", e.input(2, 3), y), 0.3)),
        lambda: e.graph(e("Mul", e("MatMul", e.input(2, 4, 5), e.constant(5)), 0.3)),
        lambda: e.graph(e("Div", 0.3, turned)),
        lambda: e.graph(e("Div", turned, 0.0)),
        lambda: e.graph(e("Mul", turned, e.constant(1, 1, 1))),
    )()
    assert ops_after([fold_scale], graph) == [n.op.name for n in graph.nodes]


def test_a_norm_of_constants_is_a_factor_and_a_summand() -> None:
    # (x - 3) / sqrt(4 + 5) * 6 + 7 = 2 x + 1
    e = Expressions(0)
    graph = e.graph(e("BatchNorm", e.input(2, 1), *(e.array([v]) for v in (6, 7, 3, 4)), epsilon=5.0))
    assert ops_after([fold_batch_norm], graph) == ["Mul", "Add"]
    assert [float(w[0]) for w in fold_batch_norm(graph).weights.values()] == [2, 1]


def test_the_constants_of_a_norm_of_stored_integers_are_floats() -> None:
    e = Expressions(0)
    constants = [e.array([v]) for v in (6, 7, 3, 4)]
    graph = e.graph(e("BatchNorm", e.input(2, 1, storage=STORED), *constants, epsilon=5.0))
    assert ops_after([fold_batch_norm], graph) == ["Mul", "Add"]


@pytest.mark.parametrize("op", ["Mul", "Div", "Add", "Sub"])
@pytest.mark.parametrize("number", [3, 2**30 + 12345])
@pytest.mark.parametrize("dtype", [DType.I32, DType.I64, DType.U8])
def test_integers_are_divided_after_they_are_summed_and_wrap(dtype: DType, number: int, op: str) -> None:
    e = Expressions(0)
    matrix = e.array(e.rng.integers(-9, 9, (4, 5)).astype(dtype.numpy), dtype.numpy.str)
    # The product of 2 ** 30 and 2 ** 33 needs more than 64 bits, and more than the 53 of a double.
    constant = e.array(
        np.array([number << 33 if dtype is DType.I64 else number]).astype(dtype.numpy), dtype.numpy.str
    )
    x = e.input(2, 4, dtype=dtype)
    before = e.graph(e("MatMul", e(op, x, constant), matrix))
    after = e.graph(e(op, e("MatMul", x, matrix), constant))
    assert sorted(ops_after([fold_input], before, 0)) == sorted(["MatMul", op])
    fused = ["MatMul"] if op in ("Add", "Sub") else ["MatMul", op]
    assert ops_after([fold_scale, fuse_bias], after, 0) == fused

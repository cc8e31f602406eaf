"""fuse-norm and fuse-affine: the spellings of frameworks along several axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest
from expressions import Expressions, Form, ops_after

from mace_core.ir import DType, Quant, Storage
from mace_transform_standard.canonicalize.reduce_strength import reduce_strength
from mace_transform_standard.canonicalize.remove_duplicates import remove_duplicates
from mace_transform_standard.fuse.fuse_affine import fuse_affine
from mace_transform_standard.fuse.fuse_norm import fuse_norm

SEEDS = range(24)
PASSES = (remove_duplicates, reduce_strength, fuse_norm, fuse_affine)
NormForm: TypeAlias = Callable[[Expressions, str, tuple[int, ...], tuple[str, str] | None], str]
"""Adds one spelling of a norm along some axes, with factors and summands if there are; returns the result."""
STORED = Storage(DType.I8, Quant.of(0.02))


def square(e: Expressions, x: str) -> str:
    return e.pick(lambda: e("Pow", x, 2.0), lambda: e("Mul", x, x))()


def inverse(e: Expressions, variance: str) -> str:
    return e.pick(
        lambda: e("Rsqrt", variance),
        lambda: e("Reciprocal", e("Sqrt", variance)),
        lambda: e("Div", 1.0, e("Sqrt", variance)),
        lambda: e("Pow", variance, -0.5),
    )()


def divide_by_deviation(e: Expressions, x: str, variance: str) -> str:
    return e.pick(
        lambda: e("Div", x, e("Sqrt", variance)),
        lambda: e("Div", x, e("Pow", variance, 0.5)),
        lambda: e("Mul", x, inverse(e, variance)),
    )()


def variance_of(e: Expressions, x: str, mean: str, axes: tuple[int, ...]) -> str:
    apart = e("ReduceMean", square(e, e("Sub", x, mean)), axes=axes)
    by_squares = e("Sub", e("ReduceMean", square(e, x), axes=axes), square(e, mean))
    return e("Add", e.pick(apart, by_squares), 1e-3)


def whole(e: Expressions, x: str, axes: tuple[int, ...], affine: tuple[str, str] | None) -> str:
    mean = e("ReduceMean", x, axes=axes)
    y = divide_by_deviation(e, e("Sub", x, mean), variance_of(e, x, mean, axes))
    return e("Add", e("Mul", y, affine[0]), affine[1]) if affine else y


def in_parts(e: Expressions, x: str, axes: tuple[int, ...], affine: tuple[str, str] | None) -> str:
    mean = e("ReduceMean", x, axes=axes)
    root = inverse(e, variance_of(e, x, mean, axes))
    factor = e("Mul", root, affine[0]) if affine else root
    shift = e("Mul", mean, factor)
    if affine:
        less = e.pick(
            lambda: e("Sub", affine[1], shift), lambda: e("Add", e("Mul", e("Neg", mean), factor), affine[1])
        )()
        return e("Add", e("Mul", x, factor), less)
    return e.pick(
        lambda: e("Sub", e("Mul", x, factor), shift),
        lambda: e("Add", e("Mul", x, factor), e("Mul", e("Neg", mean), factor)),
    )()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("form", [whole, in_parts])
@pytest.mark.parametrize("kind", ["LayerNorm", "InstanceNorm"])
def test_it_is_one_node(kind: str, form: NormForm, seed: int) -> None:
    e = Expressions(seed)
    shape = e.shape(2, 3, 4) if kind == "LayerNorm" else e.shape(3, 4, 5)
    first = e.pick(*range(1, len(shape)))
    axes = tuple(range(first, len(shape))) if kind == "LayerNorm" else tuple(range(1, len(shape) - 1))
    along = shape[first:] if kind == "LayerNorm" else shape[-1:]
    if e.rng.random() < 0.5:
        along = (1,) * (len(shape) - len(along)) + along
    affine = e.pick(None, (e.constant(*along), e.constant(*along)))
    x = e("Sin", e.input(*shape))
    negative = tuple(a - len(shape) for a in axes)
    graph = e.graph(e("Neg", form(e, x, e.pick(axes, negative), affine)))
    assert ops_after(PASSES, graph, 2e-5) == ["Sin", kind, "Neg"]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("form", [whole, in_parts])
def test_groups_of_channels_apart_are_one_node_between_reshapes(form: NormForm, seed: int) -> None:
    e = Expressions(seed)
    shape = (*e.shape(2, 3, 4), e.pick(1, 3))
    axes = (*range(1, len(shape) - 2), len(shape) - 1)
    if len(shape) == 3:
        shape, axes = (2, 3, *shape[1:]), (1, 3)
    affine = e.pick(
        None, tuple(e.constant(*e.pick(shape[-2:], (1, *shape[-2:]), (shape[-2], 1), (1,))) for _ in range(2))
    )
    x = e("Sin", e.input(*shape))
    graph = e.graph(e("Neg", form(e, x, axes, affine if form is in_parts else None)))
    assert ops_after(PASSES, graph, 5e-5) == ["Sin", "Reshape", "GroupNorm", "Reshape", "Neg"]


@pytest.mark.parametrize("seed", SEEDS)
def test_without_means_it_is_the_norm_of_squares(seed: int) -> None:
    e = Expressions(seed)
    shape = e.shape(2, 3, 4)
    x = e("Sin", e.input(*shape))
    total = e.pick(lambda: square(e, x), lambda: e("Mul", x, x))()
    size = e.pick(lambda: e("ReduceMean", total, axes=(-1,)), lambda: e("ReduceSum", total, axes=(-1,)))()
    y = divide_by_deviation(e, x, e("Add", size, 1e-3))
    graph = e.graph(e.pick(lambda: y, lambda: e("Mul", y, e.constant(shape[-1])))())
    assert ops_after(PASSES, graph, 2e-5) == ["Sin", "RMSNorm"]


@pytest.mark.parametrize(
    ("total", "epsilon", "is_norm"),
    [
        (lambda e, x: e("ReduceSumSquare", x, axes=(1,)), 1e-3, True),
        (lambda e, x: e("ReduceSum", e("Mul", x, x), axes=(1,)), 1e-3, True),
        (lambda e, x: e("ReduceMean", e("Mul", x, x), axes=(1,)), 1e-3, True),
        # Without epsilon it is an LpNorm; without its axis it lies along another one.
        (lambda e, x: e("ReduceSumSquare", x, axes=(1,)), 0.0, False),
        (lambda e, x: e("ReduceSumSquare", x, axes=(1,), keepdims=False), 1e-3, False),
        (lambda e, x: e("ReduceSumSquare", e("Mul", x, 2.0), axes=(1,)), 1e-3, False),
        (lambda e, x: e("ReduceSumSquare", x, axes=(0,)), 1e-3, False),
    ],
)
def test_squares_are_summed_by_one_op_or_two(total: Form, epsilon: float, is_norm: bool) -> None:
    e = Expressions(0)
    x = e("Sin", e.input(4, 4))
    size = total(e, x)
    size = e("Add", size, e.array(epsilon)) if epsilon else size
    result = ops_after(PASSES, e.graph(e("Div", x, e("Sqrt", size))), 2e-5)
    assert (result == ["Sin", "RMSNorm"]) == is_norm


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_nearly_it_stays(seed: int) -> None:
    e = Expressions(seed)
    x, y = e.input(2, 3, 4, 5), e.input(2, 3, 4, 5)
    mean = e("ReduceMean", x, axes=(3,))
    variance = variance_of(e, x, mean, (3,))
    form = e.pick(
        lambda: divide_by_deviation(e, e("Sub", y, mean), variance),  # of another tensor
        lambda: divide_by_deviation(
            e, e("Sub", x, e("ReduceMean", x, axes=(2,))), variance
        ),  # along other axes
        lambda: divide_by_deviation(
            e, e("Sub", x, e("ReduceMax", x, axes=(3,))), variance
        ),  # less something else
        lambda: divide_by_deviation(e, e("Sub", x, mean), e("Sub", variance, 0.5)),  # a negative epsilon
        lambda: whole(e, x, (0,), None),  # axes that no norm takes
        lambda: whole(e, x, (1,), None),
        lambda: whole(e, x, (1, 3), None),
        lambda: divide_by_deviation(e, x, e("Add", e("ReduceMean", square(e, x), axes=(1, 2)), 1e-3)),
        # differences that are no variance: neither of squares, nor of a mean, nor less a square
        lambda: divide_by_deviation(
            e, e("Sub", x, mean), e("Sub", e("Add", e("Abs", x), 9.0), square(e, mean))
        ),
        lambda: divide_by_deviation(
            e, e("Sub", x, mean), e("Sub", e("ReduceMean", square(e, x), axes=(3,)), e("Neg", y))
        ),
        lambda: divide_by_deviation(
            e, e("Sub", x, mean), e("Sub", e("ReduceMean", square(e, y), axes=(3,)), square(e, mean))
        ),
    )
    result = ops_after(PASSES, e.graph(form()), 2e-5)
    assert not {"LayerNorm", "InstanceNorm", "RMSNorm"} & set(result)


@pytest.mark.parametrize("seed", SEEDS)
def test_parts_that_do_not_fit_stay(seed: int) -> None:
    e = Expressions(seed)
    x, y, scale, bias = e.input(2, 3, 4), e.input(2, 3, 4), e.constant(4), e.constant(4)
    mean = e("ReduceMean", x, axes=(2,))
    r = e("Mul", inverse(e, variance_of(e, x, mean, (2,))), scale)
    shift = e("Mul", mean, r)
    form = e.pick(
        lambda: e("Add", e("Mul", x, r), shift),
        lambda: e("Add", e("Mul", x, r), e("Add", shift, bias)),
        lambda: e("Sub", e("Mul", x, r), e("Sub", bias, shift)),
        lambda: e("Sub", e("Mul", x, r), e("Mul", shift, 2.0)),
        lambda: e("Sub", shift, e("Mul", x, r)),
        lambda: e("Sub", e("Mul", y, r), shift),
        lambda: e("Sub", e("Mul", x, r), e("Mul", e("ReduceMean", y, axes=(2,)), r)),
        lambda: e("Sub", e("Mul", x, e.constant(4)), shift),
        lambda: e("Sub", e("Mul", x, r), y),
    )
    assert "LayerNorm" not in ops_after(PASSES, e.graph(form()), 2e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_moments_that_lose_their_axis_lie_along_another(seed: int) -> None:
    e = Expressions(seed)
    x = e.input(4, 4)
    keep = [bool(e.rng.integers(2)) for _ in range(3)]
    keep[int(e.rng.integers(3))] = False
    mean, again = (e("ReduceMean", x, axes=(1,), keepdims=k) for k in keep[:2])
    apart = e("ReduceMean", square(e, e("Sub", x, mean)), axes=(1,), keepdims=keep[2])
    by_squares = e("Sub", e("ReduceMean", square(e, x), axes=(1,), keepdims=keep[2]), square(e, again))
    variance = e("Add", e.pick(apart, by_squares) if not (keep[0] and keep[2]) else by_squares, 2.0)
    result = ops_after(PASSES, e.graph(divide_by_deviation(e, e("Sub", x, mean), variance)), 2e-5)
    assert not {"LayerNorm", "RMSNorm"} & set(result)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_variance_that_something_else_reads_stays(seed: int) -> None:
    e = Expressions(seed)
    x = e.input(2, 3, 4)
    mean = e("ReduceMean", x, axes=(2,))
    variance = variance_of(e, x, mean, (2,))
    y = divide_by_deviation(e, e("Sub", x, mean), variance)
    also = e.pick(lambda: variance, lambda: e("Exp", variance), lambda: mean, lambda: e("Exp", mean))()
    assert "LayerNorm" not in ops_after(PASSES, e.graph(y, also), 2e-5)


def test_a_mean_that_is_stored_as_integers_stays() -> None:
    e = Expressions(0)
    x = e.input(2, 3, 4)
    mean = e("ReduceMean", x, axes=(2,), storage=STORED)
    graph = e.graph(divide_by_deviation(e, e("Sub", x, mean), variance_of(e, x, mean, (2,))))
    assert "LayerNorm" not in ops_after(PASSES, graph, 2e-5)


def norms(e: Expressions, shape: tuple[int, ...]) -> list[str]:
    x, channels = e("Sin", e.input(*shape)), shape[-1]
    vectors = [e.constant(channels, positive=True), e.constant(channels)]
    return [
        e("LayerNorm", x, *vectors),
        e("LayerNorm", x, vectors[0]),
        e("InstanceNorm", x, *vectors),
        e("GroupNorm", x, *vectors, groups=2),
        e("RMSNorm", x, vectors[0]),
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_constants_along_the_channels_belong_to_the_norm(seed: int) -> None:
    e = Expressions(seed)
    y = e.pick(*norms(e, (2, 3, 5, 4)))
    name = e.new.producer(y).op.name
    for _ in range(3):
        op = e.pick("Mul", "Div") if name == "RMSNorm" else e.pick("Mul", "Div", "Add", "Sub")
        along = e.pick((), (4,), (1, 1, 4), (1, 1, 1, 4), (1,))
        y = e(op, y, e.constant(*along, positive=True))
    assert ops_after([fuse_affine], e.graph(y)) == ["Sin", name]


def test_a_factor_gives_a_norm_no_bias() -> None:
    e = Expressions(0)
    x = e.input(2, 3, 4)
    (norm,) = fuse_affine(e.graph(e("Mul", e("LayerNorm", x, e.constant(4)), 2.0))).nodes
    assert len(norm.inputs) == 2
    (norm,) = fuse_affine(e.graph(e("Mul", e("LayerNorm", x, e.constant(4), e.constant(4)), 2.0))).nodes
    assert len(norm.inputs) == 3


@pytest.mark.parametrize("seed", SEEDS)
def test_other_operands_do_not(seed: int) -> None:
    e = Expressions(seed)
    *four, root_mean_square = norms(e, (2, 3, 5, 4))
    y = e.pick(*four)
    near = e.pick(
        lambda: e("Mul", y, e.constant(5, 1)),  # along another axis
        lambda: e("Add", y, e.constant(2, 1, 1, 4)),
        lambda: e("Mul", y, e.constant(1, 1, 1, 1, 4)),  # to another rank
        lambda: e("Mul", y, e.input(4)),  # not constant
        lambda: e("Div", e.constant(4), y),
        lambda: e("Div", y, e.array([1, 0, 2, 3])),
        lambda: e("Sub", e.constant(4), y),
        lambda: e("Add", root_mean_square, e.constant(4)),
    )
    graph = e.graph(near())
    assert ops_after([fuse_affine], graph) == [n.op.name for n in graph.nodes]
    graph = e.graph(e("Mul", y, 2.0), y)
    assert ops_after([fuse_affine], graph) == [n.op.name for n in graph.nodes]

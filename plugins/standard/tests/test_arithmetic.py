"""merge-casts, reduce-strength, remove-neutral, remove-limits, remove-duplicates, remove-identity."""

from __future__ import annotations

import math

import numpy as np
import pytest
from expressions import Expressions, ops_after

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Quant, Storage
from mace_core.run.reference import execute
from mace_transform_standard.canonicalize.merge_casts import is_exact, merge_casts
from mace_transform_standard.canonicalize.reduce_strength import reduce_strength
from mace_transform_standard.canonicalize.remove_duplicates import remove_duplicates
from mace_transform_standard.canonicalize.remove_identity import remove_identity
from mace_transform_standard.canonicalize.remove_neutral import remove_neutral
from mace_transform_standard.combine.fuse_activation import fuse_activation
from mace_transform_standard.combine.remove_limits import remove_limits

SEEDS = range(24)
STORED, OTHERWISE = Storage(DType.I8, Quant.of(0.02)), Storage(DType.I8, Quant.of(0.03, 4))
TYPES = tuple(DType)
SAMPLES = np.array(
    [
        0,
        1,
        2,
        100,
        127,
        128,
        255,
        256,
        32767,
        32768,
        65535,
        2**24,
        2**24 + 1,
        2**31 - 1,
        2**53,
        2**53 + 1,
        2**63 - 1,
    ]
)


def samples(dtype: DType) -> np.ndarray:
    """Numbers of a type where others begin to round."""
    if dtype is DType.BOOL:
        return np.array([False, True])
    if dtype.is_float:
        return np.array([0, 0.5, -1.75, 100, -3]).astype(dtype.numpy)
    limits = np.iinfo(dtype.numpy)
    whole = np.concatenate([SAMPLES.astype(object), -SAMPLES.astype(object), [limits.min, limits.max]])
    return np.array([v for v in whole if limits.min <= v <= limits.max], dtype.numpy)


@pytest.mark.parametrize("source", TYPES)
@pytest.mark.parametrize("between", TYPES)
def test_a_lossless_cast_before_another_is_left_out(source: DType, between: DType) -> None:
    values = samples(source)
    lossless = is_exact(source, between)
    for to in TYPES:
        e = Expressions(0)
        graph = e.graph(
            e("Cast", e("Cast", e.input(len(values), dtype=source), to=between.value), to=to.value)
        )
        after = merge_casts(graph)
        wraps = (
            between.is_float and not source.is_float and not is_exact(source, to)
        )  # where floats would saturate
        assert len(after.nodes) == (1 if lossless and not wraps else 2)
        with np.errstate(invalid="ignore", over="ignore"):
            actual, expected = (execute(g, {g.inputs[0]: values})[g.outputs[0]] for g in (after, graph))
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("between", TYPES)
@pytest.mark.parametrize("source", TYPES)
def test_lossless_is_what_comes_back(source: DType, between: DType) -> None:
    values = samples(source)
    with np.errstate(invalid="ignore", over="ignore"):
        back = values.astype(between.numpy).astype(source.numpy)
    assert not is_exact(source, between) or np.array_equal(back, values)


def test_a_cast_of_stored_integers_stays() -> None:
    e = Expressions(0)
    x = e.input(4, storage=Storage(DType.I8, Quant.of(0.5)))
    assert ops_after([remove_identity], e.graph(e("Cast", x, to="i8")), 0) == ["Cast"]
    inner = e("Cast", e.input(4), to="f32", storage=STORED)
    assert ops_after([merge_casts], e.graph(e("Cast", inner, to="f32")), 0) == ["Cast", "Cast"]


POWERS = (
    (2.0, ["Mul"]),
    (3.0, ["Mul", "Mul"]),
    (0.5, ["Sqrt"]),
    (-0.5, ["Rsqrt"]),
    (-1.0, ["Reciprocal"]),
    (2.5, ["Pow"]),
    (4.0, ["Pow"]),
)


@pytest.mark.parametrize(("exponent", "ops"), POWERS)
@pytest.mark.parametrize("seed", SEEDS[:6])
def test_powers_are_products_and_roots(exponent: float, ops: list[str], seed: int) -> None:
    e = Expressions(seed)
    x = e("Exp", e.input(*e.shape(1, 2, 3)))
    assert ops_after([reduce_strength], e.graph(e("Pow", x, exponent)), 1e-6) == ["Exp", *ops]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_costs_less_is_taken(seed: int) -> None:
    e = Expressions(seed)
    x = e("Exp", e.input(*e.shape(1, 2, 3)))
    form, ops = e.pick(
        (lambda: e("Div", 1.0, x), ["Reciprocal"]),
        (lambda: e("Div", 1.0, e("Sqrt", x)), ["Rsqrt"]),
        (lambda: e("Reciprocal", e("Sqrt", x)), ["Rsqrt"]),
        (lambda: e("Maximum", x, 1.0), ["Clip"]),
        (lambda: e("Minimum", x, 1.0), ["Clip"]),
    )
    assert ops_after([reduce_strength], e.graph(form()), 1e-6) == ["Exp", *ops]


@pytest.mark.parametrize("seed", SEEDS)
def test_division_by_powers_of_two_is_the_same_product(seed: int) -> None:
    e = Expressions(seed)
    x = e.input(3, 4)
    by = e.pick(2.0, -0.25, 1024.0, e.array([1, 2, 4, -8]), e.array([[2.0**-90]]))
    assert ops_after([reduce_strength], e.graph(e("Div", x, by)), 0) == ["Mul"]
    e = Expressions(seed)
    by = e.pick(3.0, 0.0, math.inf, math.nan, 2.0**-120, 2.0**126, e.array([1, 2, 3, 4]))
    assert ops_after([reduce_strength], e.graph(e("Div", e.input(3, 4), by)), 0) == ["Div"]


def test_inverses_that_half_precision_cannot_hold_are_not_multiplied_by() -> None:
    e = Expressions(0)
    x = e.input(3, 4, dtype=DType.F16)
    assert ops_after([reduce_strength], e.graph(e("Div", x, e.array([2.0**-12], "f2"))), 0) == ["Mul"]
    assert ops_after([reduce_strength], e.graph(e("Div", x, e.array([2.0**-20], "f2"))), 0) == ["Div"]


def test_what_would_change_the_shape_or_integers_stays() -> None:
    e = Expressions(0)
    x, whole = e.input(4), e.input(4, dtype=DType.I32)
    two = e.new.weight("two", np.full((), 2, np.int32))
    root = e("Sqrt", e("Exp", x))
    for graph in (
        e.graph(e("Pow", x, e.array([[2.0]]))),
        e.graph(e("Maximum", x, e.array([[2.0]]))),
        e.graph(e("Maximum", x, e.constant(4))),
        e.graph(e("Maximum", x, math.nan)),
        e.graph(e("Div", whole, two)),
        e.graph(e("Pow", whole, two)),
        e.graph(e("Maximum", whole, two)),
        e.graph(e("Reciprocal", root), root),
    ):
        assert ops_after([reduce_strength], graph, 0) == [n.op.name for n in graph.nodes]


NEUTRAL = (("Add", 0.0), ("Sub", 0.0), ("Mul", 1.0), ("Div", 1.0), ("Pow", 1.0))


@pytest.mark.parametrize(("op", "number"), NEUTRAL)
@pytest.mark.parametrize("seed", SEEDS[:8])
def test_neutral_constants_disappear(op: str, number: float, seed: int) -> None:
    e = Expressions(seed)
    x = e("Neg", e.input(3, 4))
    shape = e.pick((), (1,), (4,), (1, 4), (3, 4))
    assert ops_after([remove_neutral], e.graph(e("Abs", e(op, x, e.array(np.full(shape, number))))), 0) == [
        "Neg",
        "Abs",
    ]
    near = e.pick(
        lambda: e(op, x, e.array(np.full((1, 3, 4), number))),
        lambda: e(op, x, number + 0.5),
        lambda: e(op, x, e.array([number] * 3 + [2.0])),
        lambda: e("Sub", 0.0, x),
        lambda: e("Div", 1.0, x),
        lambda: e("Pow", 1.0, x),
    )
    assert len(ops_after([remove_neutral], e.graph(e("Abs", near())), 0)) == 3


def test_what_rounds_is_not_neutral() -> None:
    e = Expressions(0)
    x = e.input(4, storage=STORED)
    graph = e.graph(e("Add", x, 0.0, storage=OTHERWISE), e("Identity", x, storage=OTHERWISE))
    assert ops_after([remove_neutral, remove_identity], graph, 0) == ["Add", "Identity"]
    assert ops_after([remove_neutral], e.graph(e("Neg", e("Add", x, 0.0, storage=STORED))), 0) == ["Neg"]


@pytest.mark.parametrize("seed", SEEDS)
def test_limits_that_hold_already_disappear(seed: int) -> None:
    e = Expressions(seed)
    x = e.input(1, 4, 4, 2)
    window = {
        "kernel": (2, 2),
        "strides": (2, 2),
        "pads_before": (0, 0),
        "pads_after": (0, 0),
        "dilations": (1, 1),
    }
    positive = e(e.pick("Relu", "Sigmoid", "Abs", "Exp", "Softplus", "Softmax", "HardSigmoid"), x)
    moved = e.pick(
        lambda: positive,
        lambda: e("Transpose", positive, perm=(0, 3, 1, 2)),
        lambda: e("MaxPool", positive, **window),
        lambda: e("Concat", positive, e("Mul", x, x), axis=1),
        lambda: e("Add", positive, e("Relu", x)),
        lambda: e("ReduceMean", positive, axes=(1, 2)),
        lambda: e("Pad", positive, before=(0, 1, 1, 0), after=(0, 0, 0, 0), value=2.0),
    )()
    before = ops_after([], e.graph(moved), 0)
    assert ops_after([remove_limits], e.graph(e(e.pick("Relu", "Abs"), moved)), 0) == before


@pytest.mark.parametrize("seed", SEEDS)
def test_limits_that_may_be_met_stay(seed: int) -> None:
    e = Expressions(seed)
    x = e.input(3, 4)
    positive = e("Relu", x)
    form = e.pick(
        lambda: e("Relu", e("Tanh", x)),
        lambda: e("Relu", e("Neg", positive)),
        lambda: e("Clip", positive, min=0.5),
        lambda: e("Clip", e("Sigmoid", x), min=0.0, max=0.9),
        lambda: e("Relu", e("Pad", positive, before=(1, 1), after=(0, 0), value=-1.0)),
        lambda: e("Relu", e("Concat", positive, x, axis=0)),
        lambda: e("Relu", e("Where", e("Less", x, 0.0), positive, x)),
        lambda: e("Relu", e("Sub", positive, 1.0)),
    )
    graph = e.graph(form())
    assert ops_after([remove_limits], graph, 0) == [n.op.name for n in graph.nodes]


def test_clips_by_ranges_and_storages() -> None:
    e = Expressions(0)
    x, stored = e.input(3, 4), e.input(3, 4, storage=STORED)
    assert ops_after([remove_limits], e.graph(e("Neg", e("Clip", e("Sigmoid", x), min=0.0, max=1.0))), 0) == [
        "Sigmoid",
        "Neg",
    ]
    assert ops_after([remove_limits], e.graph(e("Neg", e("Clip", x))), 0) == ["Neg"]
    # The inner one gives 1 for every element, which lies below the limits of the outer one.
    crossed = e.graph(e("Clip", e("Clip", x, min=5.0, max=1.0), min=2.0, max=7.0))
    assert ops_after([remove_limits], crossed, 0) == ["Clip", "Clip"]
    assert ops_after([fuse_activation], crossed, 0) == ["Clip"]
    twice = e("Relu", e("Relu", stored, storage=STORED), storage=OTHERWISE)
    assert ops_after([remove_limits], e.graph(twice), 0) == ["Relu", "Relu"]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_computed_twice_is_computed_once(seed: int) -> None:
    e = Expressions(seed)
    x, values = e.input(3, 4), e.rng.standard_normal((4, 5))

    def network() -> str:
        y = e("MatMul", e("Neg", x), e.array(values))
        return e("Add", e("Relu", y), e.array(values[0]))

    graph = e.graph(e("Mul", network(), network()))
    assert sorted(ops_after([remove_duplicates], graph, 0)) == ["Add", "MatMul", "Mul", "Neg", "Relu"]


def test_outputs_that_are_the_same_are_both_there() -> None:
    e = Expressions(0)
    x = e.input(3, 4)
    assert ops_after([remove_duplicates], e.graph(e("Sin", x), e("Sin", x)), 0) == ["Sin", "Identity"]


def test_what_only_looks_alike_stays() -> None:
    e = Expressions(0)
    x, y = e.input(3, 4), e.input(3, 4)
    pairs = (
        (e("Sub", x, y), e("Sub", y, x)),
        (e("Clip", x, min=0.0), e("Clip", x, min=0.5)),
        (e("Pad", x, before=(1, 0), after=(0, 0)), e("Pad", x, before=(1, 0), after=(0, 0), value=-0.0)),
        (e("ReduceMean", x, axes=(0,)), e("ReduceMean", x, axes=(1,))),
        (e("Mul", x, e.array([1, 2, 3, 4])), e("Mul", x, e.array([1, 2, 3, 5]))),
        (e("Mul", x, e.array([1, 2, 3, 4])), e("Mul", x, e.array([[1, 2, 3, 4]]))),
        (e("Relu", x), e("Relu", x, storage=STORED)),
        (e("Relu", x, storage=STORED), e("Relu", x, storage=OTHERWISE)),
    )
    for pair in pairs:
        graph = e.graph(*pair)
        assert ops_after([remove_duplicates], graph, 0) == [n.op.name for n in graph.nodes]


def test_limits_of_indices_and_of_integers_that_wrap_stay() -> None:
    """Indices do not inherit the range of the values; a sum of squares of int32 may be negative."""
    new = Builder("indices")
    values, indices = new.add(
        "TopK", [new.one("Sigmoid", [new.input("x", DType.F32, (20,))])], {"k": 20}, outputs=2
    )
    kept = new.one("Clip", [new.one("Cast", [indices], {"to": "f32"})], {"min": 0.0, "max": 5.0})
    dropped = new.one("Clip", [values], {"min": 0.0, "max": 5.0})
    graph = remove_limits(new.finish([new.one("Neg", [kept]), new.one("Neg", [dropped])]))
    assert [node.op.name for node in graph.nodes].count("Clip") == 1

    new = Builder("integers")
    x = new.input("x", DType.I32, (4,))
    squares = new.finish([new.one("Neg", [new.one("Relu", [new.one("Mul", [x, x])])])])
    assert [node.op.name for node in remove_limits(squares).nodes] == ["Mul", "Relu", "Neg"]
    data = {"x": np.array([1 << 16, 46341, 2, -3], np.int32)}
    assert execute(remove_limits(squares), data).keys() == execute(squares, data).keys()

"""What a graph becomes before it is quantized: real numbers, means in two steps, channels and limits that are scaled."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from mace_core.attributes import Attribute
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Quant, Storage
from mace_core.ops.conv import ClampAttributes
from mace_core.ops.pool import PoolAttributes
from mace_core.run.reference import execute
from mace_target_max78000.quantize import real_graph
from mace_target_max78000.quantize.calibrate import TensorStatistics, find_best_step
from mace_target_max78000.quantize.real_graph import (
    as_real_graph,
    equalize_channels,
    fill_ranges,
    move_limits,
    pool_window,
    split_large_means,
)

WINDOW = {"strides": (1, 1), "dilations": (1, 1), "pads_before": (0, 0), "pads_after": (0, 0)}


@dataclass
class Reals:
    """Writes graphs of real numbers."""

    build: Builder = field(default_factory=lambda: Builder("graph"))

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(7)

    def input(self, *shape: int) -> str:
        return self.build.input("x", DType.F32, (1, *shape))

    def weight(self, *shape: int, axis: int = 0) -> str:
        """Random weights whose largest values differ from channel to channel by powers of two."""
        values = self.random.uniform(0.5, 1.0, shape) * self.random.choice([-1, 1], shape)
        sizes = np.exp2(self.random.integers(-3, 4, shape[axis]))
        spread = [1] * len(shape)
        spread[axis] = shape[axis]
        return self.build.weight("w", (values * sizes.reshape(spread)).astype(np.float32))

    def conv(self, x: str, out: int, size: int = 1, group: int = 1, **limits: float) -> str:
        width = self.build.shape(x)[-1] // group
        bias = self.build.weight("b", self.random.normal(size=out).astype(np.float32))
        attrs = {**WINDOW, "group": group, **limits}
        return self.build.one("Conv", [x, self.weight(out, size, size, width), bias], attrs)

    def dense(self, x: str, out: int, **limits: float) -> str:
        elements = int(np.prod(self.build.shape(x)))
        flat = self.build.one("Reshape", [x], {"shape": (1, elements)})
        return self.build.one("MatMul", [flat, self.weight(elements, out, axis=1)], limits)

    def pool(self, x: str) -> str:
        return self.build.one("MaxPool", [x], pool_window((2, 2)))


def results(graph: Graph) -> list[Array]:
    x = np.random.default_rng(3).normal(size=graph.tensors["x"].shape).astype(np.float32)
    computed = execute(graph, {"x": x})
    return [computed[name] for name in graph.outputs]


def convolutions(w: Reals) -> str:
    return w.conv(w.conv(w.input(4, 4, 3), 6), 5, 3)


def through_a_pool(w: Reals) -> str:
    x = w.build.one("Relu", [w.conv(w.input(6, 6, 3), 4, low=0.0)])
    return w.dense(w.pool(x), 5)


def depthwise(w: Reals) -> str:
    return w.conv(w.conv(w.conv(w.input(4, 4, 3), 6), 6, 3, group=6), 5)


def in_groups(w: Reals) -> str:
    return w.conv(w.conv(w.input(4, 4, 3), 6, low=0.0), 4, 3, group=2)


def dense_layers(w: Reals) -> str:
    return w.dense(w.dense(w.input(2, 2, 3), 7, low=0.0), 4)


def peaks(graph: Graph, name: str, axes: Sequence[int]) -> Array:
    return np.abs(graph.weights[name]).max(axis=tuple(axes))


@pytest.mark.parametrize("make", [convolutions, through_a_pool, depthwise, in_groups, dense_layers])
def test_equalized_channels_compute_the_same(make: Callable[[Reals], str]) -> None:
    w = Reals()
    graph = w.build.finish([make(w)])
    equal = equalize_channels(graph)
    for before, after in zip(results(graph), results(equal), strict=True):
        np.testing.assert_allclose(after, before, rtol=2e-4, atol=2e-4)
    assert any(not np.array_equal(graph.weights[name], equal.weights[name]) for name in graph.weights)


def test_peaks_of_both_sides_become_alike() -> None:
    """The factor of each channel is the root of the quotient of its peaks, divided by the mean of all factors."""
    w = Reals()
    graph = w.build.finish([convolutions(w)])
    first, second = (node.inputs[1] for node in graph.nodes)
    equal = equalize_channels(graph)
    ratio = peaks(equal, first, (1, 2, 3)) / peaks(equal, second, (0, 1, 2))
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-5)
    factors = peaks(equal, first, (1, 2, 3)) / peaks(graph, first, (1, 2, 3))
    assert np.exp(np.mean(np.log(factors))) == pytest.approx(1, rel=1e-5)
    expected = np.sqrt(peaks(graph, second, (0, 1, 2)) / peaks(graph, first, (1, 2, 3)))
    np.testing.assert_allclose(factors, expected / np.exp(np.mean(np.log(expected))), rtol=1e-5)
    bias = graph.nodes[0].inputs[2]
    np.testing.assert_allclose(equal.weights[bias], graph.weights[bias] * factors, rtol=1e-5)


def test_a_channel_is_scaled_by_128_at_most_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it, bias and rounding lose more than weights gain; an empty channel has no size to compare."""
    monkeypatch.setattr(real_graph, "ROUNDS", 1)
    w = Reals()
    x = w.conv(w.input(4, 4, 3), 6)
    first = w.build.producer(x).inputs[1]  # type: ignore[union-attr]
    w.build.weights[first] = w.build.weights[first].copy()
    w.build.weights[first][0] *= 2.0**-40
    w.build.weights[first][1] = 0
    graph = w.build.finish([w.conv(x, 5, 3)])
    equal = equalize_channels(graph)
    factors = peaks(equal, first, (1, 2, 3))[[0, 2]] / peaks(graph, first, (1, 2, 3))[[0, 2]]
    assert factors[0] == 128
    assert not equal.weights[first][1].any()
    assert np.isfinite(equal.weights[first]).all()


def shared_weights(w: Reals) -> Sequence[str]:
    x = w.conv(w.input(4, 4, 3), 3)
    name = w.weight(3, 1, 1, 3)
    return [
        w.build.one(
            "Conv", [w.build.one("Conv", [x, name], {**WINDOW, "group": 1}), name], {**WINDOW, "group": 1}
        )
    ]


def kept_output(w: Reals) -> Sequence[str]:
    x = w.conv(w.input(4, 4, 3), 6)
    return [x, w.conv(x, 5)]


def limited(low: float, high: float) -> Callable[[Reals], Sequence[str]]:
    return lambda w: [w.conv(w.conv(w.input(4, 4, 3), 6, low=low, high=high), 5)]


def read_by_a_sum(w: Reals) -> Sequence[str]:
    x = w.conv(w.input(4, 4, 3), 6)
    return [w.build.one("Add", [w.conv(x, 6), x])]


def other_channels(w: Reals) -> Sequence[str]:
    x = w.build.one("Reshape", [w.conv(w.input(4, 4, 3), 6)], {"shape": (1, 4, 2, 12)})
    return [w.conv(x, 5)]


@pytest.mark.parametrize(
    ("make", "changes"),
    [
        (shared_weights, False),
        (kept_output, False),
        (read_by_a_sum, False),
        (other_channels, False),
        (limited(0.0, math.inf), True),
        (limited(-math.inf, math.inf), True),
        (limited(0.0, 6.0), False),
        (limited(-1.0, math.inf), False),
        (limited(-math.inf, 6.0), False),
    ],
)
def test_what_a_factor_would_show_in_is_left(make: Callable[[Reals], Sequence[str]], changes: bool) -> None:
    w = Reals()
    graph = w.build.finish(make(w))
    equal = equalize_channels(graph)
    same = all(np.array_equal(graph.weights[name], equal.weights[name]) for name in graph.weights)
    assert same is not changes
    for before, after in zip(results(graph), results(equal), strict=True):
        np.testing.assert_allclose(after, before, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(("high", "power"), [(6.0, -4), (1.0, -7), (127.0, 0), (5.0, -5), (0.75, -7)])
def test_limits_move_to_127_steps_of_a_power_of_two(high: float, power: int) -> None:
    w = Reals()
    graph = w.build.finish([w.conv(w.conv(w.input(4, 4, 3), 6, low=0.0, high=high), 5)])
    moved = move_limits(graph)
    attrs = moved.nodes[0].attributes(ClampAttributes)
    assert attrs.high == pytest.approx(127 * 2.0**power)
    assert attrs.low == 0
    factor = 127 * 2.0**power / high
    first = graph.nodes[0].inputs[1]
    np.testing.assert_allclose(moved.weights[first], graph.weights[first] * factor, rtol=1e-6)
    np.testing.assert_allclose(results(moved)[0], results(graph)[0], rtol=2e-4, atol=2e-4)


def test_a_limit_without_zero_below_stays() -> None:
    w = Reals()
    graph = w.build.finish([w.conv(w.conv(w.input(4, 4, 3), 6, low=-1.0, high=6.0), 5)])
    moved = move_limits(graph)
    assert [node.attrs for node in moved.nodes] == [node.attrs for node in graph.nodes]


def test_layers_are_scaled_until_their_best_step_is_a_power_of_two() -> None:
    w = Reals()
    graph = w.build.finish([w.conv(w.conv(w.input(4, 4, 3), 6, low=0.0), 5)])
    inner = graph.nodes[0].outputs[0]
    values = np.random.default_rng(1).normal(size=(1, 4, 4, 6)).astype(np.float32)
    none = np.zeros(6)
    seen = {inner: TensorStatistics(values, none, none, float(values.min()), float(values.max()))}
    filled = fill_ranges(graph, seen)
    step = find_best_step(seen[inner].values.astype(np.float64))
    factor = 2.0 ** round(math.log2(step)) / step
    first = graph.nodes[0].inputs[1]
    np.testing.assert_allclose(filled.weights[first], graph.weights[first] * factor, rtol=1e-6)
    np.testing.assert_allclose(results(filled)[0], results(graph)[0], rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(
    ("size", "kernels"),
    [
        ((16, 16), [(16, 16)]),
        ((17, 16), [(17, 16)]),
        ((18, 16), [(9, 16), (2, 1)]),
        ((32, 32), [(16, 16), (2, 2)]),
        ((16, 48), [(16, 16), (1, 3)]),
        ((20, 20), [(10, 10), (2, 2)]),
        ((32, 18), [(32, 18)]),
        ((34, 16), [(34, 16)]),
        ((16,), [(16,)]),
        ((17,), [(17,)]),
        ((64,), [(16,), (4,)]),
        ((256,), [(16,), (16,)]),
        ((272,), [(272,)]),
    ],
)
@pytest.mark.parametrize("op", ["AveragePool", "ReduceMean", "ReduceMean of rows"])
def test_means_over_large_windows_take_two_steps(
    op: str, size: tuple[int, ...], kernels: list[object]
) -> None:
    """Each kernel is at most 16 long, and all parts of the first mean are equal."""
    w = Reals()
    x = w.input(*size, 3)
    if op == "AveragePool":
        y = w.build.one("AveragePool", [x], pool_window(size))
    else:
        axes = tuple(range(1, len(size) + 1))
        keepdims = op == "ReduceMean"
        y = w.build.one(
            "ReduceMean",
            [x],
            {"axes": axes if keepdims else tuple(a - len(size) - 2 for a in axes), "keepdims": keepdims},
        )
    graph = w.build.finish([y])
    split = split_large_means(graph)
    pools = [node.attributes(PoolAttributes) for node in split.nodes if node.op.name == "AveragePool"]
    assert [pool.kernel for pool in pools] == kernels
    assert all(len(set(pool.strides)) == 1 for pool in pools[:-1])
    np.testing.assert_allclose(results(split)[0], results(graph)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axes", [(1,), (2,), (3,), (1, 2, 3), (1, 3)])
def test_other_means_stay(axes: tuple[int, ...]) -> None:
    w = Reals()
    graph = w.build.finish([w.build.one("ReduceMean", [w.input(4, 5, 3)], {"axes": axes, "keepdims": True})])
    assert [node.op.name for node in split_large_means(graph).nodes] == ["ReduceMean"]


@pytest.mark.parametrize(
    "attrs",
    [
        {"pads_before": (1, 0)},
        {"pads_after": (1, 0)},
        {"strides": (1, 1), "kernel": (17, 4)},
    ],
)
def test_means_of_several_windows_and_of_padding_stay(attrs: dict[str, Attribute]) -> None:
    w = Reals()
    complete = {**pool_window((18, 4)), **attrs}
    rows = 18 if "strides" in attrs or "kernel" in attrs else 17
    graph = w.build.finish([w.build.one("AveragePool", [w.input(rows, 4, 3)], complete)])
    assert len(split_large_means(graph).nodes) == 1


def test_an_identity_goes_unless_it_gives_a_constant() -> None:
    w = Reals()
    x = w.build.one("Identity", [w.input(4, 4, 3)])
    constant = w.build.one("Identity", [w.weight(2, 2)])
    graph = split_large_means(w.build.finish([w.conv(x, 2), constant]))
    assert sorted(node.op.name for node in graph.nodes) == ["Conv", "Identity"]


STEP = 0.02
CUT = Storage(DType.I8, Quant.of(STEP, -128))
"""Holds nothing below zero, as what a ReLU has become."""


@pytest.mark.parametrize(
    ("op", "storage", "expected"),
    [
        ("Conv", CUT, ["Conv 0.0"]),
        ("Conv", Storage(DType.I8, Quant.of(STEP, -127)), ["Conv -inf"]),
        ("Conv", Storage(DType.U8, Quant.of(STEP, 0)), ["Conv 0.0"]),
        ("Conv", Storage(DType.I32, Quant.of(STEP, 0)), ["Conv -inf"]),
        ("MatMul", CUT, ["Reshape", "MatMul 0.0"]),
        ("Add", CUT, ["Add", "Clip"]),
        ("Sub", CUT, ["Sub", "Clip"]),
        ("MaxPool", CUT, ["MaxPool"]),
        ("Relu", CUT, ["Relu"]),
        ("Add", Storage(DType.I8, Quant.of(STEP, 0)), ["Add"]),
    ],
)
def test_what_a_storage_cuts_off_below_zero_stays_cut_off(
    op: str, storage: Storage, expected: list[str]
) -> None:
    build = Builder("graph")
    x = build.input("x", DType.I8, (1, 4, 4, 3), Quant.of(STEP, 5))
    w = build.weight("w", np.arange(-6, 6).reshape(4, 1, 1, 3).astype(np.int8), Quant.of(0.25))
    matrix = build.weight("m", np.arange(-48, 48).reshape(48, 2).astype(np.int8), Quant.of(0.01))
    name = build.reserve_output("y", storage)
    if op == "Conv":
        build.one("Conv", [x, w], {**WINDOW, "group": 1}, outputs=[name])
    elif op == "MatMul":
        build.one("MatMul", [build.one("Reshape", [x], {"shape": (1, 48)}), matrix], {}, outputs=[name])
    elif op in ("Add", "Sub"):
        build.one(op, [x, x], {}, outputs=[name])
    else:
        build.one(op, [x], pool_window((2, 2)) if op == "MaxPool" else {}, outputs=[name])
    real = as_real_graph(build.finish([name]))
    actual = [
        f"{node.op.name} {node.attrs.low}" if isinstance(node.attrs, ClampAttributes) else node.op.name
        for node in real.nodes
    ]
    assert actual == expected
    assert all(real.tensors[t].quant is None for node in real.nodes for t in node.outputs)
    if op == "Conv":
        np.testing.assert_array_equal(
            real.weights["w"], np.arange(-6, 6).reshape(4, 1, 1, 3) * np.float32(0.25)
        )

"""What is observed of tensors on samples, and the powers of two that follow from it."""

from __future__ import annotations

import numpy as np
import pytest

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_target_max78000.quantize.calibrate import (
    MAX_KEPT,
    TensorStatistics,
    choose_powers,
    find_best_step,
    group_same_steps,
    observe,
    random_inputs,
)


def graph_of(shape: tuple[int, ...] = (1, 4)) -> Graph:
    """x -> Relu r -> Reshape s; x -> Abs a."""
    builder = Builder("graph")
    x = builder.input("x", DType.F32, shape)
    builder.add("Relu", [x], outputs=["r"])
    builder.add("Reshape", ["r"], {"shape": (int(np.prod(shape)),)}, outputs=["s"])
    builder.add("Abs", [x], outputs=["a"])
    return builder.finish(["s", "a"])


def statistics_of(values: list[float]) -> TensorStatistics:
    array = np.array([values], np.float32)
    return observe(graph_of((1, len(values))), [{"x": array}])["x"]


def power_of(values: list[float]) -> int:
    statistics = statistics_of(values)
    return choose_powers(graph_of((1, len(values))), {"x": statistics}, ["x"])["x"]


def test_random_inputs_are_the_same_each_time_and_within_their_limits() -> None:
    graph = graph_of()
    first, second = random_inputs(graph, (2.0, 3.0)), random_inputs(graph, (2.0, 3.0))
    assert len(first) == 8
    assert len(random_inputs(graph, (2.0, 3.0), 1)) == 1
    for one, other in zip(first, second, strict=True):
        assert one["x"].dtype == np.float32
        assert np.array_equal(one["x"], other["x"])
        assert one["x"].min() >= 2.0
        assert one["x"].max() <= 3.0
    assert not np.array_equal(first[0]["x"], first[1]["x"])


def test_moments_are_those_of_each_channel_over_all_samples() -> None:
    samples = [np.array([[1, 2, -3, 4]], np.float32), np.array([[3, 2, 1, -8]], np.float32)]
    seen = observe(graph_of(), [{"x": sample} for sample in samples])
    assert set(seen) == {"x", "r", "s", "a"}
    x = seen["x"]
    assert x.mean.tolist() == [2, 2, -1, -2]
    assert x.power.tolist() == [5, 4, 5, 40]
    assert x.variance.tolist() == [1, 0, 4, 36]
    assert (x.minimum, x.maximum) == (-8, 4)
    assert sorted(x.values.tolist()) == [-8, -3, 1, 1, 2, 2, 3, 4]
    assert x.values.dtype == np.float32
    assert (seen["r"].minimum, seen["r"].maximum) == (0, 4)


def test_a_bounded_number_of_values_is_kept() -> None:
    shape = (1, MAX_KEPT)
    sample = np.arange(MAX_KEPT, dtype=np.float32).reshape(shape)
    assert observe(graph_of(shape), [{"x": sample}])["x"].values.size == MAX_KEPT
    kept = observe(graph_of(shape), [{"x": sample}, {"x": sample + 1}])["x"].values
    assert kept.size == MAX_KEPT
    assert kept[:3].tolist() == [0, 2, 4]


def test_tensors_that_the_hardware_only_moves_count_in_equal_steps() -> None:
    groups = group_same_steps(graph_of(), ["x", "r", "s", "a"])
    assert sorted(map(sorted, groups)) == [["a"], ["r", "s", "x"]]
    assert sorted(map(sorted, group_same_steps(graph_of(), ["x", "s"]))) == [["s"], ["x"]]


def test_a_group_has_the_power_that_loses_least_of_all_its_tensors() -> None:
    graph = graph_of()
    seen = observe(graph, [{"x": np.array([[100, 127, -128, 64]], np.float32)}])
    assert choose_powers(graph, seen, ["x", "r", "s", "a"]) == {"x": 0, "r": 0, "s": 0, "a": 1}


@pytest.mark.parametrize(
    ("values", "power"),
    [
        # Bytes reach from -128 to 127, one step further down than up.
        ([127, 1], 0),
        ([-128, 1], 0),
        ([128.5, 1], 1),
        ([-129.5, 1], 1),
        ([127 / 1024, 1 / 1024], -10),
        # Nothing is known of a tensor that is always zero.
        ([0, 0], -7),
    ],
)
def test_the_power_holds_every_number(values: list[float], power: int) -> None:
    assert power_of(values) == power


def test_an_outlier_may_be_cut_off() -> None:
    """1.2 needs steps of 2 ** -6; cut off to 127 / 128 it loses less than half of the precision of all others does."""
    values = [*np.linspace(-1, 1, 4000).tolist(), 1.2]
    assert power_of(values) == -7
    # One that is four times as far is worth steps of four times the size.
    assert power_of([*values, 4.0]) == -5


def test_the_best_step_holds_the_peak_or_cuts_it_off() -> None:
    exact = np.array([127 * 0.3, 0.3, -0.6, 0.9])
    assert find_best_step(exact) == pytest.approx(0.3)
    assert find_best_step(-exact) == pytest.approx(0.3)
    assert find_best_step(np.zeros(4)) > 0
    many = np.concatenate((np.linspace(-1, 1, 40000), [1.2]))
    assert 1 / 127 < find_best_step(many) < 1.19 / 127

"""The normalising ops against their numpy references."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mace_core.ir import Graph
from mace_core.kernel_target import KernelTarget
from mace_core.refusal import Refusal
from mace_core.testing.compiled import case, check_graphs
from mace_target_cpu import Cpu
from mace_target_cpu.lower.types import CAST

CHANNELS_LAST = (
    (1, 1, 1, 1),
    (2, 3, 5, 7),
    (1, 33, 31, 3),
    (2, 9, 64),
    (1, 2, 3, 2, 37),
    (3, 17, 200),
    (2, 130, 1),
    (2, 40, 96),
)


def normal(*shape: int, seed: int = 0, offset: float = 0.0) -> Any:
    return (np.random.default_rng(seed).standard_normal(shape) + offset).astype(np.float32)


def vectors(count: int, channels: int) -> list[Any]:
    """Scales, biases and the like; all positive, so that each may be a variance."""
    return [np.abs(normal(channels, seed=i + 5)) + np.float32(0.1) for i in range(count)]


def layer_norms() -> Iterator[Graph]:
    for i, (shape, axis) in enumerate(
        [((4, 768), -1), ((2, 3, 5), 1), ((2, 3, 5), 0), ((3, 1), -1), ((7, 2), -1), ((5, 1001), 1)]
    ):
        inner = shape[axis:]
        x = np.zeros(shape, np.float32)
        scale, bias = normal(*inner, seed=1), normal(*inner, seed=2)
        yield case(f"layer{i}", "LayerNorm", [x, scale, bias], {"axis": axis}, constants=(1, 2))
        yield case(f"layer{i}_given", "LayerNorm", [x, scale, bias], {"axis": axis, "epsilon": 0.1})
        yield case(f"layer{i}_unbiased", "LayerNorm", [x, scale], {"axis": axis}, constants=(1,))
    x = np.zeros((2, 3, 5), np.float32)
    yield case("layer_stretched", "LayerNorm", [x, normal(3, 1), normal(1)], {"axis": 1}, constants=(1, 2))


@pytest.mark.slow
def test_layer_norm(tmp_path: Path) -> None:
    check_graphs(Cpu(), list(layer_norms()), tmp_path, tolerance=3e-6)


def test_layer_norm_refuses_what_it_cannot_stretch() -> None:
    graph = case("stretched", "LayerNorm", [np.zeros((2, 3, 5), np.float32), normal(3, 1)], {"axis": 1})
    reason = str(Cpu().refuses(graph.nodes[0], graph))
    assert reason is not None
    assert "not a constant" in reason


@pytest.mark.slow
def test_group_and_instance_norm(tmp_path: Path) -> None:
    graphs = []
    for i, shape in enumerate(CHANNELS_LAST):
        x, channels = np.zeros(shape, np.float32), shape[-1]
        graphs.append(case(f"instance{i}", "InstanceNorm", [x, *vectors(2, channels)], {}, constants=(1, 2)))
        for groups in {1, 2, 3, 5, channels}:
            if channels % groups == 0:
                given = [x, *vectors(2, channels)]
                graphs.append(
                    case(f"group{i}_{groups}", "GroupNorm", given, {"groups": groups, "epsilon": 1e-3})
                )
    graphs.append(
        case("group_flat", "GroupNorm", [np.zeros((3, 12), np.float32), *vectors(2, 12)], {"groups": 4})
    )
    inputs = {g.name: {n: positive(g, n) for n in g.inputs} for g in graphs}
    check_graphs(Cpu(), graphs, tmp_path, inputs, tolerance=5e-6)


def positive(graph: Graph, name: str) -> Any:
    """Random data; positive for the vectors."""
    array = normal(*graph.tensors[name].shape, seed=len(name) + sum(graph.tensors[name].shape))
    return array if name == "x0" else np.abs(array) + np.float32(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("offset", [1000.0, -3e5])
def test_a_large_mean_costs_no_digits(tmp_path: Path, offset: float) -> None:
    rows, image = normal(3, 5000, offset=offset), normal(1, 130, 110, 3, offset=offset)
    graphs = [
        case("layer", "LayerNorm", [rows, np.ones(5000, np.float32)], {}, constants=(1,)),
        case(
            "instance",
            "InstanceNorm",
            [image, np.ones(3, np.float32), np.zeros(3, np.float32)],
            {},
            constants=(1, 2),
        ),
        case("mvn", "MeanVarianceNorm", [image], {"axes": (0, 1, 2)}),
    ]
    inputs = {"layer": {"x0": rows}, "instance": {"x0": image}, "mvn": {"x0": image}}
    check_graphs(Cpu(), graphs, tmp_path, inputs, tolerance=3e-6)


@pytest.mark.slow
def test_mean_variance_norm(tmp_path: Path) -> None:
    x = np.zeros((2, 3, 5, 7), np.float32)
    every = [
        (0,),
        (1,),
        (2,),
        (3,),
        (0, 1, 2),
        (1, 2),
        (2, 3),
        (0, 2),
        (0, 2, 3),
        (1, 3),
        (0, 3),
        (0, 1, 2, 3),
        (-1, -3),
    ]
    graphs = [case(f"mvn{i}", "MeanVarianceNorm", [x], {"axes": axes}) for i, axes in enumerate(every)]
    six = np.zeros((2, 3, 2, 3, 2, 3), np.float32)
    graphs += [
        case("mvn_even", "MeanVarianceNorm", [six], {"axes": (0, 2, 4)}),
        case("mvn_odd", "MeanVarianceNorm", [six], {"axes": (1, 3, 5)}),
    ]
    check_graphs(Cpu(), graphs, tmp_path, tolerance=3e-6)


@pytest.mark.slow
def test_constant_rows_become_zero(tmp_path: Path) -> None:
    x = np.full((2, 33, 3), 7.25, np.float32)
    graphs = [
        case(f"mvn{i}", "MeanVarianceNorm", [x], {"axes": axes})
        for i, axes in enumerate([(1,), (2,), (0, 2)])
    ]
    check_graphs(Cpu(), graphs, tmp_path, {g.name: {"x0": x} for g in graphs})


@pytest.mark.slow
def test_batch_norm(tmp_path: Path) -> None:
    graphs = []
    for i, shape in enumerate((*CHANNELS_LAST, (5, 6), (4, 1000), (0, 3, 4))):
        given = [np.zeros(shape, np.float32), *vectors(4, shape[-1])]
        graphs.append(case(f"batch{i}", "BatchNorm", given, {}, constants=(1, 2, 3, 4)))
        graphs.append(case(f"batch{i}_given", "BatchNorm", given, {"epsilon": 0.01}, constants=(2,)))
    inputs = {g.name: {n: positive(g, n) for n in g.inputs} for g in graphs}
    check_graphs(Cpu(), graphs, tmp_path, inputs, tolerance=2e-6)


@pytest.mark.slow
def test_lrn(tmp_path: Path) -> None:
    settings: tuple[dict[str, float], ...] = (
        {"size": 5},
        {"size": 4, "alpha": 0.5, "beta": 0.5},
        {"size": 1, "alpha": 0.1, "beta": 1.0, "bias": 2.0},
        {"size": 9, "alpha": 2.0, "beta": 0.6, "bias": 0.5},
        {"size": 500, "alpha": 1.0},
    )
    graphs = [
        case(f"lrn{i}_{j}", "LRN", [np.zeros(shape, np.float32)], attrs)
        for i, shape in enumerate(CHANNELS_LAST)
        for j, attrs in enumerate(settings)
    ]
    check_graphs(Cpu(), graphs, tmp_path, tolerance=2e-6)


def test_other_types_are_refused() -> None:
    target: KernelTarget = Cpu()
    x = np.zeros((2, 3, 4))
    for op, rest, attrs in (
        ("LRN", [], {"size": 3}),
        ("GroupNorm", [np.zeros(4)] * 2, {"groups": 2}),
        ("MeanVarianceNorm", [], {"axes": (1,)}),
    ):
        graph = case("double", op, [x, *rest], attrs)
        assert target.refuses(graph.nodes[0], graph) == Refusal(
            "dtype", f"no kernel computes {op} of f64", CAST
        )


@pytest.mark.parametrize("op", ["LayerNorm", "MeanVarianceNorm"])
def test_rows_may_be_computed_in_place(op: str) -> None:
    x = np.zeros((3, 8), np.float32)
    attrs: dict[str, Any] = {"axes": (1,)} if op == "MeanVarianceNorm" else {"axis": 1}
    operands = [x] if op == "MeanVarianceNorm" else [x, np.ones(8, np.float32)]
    (call,) = Cpu().lower(case("rows", op, operands, attrs, constants=(1,))).calls
    assert call.inplace

"""Models in double precision: as exact as numpy's own arithmetic in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_core.run.reference import execute
from mace_core.testing.compiled import case, check_graphs, compile_graphs, random_inputs
from mace_target_cpu import Cpu
from mace_target_cpu.lower import unary

pytestmark = pytest.mark.slow

EXACT = 1e-13
WINDOW = {"strides": (2, 1), "pads_before": (1, 0), "pads_after": (1, 2), "dilations": (1, 2)}
CUBE = {"strides": (1, 2, 2), "pads_before": (1, 0, 2), "pads_after": (2, 2, 1), "dilations": (2, 1, 2)}
RNG = np.random.default_rng(0)


def doubles(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


def test_elements(tmp_path: Path) -> None:
    x = np.concatenate([np.linspace(-6, 6, 61), [0.0, -0.0, np.inf, -np.inf, np.nan, 1e300, -1e300, 5e-324]])
    graphs = [case(name, name, [x]) for name in sorted({*unary.DOUBLE, "Gelu"} - {"GeluNone", "GeluTanh"})]
    graphs.append(case("GeluTanh", "Gelu", [x], {"approximate": "tanh"}))
    graphs.append(case("Crossed", "Clip", [x], {"min": 5.0, "max": 1.0}))
    check_graphs(Cpu(), graphs, tmp_path, {g.name: {"x0": x} for g in graphs}, tolerance=EXACT)


def test_pairs(tmp_path: Path) -> None:
    values = np.array([0.0, -0.0, 1.0, -1.0, 2.5, -7.25, np.inf, -np.inf, np.nan, 1e300])
    x, y = np.meshgrid(values, values)
    names = (
        "Add",
        "Sub",
        "Mul",
        "Div",
        "Minimum",
        "Maximum",
        "PRelu",
        "Pow",
        "Mod",
        "Less",
        "Equal",
        "GreaterEqual",
    )
    graphs = [case(name, name, [x, y]) for name in names]
    check_graphs(Cpu(), graphs, tmp_path, {g.name: {"x0": x, "x1": y} for g in graphs}, tolerance=EXACT)


def products() -> list[Graph]:
    x, w = doubles(2, 7, 6, 4), doubles(6, 3, 3, 2)
    pool = {**WINDOW, "kernel": (2, 2)}
    return [
        case(
            "matmul",
            "MatMul",
            [doubles(2, 1, 5, 7), doubles(3, 7, 4), doubles(4)],
            {"low": -1.0, "high": 1.5},
        ),
        case("vectors", "MatMul", [doubles(7), doubles(7)]),
        case("constant", "MatMul", [doubles(5, 7), doubles(7, 3)], constants=(1,)),
        case("conv", "Conv", [x, w, doubles(6)], {**WINDOW, "group": 2, "low": 0.0}, constants=(1, 2)),
        case("depthwise", "Conv", [x, doubles(4, 3, 3, 1)], {**WINDOW, "group": 4}, constants=(1,)),
        case("line", "Conv", [doubles(1, 9, 2), doubles(3, 2, 2)], {k: v[:1] for k, v in WINDOW.items()}),
        case(
            "cube",
            "Conv",
            [doubles(2, 4, 5, 6, 4), doubles(6, 2, 3, 2, 2), doubles(6)],
            {**CUBE, "group": 2, "low": -2.0, "high": 3.0},
        ),
        case("average", "AveragePool", [x], pool),
        case("highest", "MaxPool", [x], pool),
        case("softmax", "Softmax", [x * 50], {"axis": 2}),
        case("log_softmax", "LogSoftmax", [x * 50]),
        case(
            "batch_norm",
            "BatchNorm",
            [x, doubles(4), doubles(4), doubles(4), np.abs(doubles(4))],
            constants=(4,),
        ),
        case("layer_norm", "LayerNorm", [x, doubles(6, 4), doubles(6, 4)], {"axis": 2}),
    ]


def test_products_and_norms(tmp_path: Path) -> None:
    check_graphs(Cpu(), products(), tmp_path, {g.name: positive(g) for g in products()}, tolerance=EXACT)


def positive(graph: Graph) -> dict[str, np.ndarray]:
    """Random inputs, magnitudes for a norm, whose variance must not be negative."""
    given = random_inputs(graph)
    return {n: np.abs(a) for n, a in given.items()} if graph.name == "batch_norm" else given


def test_reductions(tmp_path: Path) -> None:
    names = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSumExp", "SumSquare")
    x = doubles(3, 4, 5)
    graphs = [
        case(f"{n}{len(axes)}", f"Reduce{n}", [x], {"axes": axes}) for n in names for axes in ((1,), (0, 2))
    ]
    graphs += [case(n, n, [x], {"axis": 1}) for n in ("CumSum", "CumProd", "ArgMax", "ArgMin")]
    check_graphs(Cpu(), graphs, tmp_path, tolerance=EXACT)


def test_products_of_integers_wrap(tmp_path: Path) -> None:
    graphs, inputs = [], {}
    for dtype in ("i1", "u2", "i4", "u4", "i8"):
        ends = np.iinfo(dtype)
        x = RNG.integers(ends.min, ends.max, (2, 3, 9), dtype, endpoint=True)
        y = RNG.integers(ends.min, ends.max, (9, 4), dtype, endpoint=True)
        graphs.append(case(f"product_{dtype}", "MatMul", [x, y]))
        graphs.append(case(f"clamped_{dtype}", "MatMul", [x, y, y[0]], {"low": 0.0, "high": 99.5}))
        inputs |= {g.name: {"x0": x, "x1": y, "x2": y[0]} for g in graphs[-2:]}
    check_graphs(Cpu(), graphs, tmp_path, inputs)


def test_a_network_in_double_precision(tmp_path: Path) -> None:
    new = Builder("network")
    y = new.one(
        "Conv", [new.input("x", DType.F64, (1, 8, 8, 3)), new.weight("w", doubles(6, 3, 3, 3))], WINDOW
    )
    y = new.one("Sigmoid", [new.one("Pad", [y], {"before": (0, 1, 0, 0), "after": (0, 0, 1, 0)})])
    y = new.one("Reshape", [new.one("ReduceMean", [y], {"axes": (1, 2)})], {"shape": (1, 6)})
    graph = new.finish([new.one("Softmax", [new.one("MatMul", [y, new.weight("m", doubles(6, 4))])])])
    x = {"x": doubles(1, 8, 8, 3)}
    (model,) = compile_graphs(Cpu(), [graph], tmp_path).values()
    (name,) = graph.outputs
    np.testing.assert_allclose(model.run(x)[name], execute(graph, x)[name], rtol=1e-13)

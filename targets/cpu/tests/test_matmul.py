"""Matrix product and pooling against their numpy references."""

from pathlib import Path

import numpy as np
import pytest
from emulated_levels import QUIET
from test_conv import OneLevel

from mace_core.attributes import Attribute
from mace_core.ir import Graph
from mace_core.run.reference import execute
from mace_core.testing.compiled import assert_close, case, check_graphs, run_merged
from mace_target_cpu import Cpu

pytestmark = pytest.mark.slow

PRODUCTS = [
    ((4, 7), (7, 5)), ((1, 130), (130, 33)), ((2, 3, 5, 8), (8, 17)), ((2, 3, 5, 8), (2, 3, 8, 4)), ((3, 5, 8), (2, 1, 8, 4)),
    ((8,), (8, 3)), ((5, 8), (8,)), ((8,), (8,)), ((2, 4, 8), (8,)), ((100, 64), (64, 48)), ((2, 1, 5), (1, 5, 3)),
    ((2, 1, 1, 1, 1, 3, 2, 4), (2, 1, 1, 1, 1, 1, 4, 3)),  # as many axes as a tensor may have
]  # fmt: skip


def test_products(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    graphs = []
    for i, (a, b) in enumerate(PRODUCTS):
        arrays = [rng.standard_normal(a).astype("f4"), (rng.standard_normal(b) / np.sqrt(a[-1])).astype("f4")]
        graphs += [
            case(f"constant{i}", "MatMul", arrays, constants=(1,)),
            case(f"runtime{i}", "MatMul", arrays),
        ]
    bias = np.linspace(-1, 1, 17).astype("f4")
    arrays = [np.zeros((6, 9), "f4"), rng.standard_normal((9, 17)).astype("f4"), bias]
    graphs.append(case("fused", "MatMul", arrays, {"low": 0.0, "high": 2.0}, constants=(1, 2)))
    check_graphs(Cpu(), graphs, tmp_path)


COLUMNS = (15, 16, 17, 24, 25, 32, 33, 40, 41, 72, 73, 88)
"""Widths whose last tiles are narrow, a register, wider than narrow, and several: 17 to 24 are narrow at AVX-512."""


@pytest.mark.parametrize("rows", [3, 13, 27])
def test_widths_and_heights_of_tiles_have_the_bits_of_another_level(tmp_path: Path, rows: int) -> None:
    """Fewer rows than a highest tile has, some of them, and a pile of them with rows that are left over."""
    rng = np.random.default_rng(rows)
    graphs, inputs = [], {}
    for columns in COLUMNS:
        a = rng.standard_normal((rows, 11)).astype("f4")
        b = rng.standard_normal((11, columns)).astype("f4")
        graphs.append(case(f"columns{columns}", "MatMul", [a, b], constants=(1,)))
        inputs[graphs[-1].name] = {"x0": a}
    wide, other = (
        run_merged(OneLevel(QUIET[level]), graphs, tmp_path / level, inputs) for level in ("avx512", "avx2")
    )
    for graph in graphs:
        (name,) = graph.outputs
        np.testing.assert_array_equal(wide[graph.name][name], other[graph.name][name], err_msg=graph.name)
        assert_close(wide[graph.name][name], execute(graph, inputs[graph.name])[name], graph.name)


def pool(name: str, op: str, x: tuple[int, ...], kernel: tuple[int, ...], **attrs: Attribute) -> Graph:
    rank = len(kernel)
    full = {
        "kernel": kernel,
        "strides": (1,) * rank,
        "pads_before": (0,) * rank,
        "pads_after": (0,) * rank,
        "dilations": (1,) * rank,
    }
    return case(name, op, [np.zeros(x, np.float32)], full | attrs)


def test_pools(tmp_path: Path) -> None:
    graphs = []
    for op in ("MaxPool", "AveragePool", "LpPool"):
        graphs += [
            pool(f"{op}0", op, (2, 7, 8, 5), (2, 2), strides=(2, 2)),
            pool(
                f"{op}1",
                op,
                (1, 9, 9, 33),
                (3, 3),
                strides=(2, 2),
                pads_before=(1, 1),
                pads_after=(1, 1),
                ceil=True,
            ),
            pool(f"{op}2", op, (1, 20, 3), (4,), strides=(3,), pads_before=(1,)),
            pool(f"{op}3", op, (1, 5, 6, 7, 2), (2, 3, 2), dilations=(2, 1, 3)),
        ]
    graphs.append(
        pool(
            "padded",
            "AveragePool",
            (1, 6, 6, 3),
            (3, 3),
            pads_before=(1, 0),
            pads_after=(0, 2),
            count_pad=True,
        )
    )
    graphs.append(
        pool(
            "ceiling",
            "AveragePool",
            (1, 6, 6, 3),
            (3, 3),
            strides=(2, 2),
            pads_after=(1, 1),
            ceil=True,
            count_pad=True,
        )
    )
    graphs += [pool(f"norm{p}", "LpPool", (1, 6, 6, 3), (3, 3), p=p) for p in (1, 3)]
    uneven = {"strides": (2, 1), "pads_before": (1, 2), "pads_after": (2, 0), "dilations": (1, 2)}
    cube = {"strides": (1, 2, 2), "pads_before": (1, 0, 2), "pads_after": (2, 2, 1), "dilations": (2, 1, 2)}
    for op, counts in (
        ("MaxPool", {}),
        ("LpPool", {}),
        ("AveragePool", {}),
        ("AveragePool", {"count_pad": True}),
    ):
        for ceil in (False, True):
            name = f"{op}{len(counts)}{ceil}"
            graphs.append(pool(f"{name}_plane", op, (2, 9, 8, 77), (3, 2), **uneven, **counts, ceil=ceil))
            graphs.append(pool(f"{name}_cube", op, (2, 5, 6, 7, 3), (2, 3, 2), **cube, **counts, ceil=ceil))
    # Windows that see nothing but padding.
    outside = {"strides": (3, 3), "pads_before": (4, 4), "pads_after": (4, 4)}
    graphs += [pool(f"{op}_outside", op, (1, 3, 4, 9), (3, 3), **outside) for op in ("AveragePool", "LpPool")]
    check_graphs(Cpu(), graphs, tmp_path)

"""`arithmetic: bf16`: products of factors rounded to bfloat16, with sums of floats, at every level of this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from emulated_levels import QUIET

from mace_core.deployment import Model
from mace_core.ir import Array, Graph
from mace_core.json_types import Json
from mace_core.run.reference import execute
from mace_core.testing.compiled import case, run_merged
from mace_target_cpu import Cpu
from mace_target_cpu.lower.bfloats import round_to_bfloat

UNIT = 2.0**-24
"""Half of the distance from 1 to the next float: the relative error of one rounded sum."""

LEAST = 2.0**-126
"""The smallest number that is no denormal one: AMX makes sums below it 0."""


def configure(options: Json) -> Cpu:
    """Return the target as a model asks for it."""
    target = Cpu().configure(Model("m", (), keys={"target_options": {"cpu": options}}))
    assert isinstance(target, Cpu)
    return target


BF16 = configure({"arithmetic": "bf16"})


def widen(array: Array) -> Array:
    """Return an array as the kernel multiplies it, in double precision."""
    bits = round_to_bfloat(array).astype(np.uint32) << 16
    return bits.view(np.float32).reshape(array.shape).astype(np.float64)


@dataclass(frozen=True)
class Case:
    """A node with constant weights, and the sum of its products' magnitudes is what bounds its error."""

    graph: Graph
    inputs: dict[str, Array]

    @property
    def depth(self) -> int:
        node = self.graph.nodes[0]
        w = self.graph.weights[node.inputs[1]].shape
        return int(np.prod(w[1:])) if node.op.name == "Conv" else w[-2] if len(w) > 1 else w[0]

    def compute(self, change: np.ufunc | None = None) -> Array:
        """Return exact sums of products of rounded factors; of their magnitudes with `np.abs`, without a clamp."""
        node = self.graph.nodes[0]
        x, w = widen(self.inputs[node.inputs[0]]), widen(self.graph.weights[node.inputs[1]])
        bias = self.graph.weights[node.inputs[2]].astype(np.float64) if len(node.inputs) > 2 else None
        operands = [x, w, bias]
        attrs = dict(vars(node.attrs))
        if change:
            operands = [None if array is None else change(array) for array in operands]
            attrs.update(low=-np.inf, high=np.inf)
        double = case("double", node.op.name, operands, attrs, constants=(1, 2) if bias is not None else (1,))
        result = execute(double, {"x0": operands[0]})["y0"]
        return np.asarray(result, np.float64)

    def check(self, result: Array, level: str) -> None:
        """Compare with exact sums: each of n products and the bias is added with one rounding, in any order."""
        additions = self.depth + 2
        bound = additions * UNIT / (1 - additions * UNIT) * self.compute(np.abs) + additions * LEAST
        error = np.abs(result.astype(np.float64) - self.compute())
        assert (error <= bound).all(), (self.graph.name, level, float((error / bound).max()))


def draw(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(np.float32)


def product(name: str, x: tuple[int, ...], w: tuple[int, ...], **attrs: float) -> Case:
    bias = draw(w[-1], seed=2) if len(w) > 1 else None
    arrays = [draw(*x), draw(*w, seed=1), *([bias] if bias is not None else [])]
    graph = case(name, "MatMul", arrays, attrs, constants=(1, 2) if bias is not None else (1,))
    return Case(graph, {"x0": arrays[0]})


def conv(name: str, x: tuple[int, ...], w: tuple[int, ...], **attrs: object) -> Case:
    rank = len(x) - 2
    half = tuple(size // 2 for size in w[1:-1])
    windows = {"strides": (1,) * rank, "dilations": (1,) * rank, "pads_before": half, "pads_after": half}
    arrays = [draw(*x), draw(*w, seed=1), draw(w[0], seed=2)]
    return Case(case(name, "Conv", arrays, {**windows, **attrs}, constants=(1, 2)), {"x0": arrays[0]})


# Depths of whole tiles, of chunks that overlap nothing and of odd numbers; rows of one tile, of several and of few;
# columns of less than a vector, of a panel and a bit, and of several tiles.
PRODUCTS = [
    product("whole", (32, 64), (64, 64)),
    product("odd", (13, 107), (107, 21)),
    product("single_row", (1, 300), (300, 130)),
    product("few_rows", (7, 33), (33, 16), low=-1.0, high=2.0),
    product("many_rows", (49, 70), (70, 40)),
    product("shallow", (50, 1), (1, 70)),
    product("below_tiles", (9, 31), (31, 17)),
    product("batches", (2, 3, 11, 40), (2, 3, 40, 19)),
    product("shared", (2, 3, 5, 40), (40, 65)),
    product("vector", (5, 48), (48,)),
    product("deep", (17, 5000), (5000, 48)),
    # Weights beyond what the second-level cache holds, so that each part of them serves all rows.
    product("far", (70, 1024), (1024, 600)),
]
CONVOLUTIONS = [
    conv("point", (1, 7, 9, 64), (80, 1, 1, 64)),
    conv("point_odd", (2, 5, 7, 37), (19, 1, 1, 37), low=0.0, high=1.5),
    conv("window", (1, 9, 11, 32), (48, 3, 3, 32), low=0.0),
    conv("window_odd", (2, 7, 9, 11), (21, 3, 3, 11)),
    conv("stride", (1, 15, 14, 24), (40, 3, 3, 24), strides=(2, 2)),
    conv("point_stride", (1, 9, 9, 32), (16, 1, 1, 32), strides=(2, 2)),
    conv("dilated", (1, 9, 12, 16), (16, 3, 3, 16), dilations=(2, 2), pads_before=(2, 2), pads_after=(2, 2)),
    conv("image", (1, 17, 19, 3), (24, 3, 3, 3), strides=(2, 2)),
    conv("planes", (1, 16, 17, 1), (8, 5, 5, 1)),
    conv("groups", (1, 6, 7, 24), (32, 3, 3, 6), group=4),
    conv("signal", (1, 31, 20), (33, 5, 20)),
    conv("volume", (1, 4, 5, 6, 9), (17, 2, 3, 3, 9), pads_after=(0, 1, 1)),
]
CASES = [*PRODUCTS, *CONVOLUTIONS]
INPUTS = {case.graph.name: case.inputs for case in CASES}


@pytest.mark.slow
@pytest.mark.parametrize("level", QUIET)
def test_results_are_near_exact_sums_of_rounded_factors(level: str, tmp_path: Path) -> None:
    graphs = [case.graph for case in CASES]
    results = run_merged(BF16, graphs, tmp_path, INPUTS, [QUIET[level]])
    for one in CASES:
        (result,) = results[one.graph.name].values()
        one.check(result, level)

"""Tensors of half precision: stored in sixteen bits, computed in floats, each op rounding once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_core.run.reference import execute
from mace_core.testing.compiled import compile_graphs
from mace_target_cpu import Cpu

pytestmark = pytest.mark.slow

WINDOW = {"strides": (1, 1), "pads_before": (1, 1), "pads_after": (1, 1), "dilations": (1, 1)}


def network() -> Graph:
    """A convolution, a maximum, a choice of rows, a product: ops with weights, elements, movement and reduction."""
    new, rng = Builder("half"), np.random.default_rng(0)

    def weight(name: str, *shape: int) -> str:
        return new.weight(name, (rng.standard_normal(shape) / 4).astype(np.float16))

    x = new.input("x", DType.F16, (1, 6, 5, 3))
    y = new.one("Conv", [x, weight("w", 8, 3, 3, 3), weight("b", 8)], WINDOW)
    y = new.one("MaxPool", [new.one("Relu", [y])], {**WINDOW, "kernel": (3, 3), "strides": (2, 2)})
    y = new.one("Slice", [y], {"starts": (0, 1, 0, 0), "sizes": (1, 2, 3, 8), "steps": (1, 1, 1, 1)})
    y = new.one("MatMul", [new.one("Reshape", [y], {"shape": (1, 48)}), weight("m", 48, 10)])
    return new.finish([new.one("Softmax", [y], outputs=["y"])])


def test_half_precision_through_generated_c(tmp_path: Path) -> None:
    graph = network()
    x = {"x": np.random.default_rng(1).standard_normal((1, 6, 5, 3)).astype(np.float16)}
    (model,) = compile_graphs(Cpu(), [graph], tmp_path).values()
    actual = model.run(x)["y"]
    assert actual.dtype == np.float16
    np.testing.assert_allclose(actual, execute(graph, x)["y"], rtol=4e-3)  # two steps of half precision


def test_only_what_computes_is_widened() -> None:
    calls = [c.kernel.name for c in Cpu().lower(network()).calls]
    assert (calls[0], calls[2]) == ("cast_f16_f32", "cast_f32_f16")
    # Of few channels, so on x86 the kernel of copied lines takes it.
    assert calls[1].startswith("conv_")
    assert any(name.startswith("copy") for name in calls), "a slice of half precision is moved as it is"

"""`arithmetic: bf16` on ARM: the kernels of the CPU target, with the bits of its levels without tiles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from emulated_arm import FLAGS, BuiltForArm, require_runner, require_toolchain

from mace_core.deployment import Model
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_core.levels import with_levels
from mace_core.run.compile import program
from mace_core.testing.compiled import generate_library, random_inputs, run_merged
from mace_target_arm import Arm
from mace_target_cpu import Cpu
from mace_target_cpu.isa import GENERIC

MODEL = Model("m", (), keys={"target_options": {name: {"arithmetic": "bf16"} for name in ("arm", "cpu")}})


def build_network() -> Graph:
    """Return windows of an image, windows in two groups with a sum behind them, and a matrix."""
    new, rng = Builder("network"), np.random.default_rng(1)

    def conv(x: str, filters: tuple[int, ...], group: int = 1) -> str:
        w = new.weight("w", rng.standard_normal(filters).astype("f4"))
        pads = (filters[1] // 2, filters[2] // 2)
        attrs = {
            "strides": (1, 1),
            "dilations": (1, 1),
            "pads_before": pads,
            "pads_after": pads,
            "group": group,
        }
        return new.one("Conv", [x, w], attrs)

    x = conv(new.input("x", DType.F32, (1, 7, 9, 3)), (22, 5, 5, 3))
    x = new.one("Add", [x, conv(x, (22, 3, 3, 11), group=2)])
    x = new.one("Reshape", [x], {"shape": (33, 42)})
    return new.finish([new.one("MatMul", [x, new.weight("m", rng.standard_normal((42, 37)).astype("f4"))])])


@pytest.mark.slow
@pytest.mark.emulator
@pytest.mark.parametrize("abi", ["arm64", "armhf"])
def test_products_of_bfloat16_have_the_bits_of_the_cpu(abi: str, tmp_path: Path) -> None:
    graph = build_network()
    inputs = random_inputs(graph, 3)
    tools = require_toolchain("gnu", abi)
    runner = require_runner(tools, abi)
    configured = Arm().configure(MODEL)
    assert isinstance(configured, Arm)
    assert {call.kernel.name for call in configured.lower(graph, abi).calls} == {
        "conv_bf16",
        "conv_bf16_add",
        "matmul_bf16",
    }
    levels = [level for level in Arm().known_levels(abi) if level.name in ("i8mm", "neon")]
    sources = generate_library([with_levels(configured, levels)], [graph], abi)
    path = program("mace_run", sources, tools.compiler(abi), tmp_path / "arm", FLAGS)
    built = BuiltForArm(path, runner, tuple(graph.tensors[name] for name in graph.outputs))
    here = run_merged(Cpu().configure(MODEL), [graph], tmp_path / "here", {graph.name: inputs}, GENERIC)
    for level in levels:
        results = built.run([inputs["x"]], level.name)
        for name, array in here[graph.name].items():
            np.testing.assert_array_equal(results[name], array, err_msg=str(level.name))

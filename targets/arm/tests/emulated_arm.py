"""Builds programs for ARM, executes them in QEMU, and computes the same on this machine's CPU."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mace_core.api import Runner, Toolchain
from mace_core.ir import Array, Graph, Tensor
from mace_core.levels import with_levels
from mace_core.registry import Registry
from mace_core.run.compile import program
from mace_core.testing.compiled import compile_graphs, generate_library
from mace_core.testing.requirements import require
from mace_target_arm import Arm
from mace_target_cpu import Cpu

FLAGS = ("-O2", "-s")


def name_levels(abi: str) -> tuple[str, ...]:
    """Return the names of all levels of an ABI."""
    return tuple(str(level.name) for level in Arm().known_levels(abi))


def name_emulated_levels(abi: str) -> tuple[str, ...]:
    """Return those that QEMU 7 computes right: not `sme`, see test_outer_products.py."""
    return tuple(name for name in name_levels(abi) if name != "sme")


def require_toolchain(name: str, abi: str) -> Toolchain:
    """Return a toolchain that compiles for an ABI; the test is skipped with the reason where none can."""
    registry = Registry.load()
    if name not in registry.toolchains:
        require(f"toolchain {name} is not installed: pip install mace-toolchain-{name}")
    toolchain = registry.toolchains[name]
    require(toolchain.missing(abi))
    return toolchain


def require_runner(toolchain: Toolchain, abi: str) -> Runner:
    """Return what executes programs for an ABI, as `require_toolchain` does."""
    runner = toolchain.runner(abi)
    assert runner is not None
    require(runner.missing())
    return runner


@dataclass(frozen=True)
class BuiltForArm:
    """A program for ARM that runs one model on files, with all levels of its ABI."""

    path: Path
    runner: Runner
    outputs: tuple[Tensor, ...]

    @classmethod
    def from_graph(cls, graph: Graph, folder: Path, toolchain: str, abi: str, *objects: Path) -> BuiltForArm:
        """Compile a graph whose inputs are given in its order.

        objects: object files that are linked with it.
        """
        tools = require_toolchain(toolchain, abi)
        runner = require_runner(tools, abi)
        target = with_levels(Arm(), Arm().known_levels(abi))
        sources = generate_library([target], [graph], abi)
        flags = (*FLAGS, *map(str, objects))
        path = program("mace_run", sources, tools.compiler(abi), folder, flags)
        return cls(path, runner, tuple(graph.tensors[name] for name in graph.outputs))

    def execute(
        self, inputs: Sequence[Array], level: str, processor: str = "max"
    ) -> subprocess.CompletedProcess[str]:
        """Execute it for one sample, at a level of the library; "" for the best one that is there.

        processor: as QEMU names it; "max" has all that QEMU knows.
        """
        folder = self.path.parent
        paths = []
        for i, array in enumerate(inputs):
            paths.append(folder / f"input_{i}.bin")
            paths[-1].write_bytes(np.ascontiguousarray(array).tobytes())
        command = self.runner.command(self.path, [f"--output={folder}", *map(str, paths)])
        environment = {**os.environ, "MACE_CPU_LEVEL": level, "QEMU_CPU": processor}
        return subprocess.run(command, check=False, capture_output=True, text=True, env=environment)

    def run(self, inputs: Sequence[Array], level: str, processor: str = "max") -> dict[str, Array]:
        """Return the outputs of `execute`, which must succeed."""
        done = self.execute(inputs, level, processor)
        assert done.returncode == 0, done.stderr
        return {tensor.name: self._read(i, tensor) for i, tensor in enumerate(self.outputs)}

    def _read(self, index: int, tensor: Tensor) -> Array:
        data = (self.path.parent / f"output_{index}.bin").read_bytes()
        array: Array = np.frombuffer(data, tensor.dtype.numpy).reshape(tensor.shape)
        return array


def as_bits(array: Array) -> Array:
    """Return the elements as unsigned integers, so that NaNs can be compared, and zeros of either sign."""
    return array.view(f"u{array.itemsize}")


def assert_equal_on_arm(
    graph: Graph,
    inputs: Mapping[str, Array],
    folder: Path,
    tools: tuple[str, str],
    runs: Sequence[tuple[str, str]] = (),
) -> None:
    """Assert that each level gives the bits of the library for this machine.

    tools: a toolchain, and the ABI that it compiles for.  runs: levels and the processors for them; () for
    all that QEMU 7 computes right.
    """
    (folder / "here").mkdir()
    expected = compile_graphs(Cpu(), [graph], folder / "here")[graph.name].run(dict(inputs))
    built = BuiltForArm.from_graph(graph, folder, *tools)
    for level, processor in runs or [(name, "max") for name in name_emulated_levels(tools[1])]:
        for name, array in built.run([inputs[name] for name in graph.inputs], level, processor).items():
            differing = int((as_bits(array) != as_bits(expected[name])).sum())
            where = f"{level} on {processor}"
            assert differing == 0, f"{where}: {differing} of {array.size} elements of {name} differ"

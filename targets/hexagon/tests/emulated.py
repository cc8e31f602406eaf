"""Builds programs for the DSP, executes them in QEMU, and computes the same on this machine's CPU."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mace_core.api import Compiler
from mace_core.ir import Array, Graph, Tensor
from mace_core.levels import with_levels
from mace_core.registry import Registry
from mace_core.run.compile import program
from mace_core.testing.compiled import compile_graphs, generate_library
from mace_core.testing.requirements import require
from mace_target_cpu import Cpu
from mace_target_hexagon.isa import LEVELS
from mace_target_hexagon.packets import PacketCounter
from mace_target_hexagon.processor import Hvx

ABI = "hexagon-v66"
FLAGS = ("-O2", "-s")


def require_compiler() -> Compiler:
    """Return zig's compiler for the DSP; the test is skipped with the reason where it cannot be used."""
    registry = Registry.load()
    if "zig" not in registry.toolchains:
        require("toolchain zig is not installed: pip install mace-toolchain-zig")
    toolchain = registry.toolchains["zig"]
    require(toolchain.missing(ABI))
    runner = toolchain.runner(ABI)
    assert runner is not None
    require(runner.missing())
    return toolchain.compiler(ABI)


@dataclass(frozen=True)
class Built:
    """A program for the DSP that runs one model on files."""

    path: Path
    outputs: tuple[Tensor, ...]

    @classmethod
    def from_graph(
        cls,
        graph: Graph,
        folder: Path,
        levels: Sequence[str] = ("hvx", "plain"),
        flags: tuple[str, ...] = FLAGS,
    ) -> Built:
        """Compile a graph whose inputs are given in its order, at some levels."""
        target = with_levels(Hvx(), [level for level in LEVELS if level.name in levels])
        sources = generate_library([target], [graph], ABI)
        path = program("mace_run", sources, require_compiler(), folder, flags)
        return cls(path, tuple(graph.tensors[name] for name in graph.outputs))

    def run(
        self,
        inputs: Sequence[Array],
        level: str = "hvx",
        options: Sequence[str] = (),
        flags: Sequence[str] = (),
    ) -> dict[str, Array]:
        """Execute it in QEMU for one sample, at a level of the library.  options: of QEMU.  flags: its own."""
        folder = self.path.parent
        paths = []
        for i, array in enumerate(inputs):
            paths.append(folder / f"input_{i}.bin")
            paths[-1].write_bytes(np.ascontiguousarray(array).tobytes())
        program = [str(self.path), *flags, f"--output={folder}"]
        command = ["qemu-hexagon", *options, *program, *map(str, paths)]
        subprocess.run(command, check=True, env={**os.environ, "MACE_CPU_LEVEL": level})
        return {tensor.name: self._read(i, tensor) for i, tensor in enumerate(self.outputs)}

    def _read(self, index: int, tensor: Tensor) -> Array:
        data = (self.path.parent / f"output_{index}.bin").read_bytes()
        array: Array = np.frombuffer(data, tensor.dtype.numpy).reshape(tensor.shape)
        return array


def run_here(graph: Graph, inputs: Mapping[str, Array], folder: Path) -> dict[str, Array]:
    """Compute a graph with the CPU target's library on this machine.

    At the level that each machine has: floats may differ where another one fuses multiply and add.
    """
    folder.mkdir(exist_ok=True)
    target = with_levels(Cpu(), Cpu().levels("host")[-1:])
    return compile_graphs(target, [graph], folder)[graph.name].run(inputs)


def assert_equal(
    graph: Graph,
    inputs: Mapping[str, Array],
    folder: Path,
    levels: Sequence[str] = ("hvx",),
    flags: tuple[str, ...] = FLAGS,
) -> None:
    """Assert that the library for the DSP gives the bits of the library for this machine.

    flags: with which the former is compiled.
    """
    expected = run_here(graph, inputs, folder / "here")
    built = Built.from_graph(graph, folder, levels, flags)
    for level in levels:
        for name, array in built.run([inputs[name] for name in graph.inputs], level).items():
            # Bits, because what is no number equals nothing.
            bits = f"u{array.itemsize}"
            differing = int((array.view(bits) != expected[name].view(bits)).sum())
            assert differing == 0, f"{level}: {differing} of {array.size} elements of {name} differ"


def count_packets(graph: Graph, folder: Path, flags: tuple[str, ...] = FLAGS) -> int:
    """Return the packets that a library of vectors executes in one run of a graph."""
    sources = generate_library([Hvx()], [graph], ABI)
    path = program("mace_benchmark", sources, require_compiler(), folder, flags)
    words = ["qemu-hexagon", str(path), "--rounds=1", "--warmup=0", "--layers=0"]
    _, _, start, end = PacketCounter().count(words).readings
    return end[0] - start[0]

"""Packets of single layers in QEMU: convolutions, a dense layer and a sum of int8, as MobileNets have them.

Run: python shapes.py. It prints a line for each shape. docs/hexagon-kernels.md compares them with the packets of
other kernels.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Quant, Storage, Tensor
from mace_core.registry import Registry
from mace_core.run.compile import program
from mace_core.run.qemu_counter import PLUGIN, build_plugin
from mace_core.testing.compiled import generate_library
from mace_target_hexagon.packets import PacketCounter
from mace_target_hexagon.processor import Hvx

ABI = "hexagon-v66"
HARNESS = ("main", "calloc", "fread", "fwrite", "malloc", "free", "read", "write")
"""Functions of the program that reads samples and writes results, which are no part of a model."""


@dataclass(frozen=True)
class Shape:
    """A layer: an image, and the filters of a convolution; without filters a sum of two images."""

    height: int
    width: int
    channels: int
    filters: int = 0
    size: int = 1

    @property
    def name(self) -> str:
        """Return the layer's name, which is that of its model."""
        image = f"{self.height}x{self.width}x{self.channels}"
        return f"conv_{self.size}x{self.size}_{image}_{self.filters}" if self.filters else f"add_{image}"

    def make_graph(self) -> Graph:
        """Return the layer as a graph, with a scale for each filter."""
        builder = Builder(self.name)
        storage = Storage(DType.I8, Quant.of(0.05, 3))
        image = (1, self.height, self.width, self.channels)
        x = builder.input("x", DType.I8, image, storage.quant)
        if not self.filters:
            z = builder.reserve_output("z", Storage(DType.I8, Quant.of(0.07, -2)))
            other = builder.input("y", DType.I8, image, Quant.of(0.04, 1))
            return builder.finish(builder.add("Add", [x, other], {}, outputs=[z]))
        rng = np.random.default_rng(0)
        scales = tuple(rng.uniform(0.002, 0.02, self.filters).tolist())
        zeros = (0,) * self.filters
        shape = (self.filters, self.size, self.size, self.channels)
        w = builder.weight("w", rng.integers(-127, 128, shape).astype(np.int8), Quant(scales, zeros, 0))
        bias = rng.integers(-999, 999, self.filters).astype(np.int32)
        b = builder.weight("b", bias, Quant(tuple(s * 0.05 for s in scales), zeros, 0))
        pads = (self.size // 2,) * 2
        attrs = {"strides": (1, 1), "pads_before": pads, "pads_after": pads, "dilations": (1, 1)}
        y = builder.reserve_output("y", Storage(DType.I8, Quant.of(1.5, -7)))
        return builder.finish(builder.add("Conv", [x, w, b], attrs, outputs=[y]))


SHAPES = (
    Shape(56, 56, 24, 144),
    Shape(28, 28, 192, 32),
    Shape(14, 14, 384, 64),
    Shape(14, 14, 96, 576),
    Shape(7, 7, 960, 320),
    Shape(7, 7, 320, 1280),
    Shape(28, 28, 32, 64, 3),
    Shape(14, 14, 64, 64, 3),
    Shape(7, 7, 128, 128, 3),
    Shape(1, 1, 1024, 1000),
    Shape(8, 8, 512, 512),
    Shape(56, 56, 24),
)


def count_shapes(shapes: Sequence[Shape], folder: Path) -> list[int]:
    """Build the shapes as models of one library, and count one run of each."""
    graphs = [shape.make_graph() for shape in shapes]
    registry = Registry.load()
    toolchain = registry.find_toolchain(ABI)
    sources = generate_library([Hvx()], graphs, ABI)
    path = program("mace_run", sources, toolchain.compiler(ABI), folder, ("-O2",))
    runner = toolchain.runner(ABI)
    assert runner is not None
    build_plugin(PacketCounter.classifier, folder, registry)
    totals = []
    for graph in graphs:
        command = runner.command(path, [f"--model={graph.name}", f"--output={folder}"])
        tensors = [graph.tensors[name] for name in graph.inputs]
        one, two = (count_functions(command, tensors, samples, folder) for samples in (1, 2))
        kernels = [name for name in two if name.rpartition(".")[2] not in HARNESS]
        totals.append(sum(two[name] - one.get(name, 0) for name in kernels))
    return totals


def count_functions(
    command: Sequence[str], inputs: Sequence[Tensor], samples: int, folder: Path
) -> dict[str, int]:
    """Run a program for the DSP on random samples of bytes and return the packets of each of its functions."""
    rng = np.random.default_rng(0)
    paths = [folder / f"input_{i}.bin" for i in range(len(inputs))]
    for path, tensor in zip(paths, inputs, strict=True):
        path.write_bytes(rng.integers(0, 256, tensor.elements * samples, np.uint8).tobytes())
    emulator, *words = command
    counts = folder / "counts.txt"
    counted = [emulator, "-plugin", f"{folder / PLUGIN},out={counts}", *words, *map(str, paths)]
    subprocess.run(counted, check=True)  # noqa: S603
    lines = (line.split(" ") for line in counts.read_text(encoding="utf-8").splitlines())
    return {line[-1]: int(line[0]) for line in lines}


def main() -> int:
    """Print the packets of each shape."""
    with tempfile.TemporaryDirectory() as folder:
        for shape, packets in zip(SHAPES, count_shapes(SHAPES, Path(folder)), strict=True):
            sys.stdout.write(f"{shape.name:<32}{packets:>10} packets\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

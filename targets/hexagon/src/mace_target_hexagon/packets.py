"""Counts the packets that a model of a built library executes for one run, in QEMU.

Nothing here is a time: QEMU executes packets without the DSP's pipeline, caches and memory.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np

from mace_core.commands import BuiltModels
from mace_core.compilation import Compilation, compile_model
from mace_core.errors import MaceError
from mace_core.ir import Array, Tensor
from mace_core.registry import Registry
from mace_core.run.built_library import BuiltLibrary
from mace_core.run.operators import multiply_adds

PLUGIN = "packet_counter.so"
PRODUCTS_PER_PACKET = 2 * 128
"""A packet multiplies two registers of 128 bytes by vrmpy at most."""

KINDS = 4


@dataclass(frozen=True)
class PacketCount:
    """What a model executes for one run.

    packets: all of them.  vectors: instructions of HVX that compute.  products: those that are vrmpy.
    accesses: loads and stores of vectors.  macs: multiply-adds of its convolutions and matrix products.
    """

    model: str
    packets: int
    vectors: int
    products: int
    accesses: int
    macs: int

    @property
    def bound(self) -> int:
        """The packets that the model would need if each multiplied as much as a packet can."""
        return -(-self.macs // PRODUCTS_PER_PACKET)

    def describe(self) -> str:
        """Return the counts as a line for people."""
        share = f"{self.packets / self.macs:.4f} a multiply-add" if self.macs else "no multiply-adds"
        return (
            f"{self.model}: {self.packets} packets (counted, not timed), {share}; {self.vectors} words "
            f"of HVX, {self.products} of them vrmpy, {self.accesses} vector accesses; bound of {self.macs} "
            f"multiply-adds: {self.bound} packets"
        )


def count_models(models: BuiltModels) -> list[PacketCount]:
    """Count one run of every model of a deployment; MaceError where it is not built, or QEMU is missing."""
    parsed, choice, registry = models.open()
    runner = registry.find_runner(choice, parsed.models)
    built = BuiltLibrary.open(models.builds / parsed.library, choice.text, runner)
    counts = []
    with tempfile.TemporaryDirectory() as folder:
        build_counter(Path(folder), registry)
        for model in parsed.models:
            graph = compile_model(model, Compilation(choice, registry)).graph
            macs = sum(multiply_adds(node, graph) for node in graph.nodes)
            program = built.programs / "mace_run"
            command = built.runner.command(program, [f"--model={model.name}", f"--output={folder}"])
            tensors = built.model(model.name)["inputs"]
            one, two = (run_counted(command, tensors, samples, Path(folder)) for samples in (1, 2))
            # What opens and reads is in both, so that a run alone is what the second sample adds.
            packets, vectors, products, accesses = (
                after - before for before, after in zip(one, two, strict=True)
            )
            counts.append(PacketCount(model.name, packets, vectors, products, accesses, macs))
    return counts


def build_counter(folder: Path, registry: Registry) -> None:
    """Compile the plugin of QEMU into folder/packet_counter.so with this machine's compiler."""
    compiler = registry.select("host")[0].compiler
    with as_file(files("mace_target_hexagon") / "counter" / "packet_counter.c") as source:
        flags = ("-std=gnu11", "-O2", "-fPIC", "-fvisibility=hidden")
        command = [*compiler.cc, *compiler.flags, *compiler.shared, *flags, str(source), "-o", PLUGIN]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise MaceError(PLUGIN, done.stderr.strip()[-400:], "install a C compiler for this machine")


def run_counted(command: Sequence[str], inputs: Sequence[Tensor], samples: int, folder: Path) -> list[int]:
    """Run a program for the DSP on random samples and return its counts, as `PacketCount` orders them."""
    paths = []
    for i, tensor in enumerate(inputs):
        paths.append(folder / f"input_{i}.bin")
        paths[-1].write_bytes(np.concatenate([random_array(tensor)] * samples).tobytes())
    emulator, *program = command
    counts = folder / "counts.txt"
    counted = [emulator, "-plugin", f"{folder / PLUGIN},out={counts}", *program, *map(str, paths)]
    done = subprocess.run(counted, capture_output=True, text=True, env=os.environ, check=False)  # noqa: S603
    if done.returncode or not counts.is_file():
        remedy = "use a qemu-hexagon that supports plugins (-plugin), such as Debian's"
        raise MaceError(emulator, done.stderr.strip()[-400:] or "counted nothing", remedy)
    totals = [0] * KINDS
    for line in counts.read_text(encoding="utf-8").splitlines():
        totals = [total + int(word) for total, word in zip(totals, line.split(" ")[:KINDS], strict=True)]
    return totals


def random_array(tensor: Tensor) -> Array:
    """Return a flat random array of a tensor's elements: any bytes, floats of a normal distribution."""
    rng = np.random.default_rng(0)
    if tensor.dtype.is_float:
        return rng.standard_normal(tensor.elements).astype(tensor.dtype.numpy)
    if tensor.dtype.size > 1:
        return rng.integers(0, 8, tensor.elements).astype(tensor.dtype.numpy)
    return rng.integers(0, 256, tensor.elements).astype(np.uint8)

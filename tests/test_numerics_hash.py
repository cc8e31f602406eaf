"""The bits of a network by each rule of `numerics`, held by a hash: at every level, with any threads, on every processor."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from float_network import draw_floats, write_float_network
from numerics_network import OUTPUTS, draw_inputs, write_network
from small_project import MACE, quick_environment, run

from mace_core.ir import Array
from mace_core.numerics import Numerics
from mace_core.registry import Registry
from mace_core.testing.processor import levels_here
from mace_core.testing.requirements import require
from mace_target_cpu import Cpu

COUNT, FEW = 1000, 50
"""Inputs with one thread, and those of them with more."""

LEVELS = [str(level.name) for level in levels_here(Cpu().known_levels("host"))]
THREADS = (2, 4)


@dataclass(frozen=True)
class Network:
    """A network, and the SHA-256 of all its outputs for COUNT inputs by each rule."""

    file: str
    write: Callable[[Path], None]
    draw: Callable[[int], Array]
    outputs: Sequence[str]
    hashes: Mapping[Numerics, str]


QUANTIZED = Network(
    "net.tflite",
    write_network,
    draw_inputs,
    OUTPUTS,
    {
        Numerics.SINGLE_ROUNDING: "da0720b41f2bc8fbaa7d82c9f632e52fa523066279ada55db0d1bd36edefdf9d",
        # What LiteRT 2.3's reference kernels give.
        Numerics.FIXED_POINT: "b7f6e96005471a7ace2777c2bf742d7133181bf021b7f28cd5f68f687103d922",
    },
)
FLOATS = Network(
    "net.onnx",
    write_float_network,
    draw_floats,
    ("y", "grown"),
    {Numerics.REPRODUCIBLE: "4d6e59119faf40ba24d517eced3bc734d5613c5610b71d941b56d41594eb2b95"},
)
NETWORKS = pytest.mark.parametrize("network", [QUANTIZED, FLOATS], ids=lambda network: str(network.file))


def build(
    network: Network, folder: Path, target: str, levels: Sequence[str], environment: Mapping[str, str]
) -> None:
    """Build a library with the network once for each rule, in an environment."""
    network.write(folder / network.file)
    inputs = network.draw(COUNT)
    np.save(folder / "x.npy", inputs)
    np.save(folder / "few.npy", inputs[:FEW])
    models = "".join(
        f"  {rule.name.lower()}:\n    model_file_path: {network.file}\n    numerics: {rule.value}\n"
        f"    validation_inputs_data: x.npy\n"
        for rule in network.hashes
    )
    features = f"cpu_features: [{', '.join(levels)}]\n" if levels else ""
    (folder / "net.yml").write_text(f"library_name: bits\n{features}models:\n{models}")
    run([*MACE, "build", "net.yml", "--target", target], folder, environment)


def known_levels(abi: str) -> list[str]:
    """Return the levels of the target that computes for an ABI which QEMU's processor has and computes right.

    Versions before 9.0 leave out sums of bytes at `sme`: test_outer_products.py of targets/arm tries that level.
    """
    registry = Registry.load()
    (choice,) = registry.select(abi)
    (target,) = registry.targets_for(choice, ["cpu"])
    return [str(level.name) for level in target.known_levels(abi) if level.name != "sme"]


def check_level(network: Network, folder: Path, target: str, environment: Mapping[str, str]) -> None:
    """Assert that every rule has its bits, and the same ones with more threads."""
    for rule, expected in network.hashes.items():
        arrays = run_network(network, folder, ["--target", target, "--model", rule.name.lower()], environment)
        assert all(len(array) == COUNT for array in arrays)
        digest = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
        assert digest == expected, (target, rule)
        for threads in THREADS:
            words = ["--target", target, "--model", rule.name.lower(), "--threads", str(threads)]
            others = run_network(network, folder, [*words, "--input", "x=few.npy"], environment)
            for array, other in zip(arrays, others, strict=True):
                assert array[:FEW].tobytes() == other.tobytes(), (target, rule, threads)


def run_network(
    network: Network, folder: Path, words: Sequence[str], environment: Mapping[str, str]
) -> list[Array]:
    """Run a model of the library; return its outputs for all samples."""
    run([*MACE, "run", "net.yml", *words, "--output", "out"], folder, environment)
    return [np.load(folder / "out" / f"{name}.npy") for name in network.outputs]


@pytest.mark.exhaustive
@NETWORKS
def test_the_same_bits_at_every_level(network: Network, tmp_path: Path) -> None:
    # Optimized as users build it, because a compiler must not change the order or the rounding of sums.
    build(network, tmp_path, "host", LEVELS, os.environ)
    for level in LEVELS:
        check_level(network, tmp_path, "host", {**os.environ, "MACE_CPU_LEVEL": level})


@pytest.mark.slow
@pytest.mark.emulator
@NETWORKS
@pytest.mark.parametrize("abi", ["arm64", "armhf", "riscv64"])
def test_the_same_bits_on_other_processors(network: Network, abi: str, tmp_path: Path) -> None:
    zig = Registry.load().toolchains["zig"]
    require(zig.missing(abi))
    runner = zig.runner(abi)
    assert runner is not None
    require(runner.missing())
    # Levels that differ in products of bytes have the same kernels of floats.
    levels = known_levels(abi) if network is QUANTIZED else known_levels(abi)[-1:]
    environment = quick_environment(tmp_path)
    build(network, tmp_path, abi, levels, environment)
    for level in levels:
        check_level(network, tmp_path, abi, {**environment, "MACE_CPU_LEVEL": level})

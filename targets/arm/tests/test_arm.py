"""A small graph becomes C that compiles for every ARM ABI without a warning."""

from pathlib import Path

import pytest

from mace_core.api import Toolchain
from mace_core.deployment import Model
from mace_core.emit import code
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_core.plan import plan_calls
from mace_core.registry import Registry
from mace_core.run.compile import shared_library
from mace_core.testing.requirements import require
from mace_core.testing.toolchain import ELF_MACHINES, PROCESSORS, SHARED, elf
from mace_target_arm import Arm
from mace_target_cpu.isa import CpuLevel

RELEASE = ("-O2", "-g0", "-fvisibility=hidden")


def _small() -> Graph:
    new = Builder("small")
    x = new.input("x", DType.F32, (1, 4, 4, 3))
    y = new.one("Relu", [x])
    return new.finish([new.one("Tanh", [y])])


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.load()


def _toolchain(registry: Registry, name: str, abi: str) -> Toolchain:
    if name not in registry.toolchains:
        require(f"toolchain {name} is not installed: pip install mace-toolchain-{name}")
    toolchain = registry.toolchains[name]
    require(toolchain.missing(abi))
    return toolchain


CASES = [("zig", "arm64-v8a"), ("zig", "armeabi-v7a"), ("gnu", "arm64"), ("gnu", "armhf")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "abi"), CASES)
def test_small_graph_compiles(registry: Registry, name: str, abi: str, tmp_path: Path) -> None:
    compiler = _toolchain(registry, name, abi).compiler(abi)
    graph = _small()
    assert [Arm().refuses(node, graph) for node in graph.nodes] == [None] * len(graph.nodes)
    program = Arm().lower(graph)
    sources = code.library("small", [plan_calls(program)], Arm().levels(abi))
    library = shared_library(sources, compiler, tmp_path, RELEASE)
    assert elf(library) == (SHARED, ELF_MACHINES[PROCESSORS[abi]])
    assert b"small_model_count" in library.read_bytes()


@pytest.mark.parametrize("abi", Arm.abis)
def test_tiles_fit_the_registers(abi: str) -> None:
    registers = 16 if PROCESSORS[abi] == "arm" else 32
    for level in Arm().known_levels(abi):
        assert isinstance(level, CpuLevel)
        row = level.columns // level.lanes
        assert level.rows * row + row + 1 <= registers


def test_a_model_that_says_nothing_of_tiles_gets_none() -> None:
    target = Arm()
    assert target.configure(Model("m", ())) is target


def test_is_the_cpu_of_its_abis(registry: Registry) -> None:
    for abi in Arm.abis:
        (choice,) = registry.select(abi)
        assert [t.name for t in registry.targets_for(choice, ["cpu"])] == ["arm"]

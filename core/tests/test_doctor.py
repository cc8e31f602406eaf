"""What is said to be missing, and whether it matters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType

import pytest

from mace_core.api import BuildConfig, Compiler, Part, Refusal, Region, Runner, Target, Toolchain
from mace_core.doctor import MISSING, READY, SPARE, examine, list_missing, show_findings
from mace_core.errors import MaceError
from mace_core.ir import Graph, Node
from mace_core.registry import Registry


class Emulator(Runner):
    name = "emulator"

    def missing(self) -> str | None:
        return "emulator is not in PATH: apt-get install emulator"

    def command(self, program: Path, arguments: Sequence[str]) -> list[str]:
        return [str(program), *arguments]


class Ready(Toolchain):
    name, last, abis = "ready", True, MappingProxyType({"one": "an ABI", "two": "another"})

    def missing(self, abi: str) -> str | None:
        return None if abi == "one" else "cc-two is not in PATH: apt-get install gcc-two"

    def compiler(self, abi: str) -> Compiler:
        raise AssertionError("nothing is compiled to find out what is missing")

    def runner(self, abi: str) -> Runner:
        return Emulator()


class Absent(Ready):
    name, last, abis = "absent", False, MappingProxyType({"one": "an ABI"})

    def missing(self, abi: str) -> str | None:
        return "no kit: set KIT to one (https://example.org/kit)"


class Chip(Target):
    name, device, abis = "chip", "npu", ("two",)

    def missing(self) -> str | None:
        return "the package chipkit is not installed: pip install chipkit"

    def refuses(self, node: Node, graph: Graph) -> Refusal | None:
        return None

    def compile(self, region: Region, config: BuildConfig) -> Part:
        raise NotImplementedError


@pytest.fixture
def registry() -> Registry:
    chains = {chain.name: chain for chain in (Absent(), Ready())}
    return Registry((), {}, {}, {"chip": Chip()}, chains, {}, {})


def states(registry: Registry, target: str = "") -> dict[tuple[str, str], str]:
    return {(f.subject, f.part): f.state for f in examine(registry, target)}


def test_one_toolchain_is_enough_and_every_runner_and_target_counts(registry: Registry) -> None:
    assert states(registry) == {
        ("one", "toolchain absent"): SPARE,
        ("one", "toolchain ready"): READY,
        ("one", "runner emulator"): MISSING,
        ("two", "toolchain ready"): MISSING,
        ("chip", "target"): MISSING,
        ("transforms", "all phases"): SPARE,
    }


def test_transforms_are_advised_and_not_required(registry: Registry) -> None:
    (finding,) = (f for f in examine(registry) if f.subject == "transforms")
    assert "larger and slower" in finding.problem
    assert finding.remedy == "pip install mace-transform-standard"
    assert finding not in list_missing(examine(registry))
    assert not any(f.subject == "transforms" for f in examine(registry, "one"))
    (finding,) = (f for f in examine(Registry.load()) if f.subject == "transforms")
    assert finding.state == READY


def test_the_commands_that_install_are_told_apart_from_the_problem(registry: Registry) -> None:
    text = show_findings(examine(registry))
    assert (
        "to do: apt-get install emulator\nto do: apt-get install gcc-two\nto do: pip install chipkit\n"
        in text
    )
    assert "KIT" in text
    assert "to do: set KIT" not in text


@pytest.mark.parametrize(
    ("target", "count"),
    [("one", 1), ("two", 1), ("two+chip", 2), ("one,two", 2), ("chip", 2)],
)
def test_only_what_a_target_needs(registry: Registry, target: str, count: int) -> None:
    assert len(list_missing(examine(registry, target))) == count


def test_nothing_is_missing_and_a_name_that_is_none(registry: Registry) -> None:
    ready = [f for f in examine(registry, "one") if f.state != MISSING]
    assert show_findings(ready).endswith("nothing is missing\n")
    with pytest.raises(MaceError, match="target=on: no ABI or target 'on'; did you mean 'one'"):
        examine(registry, "on")

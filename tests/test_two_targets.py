"""Two targets of kernels in one library: refused where they do not agree about levels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mace_core.build_manifest import check_files, collect_manifests
from mace_core.deployment import load_deployment
from mace_core.errors import MaceError
from mace_core.generation import Job, generate
from mace_core.levels import Level
from mace_core.registry import Registry
from mace_target_cpu import Cpu
from mace_target_cpu.isa import VECTOR, CpuLevel

DIGITS = Path(__file__).parents[1] / "models/digits/digits.yml"


class Acme(Cpu):
    """The kernels of the CPU, as another kind of hardware."""

    name = "acme"
    device = "acme"


class OtherTiles(Acme):
    def levels(self, abi: str) -> tuple[Level, ...]:
        return (CpuLevel("wide", (), "", VECTOR, lanes=4, rows=2, columns=8),)


class OtherPanel(Acme):
    def levels(self, abi: str) -> tuple[Level, ...]:
        return tuple(replace(level, panel=32) for level in Cpu().levels(abi) if isinstance(level, CpuLevel))


def job(target: Acme, text: str = "host+acme") -> tuple[Job, Registry]:
    registry = Registry.load()
    registry = replace(registry, targets={**registry.targets, "acme": target})
    return Job(load_deployment(DIGITS), registry.select(text)[0]), registry


@pytest.mark.parametrize("target", [OtherTiles(), OtherPanel()], ids=["tiles", "panel"])
def test_targets_with_other_tiles_or_panels_are_refused_before_anything_is_read(target: Acme) -> None:
    for ask in (generate, collect_manifests):
        with pytest.raises(MaceError) as refused:
            ask(*job(target))
        text = str(refused.value)
        assert len(text.splitlines()) == 1
        assert text.startswith("target=host+acme: its targets are made for different kernels: acme and cpu state different levels")
        assert text.endswith("; let acme return the levels of cpu, or build without acme")


def test_a_runtime_of_a_model_brings_the_same_refusal() -> None:
    work, registry = job(OtherTiles(), "host")
    models = tuple(replace(m, runtimes=("acme",)) for m in work.deployment.models)
    work = replace(work, deployment=replace(work.deployment, models=models))
    with pytest.raises(MaceError, match="target=host: its targets are made for different kernels"):
        generate(work, registry)


def test_targets_that_agree_build_one_library() -> None:
    work, registry = job(Acme())
    sources = generate(work, registry).sources
    check_files(collect_manifests(work, registry), sources.files)

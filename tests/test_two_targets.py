"""Two targets of kernels in one library, each with levels, tiles and packed weights of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mace_core.api import Refusal
from mace_core.build_manifest import check_files, collect_manifests
from mace_core.deployment import load_deployment
from mace_core.emit import code
from mace_core.errors import PluginError
from mace_core.generation import generate
from mace_core.ir import Graph, Node
from mace_core.job import Job
from mace_core.levels import Level
from mace_core.registry import Registry
from mace_core.run import native
from mace_core.run.compile import shared_library
from mace_core.run.files import write_all
from mace_core.testing.compiled import host, with_quick_flags
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


class Picky(OtherTiles):
    """Takes no convolution, so that the CPU computes some nodes between its own."""

    def refuses(self, node: Node, graph: Graph) -> Refusal | None:
        return (
            Refusal("unsupported-op", "it has no convolutions")
            if node.op.name == "Conv"
            else super().refuses(node, graph)
        )


VARIANTS = [Acme(), OtherTiles(), OtherPanel(), Picky()]


@pytest.mark.slow
@pytest.mark.sampled(cases="panel")
@pytest.mark.parametrize("target", VARIANTS, ids=["same", "tiles", "panel", "picky"])
def test_each_part_calls_the_kernels_of_its_own_target(target: Acme, tmp_path: Path) -> None:
    """A library that took one target's kernels for both was off by 20 of a range of 20, without a word."""
    work, registry = job(target)
    result = generate(work, registry)
    (plan,) = (model.plan for model in result.models)
    used = {part.target for part in plan.parts}
    assert used == ({"acme", "cpu"} if isinstance(target, Picky) else {"acme"})
    both = native.load(
        shared_library(with_quick_flags(result.sources), host(), tmp_path / "both", ()), "digits"
    )["digits"]
    alone = Job(work.deployment, registry.select("host")[0])
    plain = with_quick_flags(generate(alone, registry).sources)
    cpu = native.load(shared_library(plain, host(), tmp_path / "cpu", ()), "digits")["digits"]
    assert {device.partition(":")[0] for device in both.devices()} == used
    (image,) = both.inputs
    for seed in range(3):
        inputs = {image.name: np.random.default_rng(seed).standard_normal(image.shape).astype(np.float32)}
        for name, expected in cpu.run(inputs).items():
            np.testing.assert_allclose(both.run(inputs)[name], expected, rtol=1e-4, atol=1e-4)


def test_a_runtime_of_a_model_brings_the_kernels_of_its_target() -> None:
    work, registry = job(OtherTiles(), "host")
    models = tuple(replace(m, runtimes=("acme",)) for m in work.deployment.models)
    result = generate(replace(work, deployment=replace(work.deployment, models=models)), registry)
    assert "digits_acme_kernels_wide.c" in result.sources.files
    assert {part.target for part in result.models[0].plan.parts} == {"acme"}


def test_kernels_for_other_levels_than_the_weights_are_packed_for_are_refused() -> None:
    work, registry = job(OtherPanel())
    (model,) = generate(work, registry).models
    with pytest.raises(
        PluginError,
        match=r"target 'acme': part .* was made for other levels than .*, for which its kernels are compiled",
    ):
        code.library("digits", [model.plan], Cpu().levels("host"))
    with pytest.raises(
        PluginError,
        match=r"target 'acme': part .* calls kernels of a target for which the library is not built",
    ):
        code.library("digits", [model.plan], {"cpu": Cpu().levels("host")})


def test_the_files_are_known_before_a_model_is_read(tmp_path: Path) -> None:
    work, registry = job(OtherTiles())
    sources = generate(work, registry).sources
    check_files(collect_manifests(work, registry), sources.files)
    write_all(tmp_path, sources.files)
    assert {"digits_acme_kernels.h", "digits_cpu_kernels.h", "digits_acme_kernels_wide.c"} <= {
        path.name for path in tmp_path.iterdir()
    }

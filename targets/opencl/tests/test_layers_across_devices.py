"""`mace validate --layers` over a model that the processor and a device share: it names the first wrong layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from opencl_device import require_device

from mace_core.api import Refusal
from mace_core.deployment import load_deployment
from mace_core.emit.text import Code
from mace_core.generation import generate
from mace_core.ir import Graph, Node
from mace_core.job import Job
from mace_core.levels import with_levels
from mace_core.program import Kernel
from mace_core.registry import Registry
from mace_core.run.built_library import BuiltLibrary
from mace_core.run.compile import link
from mace_core.run.layers import compare_layers
from mace_core.run.results import LayerComparison
from mace_core.run.runners import Native
from mace_core.run.tables import show_layers
from mace_core.run.validation_job import ValidationJob
from mace_core.testing.compiled import host, with_quick_flags
from mace_target_opencl import blob
from mace_target_opencl.enqueue import render_program
from mace_target_opencl.options import OpenclOptions
from mace_target_opencl.target import Opencl

pytestmark = [pytest.mark.device, pytest.mark.exhaustive]

DIGITS = Path(__file__).parents[3] / "models" / "digits" / "digits.yml"


class WithoutPooling(Opencl):
    """Leaves pooling to the processor, so that the model goes back and forth."""

    def refuses(self, node: Node, graph: Graph) -> Refusal | None:
        if node.op.name == "MaxPool":
            return Refusal("other", "the test gives it to the processor")
        return super().refuses(node, graph)


def compare(folder: Path, storage: str) -> list[LayerComparison]:
    """Build the digits for both, and compare all layers."""
    installed = Registry.load()
    cpu = with_levels(installed.targets["cpu"], installed.targets["cpu"].levels("host")[-1:])
    target = WithoutPooling(OpenclOptions(storage=storage))
    registry = replace(installed, targets={**installed.targets, "cpu": cpu, "opencl": target})
    (choice,) = registry.select("host+opencl")
    deployment = load_deployment(DIGITS)
    generated = generate(Job(deployment, choice), registry)
    assert [part.target for part in generated.report.models["digits"].parts] == ["opencl", "cpu"] * 2 + [
        "opencl"
    ]
    manifests = [m for m in generated.sources.manifests if m.joins_library or m.name == "mace_run"]
    link(with_quick_flags(replace(generated.sources, manifests=tuple(manifests))), host(), folder, ())
    built = BuiltLibrary(folder, Native(), generated.report)
    return compare_layers(ValidationJob(built, deployment.models[0], registry))


@pytest.mark.parametrize("storage", ["f32", "f16"])
def test_layers_of_both_are_compared_and_none_is_wrong(storage: str, tmp_path: Path) -> None:
    require_device()
    rows = [row for row in compare(tmp_path, storage) if row.stage == "computed"]
    assert [row.op for row in rows] == ["Conv", "MaxPool", "Conv", "MaxPool", "MatMul", "Softmax"]
    assert show_layers(rows).endswith("no layer is wrong\n")


@pytest.mark.parametrize("storage", ["f32", "f16"])
def test_the_first_wrong_layer_of_a_device_is_named(
    storage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault in the second region of the device: what is computed from its results is right."""
    require_device()

    def change(kernels: Sequence[Kernel]) -> Code:
        source = str(render_program(kernels))
        is_second = len(kernels) == 1 and len(regions) == 1
        regions.append(source)
        return Code(source.replace("acc0 += ", "acc0 -= ") if is_second else source)

    regions: list[str] = []
    monkeypatch.setattr(blob, "render_program", change)
    rows = compare(tmp_path, storage)
    wrong = [row.op for row in rows if not row.passed]
    assert wrong == ["Conv"]
    (first,) = (row for row in rows if not row.passed)
    assert (first.stage, first.target) == ("computed", tmp_path.name)
    assert show_layers(rows).endswith(f"first wrong: {first.tensor} (Conv), as computed\n")

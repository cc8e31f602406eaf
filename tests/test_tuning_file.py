"""A deployment's tuning file: read with the deployment, counted among what a build reads, heeded, and checked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from mace_core.build_steps import plan_variant
from mace_core.candidates import Candidate
from mace_core.compilation import Compilation, CompiledModel, compile_model
from mace_core.deployment import load_deployment
from mace_core.errors import MaceError
from mace_core.explain import explain, show_explanations
from mace_core.ir import Node
from mace_core.job import Job
from mace_core.json_types import JsonObject
from mace_core.levels import Level
from mace_core.lowering import Lower, Lowering
from mace_core.registry import Registry
from mace_core.report import ModelReport
from mace_core.step import BuildPlace
from mace_target_cpu import Cpu

DIGITS = Path(__file__).parents[1] / "models/digits"


def cost_of(value: float) -> Any:
    def cost(node: Node, to: Lowering, level: Level) -> float:
        return value

    return cost


class Tuned(Cpu):
    """The CPU with two candidates for Conv, which differ in nothing but their names."""

    cost_unit = "points"

    @property
    def lowerings(self) -> Mapping[str, Lower | Sequence[Candidate]]:  # type: ignore[override]
        conv = super().lowerings["Conv"]
        return {
            **super().lowerings,
            "Conv": (Candidate("direct", conv, cost_of(5)), Candidate("winograd", conv, cost_of(2))),
        }


@pytest.fixture
def registry() -> Registry:
    result = Registry.load()
    return replace(result, targets={**result.targets, "cpu": Tuned()})


def tuned(folder: Path, text: str) -> Path:
    """A deployment of the digits with a tuning file."""
    copytree(DIGITS, folder / "digits")
    deployment = folder / "digits/digits.yml"
    deployment.write_text(
        deployment.read_text().replace("    runtime: cpu\n", "    runtime: cpu\n    tuning: fast.yml\n")
    )
    (folder / "digits/fast.yml").write_text(text)
    return deployment


def compiled(deployment: Path, registry: Registry) -> CompiledModel:
    (model,) = load_deployment(deployment).models
    return compile_model(model, Compilation(registry.select("host")[0], registry))


def test_the_file_overrules_the_cost_and_the_explanation_tells_why(
    registry: Registry, tmp_path: Path
) -> None:
    plain = compiled(DIGITS / "digits.yml", registry)
    key = plain.plan.program.selections[0].key
    assert {choice.candidate for choice in plain.plan.program.selections[0].choices} == {"winograd"}
    chosen = compiled(tuned(tmp_path, f"choices:\n  - {{node: {key.node}, candidate: direct}}\n"), registry)
    first, *others = chosen.plan.program.selections
    assert {choice.candidate for choice in first.choices} == {"direct"}
    assert {choice.candidate for selection in others for choice in selection.choices} == {"winograd"}
    lines = show_explanations([explain(chosen)]).splitlines()
    told = [line for line in lines if f"{key.node} (Conv of {key.shapes}) at " in line]
    assert len(told) == len(first.choices)
    assert told[0].endswith("fast.yml:2; costs: winograd 2, direct 5 points")
    assert sum("winograd, lowest cost; costs: winograd 2, direct 5 points" in line for line in lines) == sum(
        len(s.choices) for s in others
    )
    assert (
        ModelReport.of_json(JsonObject.parse(json.dumps(chosen.report().as_json()), "report"))
        == chosen.report()
    )


def test_an_unknown_name_stops_the_build(registry: Registry, tmp_path: Path) -> None:
    text = "choices:\n  - {node: nowhere, candidate: direct}\n  - {node: elsewhere, abi: arm64, candidate: direct}\n"
    with pytest.raises(
        MaceError,
        match=r"fast.yml:2: node 'nowhere': the model has no such node with several candidates; nodes",
    ):
        compiled(tuned(tmp_path, text), registry)


def test_entries_about_other_abis_are_left_alone(registry: Registry, tmp_path: Path) -> None:
    compiled(tuned(tmp_path, "choices:\n  - {node: nowhere, abi: arm64, candidate: direct}\n"), registry)


def test_a_target_without_candidates_knows_no_node_to_choose_for(tmp_path: Path) -> None:
    deployment = tuned(tmp_path, "choices:\n  - {node: a, candidate: direct}\n")
    text = deployment.read_text()
    deployment.write_text(text.replace("    runtime: cpu\n", "    runtime: cpu\n    winograd: 0\n"))
    with pytest.raises(MaceError, match=r"fast.yml:2: node 'a': .*; nodes with several candidates: none"):
        compiled(deployment, Registry.load())


def test_a_file_that_is_not_there_is_told_with_the_line_that_names_it(tmp_path: Path) -> None:
    deployment = tuned(tmp_path, "")
    (tmp_path / "digits/fast.yml").unlink()
    with pytest.raises(
        MaceError, match=r"digits.yml:[0-9]+: tuning: no such file: .*fast.yml; correct the path"
    ):
        load_deployment(deployment)


def test_a_change_of_the_file_makes_the_library_stale(registry: Registry, tmp_path: Path) -> None:
    deployment = tuned(tmp_path, "choices: []\n")
    job = Job(load_deployment(deployment), registry.select("host")[0])
    variant = plan_variant(BuildPlace(deployment, tmp_path, "", {}), job, registry)
    readers = [step for step in variant.steps if deployment in step.inputs]
    assert readers
    assert all(tmp_path / "digits/fast.yml" in step.inputs for step in readers)

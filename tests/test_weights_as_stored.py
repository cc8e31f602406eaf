"""`weights: as-stored` of a deployment file: a smaller library that computes the same bits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_project import MACE, quick_environment, run
from stored_weights import MODELS, write_models

from mace_core.compilation import Compilation, compile_model
from mace_core.deployment import load_deployment
from mace_core.emit import code
from mace_core.errors import MaceError
from mace_core.generation import generate
from mace_core.ir import Array
from mace_core.job import Job
from mace_core.levels import Level
from mace_core.registry import Registry
from mace_core.run import native
from mace_core.run.compile import shared_library
from mace_core.testing.compiled import host
from mace_core.testing.processor import levels_here
from mace_target_cpu import Cpu

LEVELS = [level.name for level in levels_here(Cpu().levels("host"))]
WIDENING = {"half": {"widen_f16"}, "cast": {"widen_f16"}, "sparse": {"expand_sparse_f32"}}


def compiled(deployment: Path, level: Level, folder: Path) -> Mapping[str, native.LoadedModel]:
    """The deployment's models in a library for one level only."""
    registry = Registry.load()
    work = Compilation(registry.select("host")[0], registry)
    plans = [compile_model(model, work).plan for model in load_deployment(deployment).models]
    return native.load(shared_library(code.library("stored", plans, [level]), host(), folder), "stored")


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", LEVELS)
def test_the_same_bits_on_every_level(name: str, tmp_path: Path) -> None:
    level = next(i for i in Cpu().levels("host") if i.name == name)
    outputs: dict[str, dict[str, Array]] = {}
    for form in ("packed", "as-stored"):
        folder = tmp_path / form
        folder.mkdir()
        models = compiled(
            write_models(folder, form), replace(level, available="", probe=None), folder / "built"
        )
        outputs[form] = {}
        for model in MODELS:
            x = np.random.default_rng(1).standard_normal(models[model].inputs[0].shape)
            inputs = {"x": x.astype(models[model].inputs[0].dtype.numpy)}
            outputs[form][model] = models[model].run(inputs)["y"]
    for model in MODELS:
        assert outputs["packed"][model].any()
        assert outputs["packed"][model].tobytes() == outputs["as-stored"][model].tobytes(), model


def test_report_of_sizes(tmp_path: Path) -> None:
    registry = Registry.load()
    reports = {}
    for form in ("packed", "as-stored"):
        deployment = load_deployment(write_models(tmp_path, form))
        reports[form] = generate(Job(deployment, registry.select("host")[0]), registry).report.as_json()[
            "models"
        ]
    for model in MODELS:
        packed, stored = (reports[form][model] for form in reports)
        figures = stored["weights_as_stored"]
        assert "weights_as_stored" not in packed
        assert figures["weights"] == 2
        saved = figures["packed_bytes"] - figures["stored_bytes"]
        assert saved > 0.45 * figures["packed_bytes"]
        assert abs(packed["weight_bytes"] - stored["weight_bytes"] - saved) < 64 * 6
        assert stored["arena_bytes"] <= packed["arena_bytes"] + figures["widened_bytes"]
        kernels = [layer["kernel"] for layer in stored["layers"]]
        assert WIDENING[model] == {k for k in kernels if k.startswith(("widen", "expand"))}


@pytest.mark.exhaustive
def test_through_the_command_line(tmp_path: Path) -> None:
    write_models(tmp_path, "as-stored")
    environment = quick_environment(tmp_path)
    log = run([*MACE, "build", "stored.yml"], tmp_path, environment)
    for model in MODELS:
        assert f"{model}: 2 weights as stored: " in log
    run([*MACE, "validate", "stored.yml"], tmp_path, environment)
    explained = json.loads(run([*MACE, "explain", "stored.yml", "--json"], tmp_path, environment))
    assert "widen_f16" in {layer["kernel"] for layer in explained[0]["layers"]}


def test_a_target_without_kernels_for_it_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry.load()
    choice = registry.select("host")[0]
    deployment = load_deployment(write_models(tmp_path, "as-stored"))
    for target in registry.targets.values():
        monkeypatch.setattr(type(target), "widening_kernels", lambda _: None, raising=False)
    with pytest.raises(
        MaceError,
        match=r"model 'half': weights: as-stored: target 'cpu' has no kernels that widen weights; leave",
    ):
        generate(Job(deployment, choice), registry)


def test_a_target_of_projects_refuses(tmp_path: Path) -> None:
    registry = Registry.load()
    choice = next(c for name in ("max78000",) for c in registry.select(name))
    with pytest.raises(
        MaceError, match="weights: as-stored: target 'max78000' has no kernels that widen weights"
    ):
        generate(Job(load_deployment(write_models(tmp_path, "as-stored")), choice), registry)

"""Targets that make programs: layout, manifest and files agree, and what cannot be built is told before anything is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mace_core.api import BuildConfig, PartFigures, Product, Region, Runner
from mace_core.build_steps import plan_variant
from mace_core.deployment import Model, load_deployment
from mace_core.errors import MaceError
from mace_core.generation import generate
from mace_core.ir import Graph
from mace_core.job import Job
from mace_core.project_target import Layout, Project, ProjectTarget
from mace_core.registry import Registry
from mace_core.run.runners import Native
from mace_core.step import BuildPlace

DIGITS = Path(__file__).parents[2] / "models/digits/digits.yml"


class Simulator(Native):
    """Executes what the board would."""

    name = "simulator"


class Board(ProjectTarget):
    """Writes a program that knows how many nodes the model has."""

    name = "board"
    device = "board"
    refusal = ""

    def layout(self, model: Model) -> Layout:
        return Layout(
            ("main.c", "app.h", "link.ld"), ("main.c",), ("app.h",), (".", "inc"), "link.ld", self.refusal
        )

    def emit(self, graph: Graph, config: BuildConfig) -> Project:
        text = f"/* {len(graph.nodes)} nodes of {config.model.name} for {config.target} */\n"
        tensors = tuple(graph.tensors[name] for name in graph.outputs)
        figures = PartFigures(inputs=(), outputs=tensors, layers=tensors, data_bytes=1, weight_bytes=1)
        return Project({"main.c": text, "app.h": "", "link.ld": ""}, figures, ("a note",))

    def runner(self) -> Runner:
        return Simulator()


class Unbuildable(Board):
    refusal = "needs two cores; use make"


def job(target: Board) -> tuple[Job, Registry]:
    registry = Registry.load()
    registry = replace(
        registry,
        targets={**registry.targets, "board": target},
        owners={**registry.owners, ("targets", "board"): registry.owner("targets", "cpu")},
    )
    return Job(load_deployment(DIGITS), registry.select("host+board")[0]), registry


def test_a_model_is_compiled_whole_and_its_files_are_those_of_the_manifest() -> None:
    work, registry = job(Board())
    result = generate(work, registry)
    assert sorted(result.sources.files) == ["digits/app.h", "digits/link.ld", "digits/main.c"]
    (model,) = result.models
    assert (
        str(result.sources.files["digits/main.c"])
        == f"/* {len(model.graph.nodes)} nodes of digits for host+board */\n"
    )
    assert "a note" in model.notes
    (manifest,) = result.sources.manifests
    assert manifest.product is Product.PROGRAM
    assert manifest.holds == ("digits",)
    assert manifest.includes == ("digits", "digits/inc")


def test_its_runner_executes_the_choice() -> None:
    work, _ = job(Board())
    assert isinstance(work.choice.runner, Simulator)
    plain = Registry.load().select("host")[0]
    assert plain.runner is not None
    assert plain.runner.name == "native"


def test_its_runner_executes_models_that_name_it_with_runtime() -> None:
    """`target=host` and `runtime: board` is the board as well as `target=host+board`."""
    work, registry = job(Board())
    host = registry.select("host")[0]
    plain, named = (
        replace(work.deployment.models[0], name=n, runtimes=r) for n, r in (("a", ()), ("b", ("board",)))
    )
    assert isinstance(registry.find_runner(host, [named]), Simulator)
    assert isinstance(registry.find_runner(work.choice, [plain, named]), Simulator)
    actual = registry.find_runner(host, [plain])
    assert actual is not None
    assert actual.name == "native"
    with pytest.raises(
        MaceError, match=r"different runners: a by native; b by simulator; choose one with --model"
    ):
        registry.find_runner(host, [plain, named])


def test_what_cannot_be_built_can_be_written(tmp_path: Path) -> None:
    work, registry = job(Unbuildable())
    assert "digits/main.c" in generate(work, registry).sources.files
    with pytest.raises(MaceError, match=r"digits\.elf: needs two cores; use make"):
        plan_variant(BuildPlace(DIGITS, tmp_path, "shown", {}), work, registry)


def test_a_file_that_the_layout_does_not_name_is_a_fault_of_the_target() -> None:
    class Other(Board):
        def emit(self, graph: Graph, config: BuildConfig) -> Project:
            result = super().emit(graph, config)
            return replace(result, files={**result.files, "more.c": ""})

    with pytest.raises(MaceError, match=r"names no digits/more\.c"):
        generate(*job(Other()))


def test_the_part_keeps_nodes_and_ports() -> None:
    work, registry = job(Board())
    (model,) = generate(work, registry).models
    (part,) = model.plan.parts
    assert part.nodes == tuple(node.name for node in model.graph.nodes)
    assert [port.tensor.name for port in part.inputs] == list(model.graph.inputs)
    assert part.name == Region(Board(), model.graph).name

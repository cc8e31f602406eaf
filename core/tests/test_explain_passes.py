"""`mace explain --passes` tells the order of the transforms and the reason for each place in it."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pytest
from click.testing import CliRunner

from mace_core.api import Repeat, Transform
from mace_core.cli import main
from mace_core.explain_passes import passes_as_json, show_passes
from mace_core.ir import Graph
from mace_core.plugin_loader import Plugin
from mace_core.registry import Registry
from mace_core.transforms import PHASES

ACME = Plugin("transform-acme", "mace_transform_acme", "mace-transform-acme", "1.2")


def keep(graph: Graph) -> Graph:
    """Keep every node.

    What stands below the first line is not shown.
    """
    return graph


@pytest.fixture
def registry() -> Registry:
    transforms = {
        "a": Transform(
            "a", keep, "fold", after={"b": "b makes what a reads"}, before={"elsewhere": "elsewhere hides it"}
        ),
        "b": Transform("b", keep, "fold", repeats=(Repeat("cleanup", "a leaves some"),)),
    }
    owners = {("transforms", name): ACME for name in transforms}
    tables: dict[str, Any] = dict.fromkeys(
        ("frontends", "targets", "toolchains", "ops"), MappingProxyType({})
    )
    return Registry((ACME,), transforms=transforms, owners=owners, **tables)


def test_text_tells_phase_distribution_and_every_reason(registry: Registry) -> None:
    lines = [line.strip() for line in show_passes(registry).splitlines()]
    fold = lines[lines.index("phase fold") : lines.index("phase combine")]
    assert fold[3].startswith("2 rounds: a factor behind an addend")
    assert [" ".join(line.split()) for line in fold[4:-1]] == [
        "b mace-transform-acme 1.2",
        "Keep every node.",
        "a mace-transform-acme 1.2",
        "Keep every node.",
        "after b: b makes what a reads",
        "before elsewhere (not installed): elsewhere hides it",
    ]
    assert "repeated here: a leaves some" in lines[lines.index("phase cleanup") :]
    assert lines[lines.index("phase fuse") + 3] == "no transform is installed for it"


def test_json_tells_the_same(registry: Registry) -> None:
    told: Any = passes_as_json(registry)
    assert [phase["name"] for phase in told["phases"]] == [phase.name for phase in PHASES]
    (fold,) = (phase for phase in told["phases"] if phase["name"] == "fold")
    assert fold["rounds"] == 2
    assert fold["passes"] == [
        {
            "transform": "b",
            "does": "Keep every node.",
            "distribution": "mace-transform-acme",
            "version": "1.2",
            "because": "",
            "after": [],
            "before": [],
        },
        {
            "transform": "a",
            "does": "Keep every node.",
            "distribution": "mace-transform-acme",
            "version": "1.2",
            "because": "",
            "after": [{"transform": "b", "because": "b makes what a reads", "installed": True}],
            "before": [{"transform": "elsewhere", "because": "elsewhere hides it", "installed": False}],
        },
    ]
    assert told["phases"][-1]["passes"][0]["because"] == "a leaves some"


def test_the_command_needs_no_deployment_file() -> None:
    told = CliRunner().invoke(main, ["explain", "--passes"])
    assert told.exit_code == 0, told.output
    assert "phase layout" in told.output
    as_json = CliRunner().invoke(main, ["explain", "--passes", "--json"])
    assert {phase["name"] for phase in json.loads(as_json.output)["phases"]} == {
        phase.name for phase in PHASES
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["explain"], "Missing argument 'DEPLOYMENT'; only --passes works without it."),
        (["explain", "net.yml", "--passes"], "--passes takes no deployment file"),
    ],
)
def test_a_file_is_for_everything_else(arguments: list[str], said: str) -> None:
    told = CliRunner().invoke(main, arguments)
    assert told.exit_code == 2
    assert said in told.output

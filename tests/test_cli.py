"""The `mace` command on the shipped example."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from command_line import mace

pytestmark = (
    pytest.mark.exhaustive
)  # core/tests/test_commands.py tries each command beside a stand-in for a library

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits deployment, built."""
    folder = tmp_path_factory.mktemp("cli") / "digits"
    shutil.copytree(ROOT / "models/digits", folder)
    mace(folder, "build", "digits.yml")
    return folder


@pytest.mark.slow
def test_run_writes_each_output(project: Path) -> None:
    shown = mace(
        project, "run", "digits.yml", "--output", "out", "--input", "image=test_inputs.npy", "--threads", "2"
    )
    assert "computed by cpu: " in shown
    actual, expected = np.load(project / "out/probabilities.npy"), np.load(project / "test_outputs.npy")
    np.testing.assert_allclose(actual, expected, atol=1e-5)


@pytest.mark.slow
def test_validate_compares_with_stored_outputs_and_with_the_framework(project: Path) -> None:
    (row,) = json.loads(mace(project, "validate", "digits.yml", "--json"))
    assert row["passed"]
    assert row["cosine"] > 0.9999
    text = (project / "digits.yml").read_text().replace("validation_outputs_data: test_outputs.npy", "")
    (project / "framework.yml").write_text(text)
    (row,) = json.loads(mace(project, "validate", "framework.yml", "--json"))
    assert row["passed"]


@pytest.mark.slow
def test_validate_compares_layer_by_layer(project: Path) -> None:
    rows = json.loads(mace(project, "validate", "digits.yml", "--layers", "--json"))
    assert {row["stage"] for row in rows} == {"read", "computed"}
    assert all(row["passed"] for row in rows)
    assert "no layer is wrong" in mace(project, "validate", "digits.yml", "--layers")


def test_validate_compares_the_layers_that_the_file_names(project: Path) -> None:
    rows = json.loads(mace(project, "validate", "digits.yml", "--layers", "--json"))
    tensor = rows[0]["tensor"]
    for name, status in ((tensor, 0), ("elsewhere", 2)):
        text = (
            (project / "digits.yml")
            .read_text()
            .replace("subgraphs:\n      - ", f"subgraphs:\n      - check_tensors: {name}\n        ")
        )
        (project / "named.yml").write_text(text)
        told = mace(project, "validate", "named.yml", "--layers", "--json", status=status)
        if status == 0:
            assert {row["tensor"] for row in json.loads(told)} == {tensor}
        else:
            assert "check_tensors: elsewhere: no tensor of the built model" in told


def test_benchmark_times_layers_and_the_framework(project: Path) -> None:
    (row,) = json.loads(mace(project, "benchmark", "digits.yml", "--json", "--layers", "--rounds", "3"))
    assert len(row["ns"]) == 3
    assert {"conv_f32", "matmul_f32"} <= {layer["kernel"] for layer in row["layers"]}
    assert all(layer["ns"] > 0 for layer in row["layers"])
    (row,) = json.loads(
        mace(project, "benchmark", "digits.yml", "--json", "--against-framework", "--rounds", "3")
    )
    assert len(row["framework_ns"]) == 3
    calls = json.loads(mace(project, "benchmark", "digits.yml", "--json", "--op", "--rounds", "3"))
    assert [call["macs"] for call in calls if call["kernel"] == "matmul_f32"] == [128 * 10]
    assert all(call["ns"] > 0 and call["bytes"] > 0 and call["bound_ns"] > 0 for call in calls)
    assert all(call["peak_macs"] > 0.1 for call in calls)


@pytest.mark.slow
def test_explain_tells_kernels_sources_and_memory(project: Path) -> None:
    (model,) = json.loads(mace(project, "explain", "digits.yml", "--json"))
    assert model["arena_bytes"] == model["arena_lower_bound"]
    assert {s for c in model["layers"] for s in c["sources"]} >= {"conv1", "relu1", "dense"}
    assert "conv1" in mace(project, "explain", "digits.yml")


@pytest.mark.slow
def test_check_writes_nothing(project: Path, tmp_path: Path) -> None:
    copy = tmp_path / "digits"
    shutil.copytree(project, copy, ignore=shutil.ignore_patterns("builds", "out"))
    before = sorted(copy.iterdir())
    assert "ready for target=host" in mace(copy, "check", "digits.yml")
    assert sorted(copy.iterdir()) == before


@pytest.mark.slow
@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("check", "gone.yml"), "mace: gone.yml: cannot be read"),
        (
            ("run", "digits.yml", "--output", "o", "--model", "dogits"),
            "--model dogits: no such model; models in this deployment: digits",
        ),
        (
            ("run", "digits.yml", "--output", "o", "--input", "image"),
            "--input: 'image' is not of the form NAME=FILE",
        ),
        (
            ("run", "digits.yml", "--output", "o", "--reset", "3"),
            "--reset: model 'digits' keeps no states; leave it out",
        ),
        (
            ("run", "digits.yml", "--output", "o", "--input", "image=gone.npy"),
            "gone.npy: cannot be read as an array",
        ),
        (
            ("run", "digits.yml", "--output", "o", "--builds", "nowhere"),
            "is not built for host; run: scons target=host",
        ),
        (("explain", "digits.yml", "--target", "host+abacus"), "no target 'abacus'; choose one of "),
    ],
)
def test_mistakes_get_one_message(project: Path, arguments: tuple[str, ...], said: str) -> None:
    assert said in mace(project, *arguments, status=2)


@pytest.mark.slow
def test_the_schema_is_json(project: Path) -> None:
    assert json.loads(mace(project, "schema"))["$schema"].startswith("https://json-schema.org")


@pytest.mark.slow
def test_check_without_fallback_as_json(project: Path) -> None:
    """Every node has the target that the deployment names, so nothing is refused.

    core/tests/test_compilation.py refuses some.
    """
    findings = json.loads(mace(project, "check", "digits.yml", "--no-fallback", "--json"))
    assert {finding["kind"] for finding in findings} == {"computable", "ready"}
    assert findings[0]["nodes"].keys() == {"cpu"}

"""The proof plugins, the plugins that `mace new` writes, and the tutorial, in a clean environment with nothing but wheels."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from proof_plugins import (
    INNER,
    NAMES,
    PLUGINS,
    ROWS,
    build_capsule_runtime,
    network_input,
    target,
    write_network,
)
from test_installed import ROOT, Environment, run, wheels

from mace_core.deployment import load_deployment
from mace_core.pipeline import load
from mace_core.registry import Registry
from mace_core.run.reference import execute
from mace_core.scaffold import HARDWARE
from mace_core.testing.compiled import host
from mace_core.testing.requirements import require

__all__ = ["wheels"]  # a fixture

pytestmark = [pytest.mark.slow, pytest.mark.wheels]


@pytest.fixture(scope="module")
def proof(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Environment:
    """What users of four strangers' targets install: `pip install mace-build mace-target-island ...`."""
    folder = tmp_path_factory.mktemp("proof")
    strangers = folder / "wheels"
    shutil.copytree(wheels, strangers)
    for name in NAMES:
        run(
            "uv",
            "build",
            "-q",
            "--wheel",
            "--out-dir",
            str(strangers),
            str(PLUGINS / f"mace-target-{name}"),
            folder=folder,
        )
    environment = Environment(folder / "venv", strangers)
    environment.install(
        "mace-build", "mace-toolchain-gnu", "mace-core[testing]", *(f"mace-target-{name}" for name in NAMES)
    )
    return environment


@pytest.fixture
def product(tmp_path: Path) -> Path:
    """A user's folder: the network, and data that it is validated with."""
    deployment = write_network(tmp_path)
    (model,) = load_deployment(deployment).models
    x = network_input()
    results = execute(load(model, Registry.load()), {"x": x})
    np.save(tmp_path / "x.npy", x)
    for name in ("y", "r"):
        np.save(tmp_path / f"{name}.npy", results[name])
    data = "        validation_inputs_data: x.npy\n        validation_outputs_data: [y.npy, r.npy]\n"
    ports = (
        f"      - input_tensors: x\n        input_shapes: {ROWS},{INNER[0]}\n        output_tensors: [y, r]\n"
    )
    deployment.write_text(deployment.read_text() + "    subgraphs:\n" + ports + data)
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_a_strangers_target_builds_validates_and_explains(
    name: str, proof: Environment, product: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "remote":
        require(target("remote").missing())
    monkeypatch.setenv("LD_LIBRARY_PATH", str(build_capsule_runtime(product / "vendor", host())))
    choice = f"host+{name}"
    proof.run("mace", "build", "relay.yml", "--target", choice, folder=product)
    (row,) = json.loads(
        proof.run("mace", "validate", "relay.yml", "--target", choice, "--json", folder=product)
    )
    assert row["passed"]
    text = proof.run("mace", "explain", "relay.yml", "--target", choice, folder=product)
    assert f"not on {name}: " in text
    assert "[unsupported-op]" in text
    assert ("copy " in text) == (name == "island")
    assert len(re.findall(rf"^\s*{name}\d", text, re.MULTILINE)) >= 3


@pytest.mark.parametrize("name", NAMES)
def test_a_strangers_target_keeps_the_contract(
    name: str, proof: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "remote":
        require(target("remote").missing())
    monkeypatch.setenv("LD_LIBRARY_PATH", str(build_capsule_runtime(tmp_path / "vendor", host())))
    tests = shutil.copytree(PLUGINS / f"mace-target-{name}" / "tests", tmp_path / "tests")
    text = proof.run("pytest", "-q", "-p", "no:cacheprovider", str(tests), folder=tmp_path)
    assert " passed" in text
    assert "skipped" not in text


@pytest.mark.parametrize("hardware", HARDWARE)
def test_a_new_target_installs_and_keeps_its_contract(
    hardware: str, proof: Environment, tmp_path: Path
) -> None:
    proof.run("mace", "new", "target", f"fresh-{hardware}", "--kind", hardware, folder=tmp_path)
    folder = tmp_path / f"mace-target-fresh-{hardware}"
    proof.install(str(folder))
    listed = {
        p["distribution"]: p for p in json.loads(proof.run("mace", "plugins", "--json", folder=tmp_path))
    }
    assert not listed[folder.name]["broken"]
    assert " passed" in proof.run("pytest", "-q", "-p", "no:cacheprovider", folder=folder)


def test_the_commands_of_the_tutorials_make_wheels(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From `mace new` to a wheel, as the pages say it, in a shell."""
    environment = Environment(tmp_path / "venv", wheels)
    environment.install("mace-build", "pip", "hatchling")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setenv("PATH", f"{environment.folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    for page, name in (("target", "acme"), ("processor", "acme-core")):
        text = (ROOT / f"docs/tutorial-{page}.md").read_text(encoding="utf-8")
        (script,) = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        said = run("bash", "-euc", script, folder=tmp_path)
        assert " passed" in said
        assert f"target-{name}" in said
        wheel = f"mace_target_{name.replace('-', '_')}-0.1.0-*.whl"
        assert list((tmp_path / f"mace-target-{name}/dist").glob(wheel))

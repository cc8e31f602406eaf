"""What a build depends on: every installed transform may take part, so each counts."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from mace_core.api import Transform
from mace_core.deployment import Deployment, Model
from mace_core.fingerprint import digest, fingerprint
from mace_core.job import Job
from mace_core.plugin_loader import Plugin
from mace_core.registry import Registry


def test_a_transform_that_is_installed_makes_another_build() -> None:
    registry = Registry.load()
    job = Job(Deployment("net", (Model("net", (Path("net.onnx"),)),)), registry.select("host")[0])
    before = fingerprint(job, registry)
    assert "mace-transform-standard 0.1.0 " in before
    # `graphlib` is a module of the standard library that stands for a stranger's package.
    stranger = Plugin("transform-acme", "graphlib", "mace-transform-acme", "1.2")
    transforms = {**registry.transforms, "acme": Transform("acme", lambda graph: graph, "fuse")}
    owners = {**registry.owners, ("transforms", "acme"): stranger}
    after = fingerprint(job, replace(registry, transforms=transforms, owners=owners))
    (more,) = {*after.splitlines()} - {*before.splitlines()}
    assert more.startswith("mace-transform-acme 1.2 ")


def test_the_lines_of_a_build() -> None:
    """Core first, then each plugin that takes part once, packages that a target is a variant of, and the choice."""
    registry = Registry.load()
    model = Model("net", (Path("net.onnx"),))
    job = Job(Deployment("net", (model, replace(model, name="other"))), registry.select("host")[0])
    first, *lines, choice = fingerprint(job, registry).splitlines()
    assert first == f"mace-core {version('mace-core')} {digest('mace_core')}"
    assert choice == f"target={job.choice.text} strict=False"
    assert lines == sorted(set(lines))
    named = {line.rpartition(" ")[0]: line.rpartition(" ")[2] for line in lines}
    for name, module in (
        ("mace-frontend-onnx 0.1.0", "mace_frontend_onnx"),
        ("mace-target-cpu 0.1.0", "mace_target_cpu"),
        ("mace-transform-standard 0.1.0", "mace_transform_standard"),
        ("mace_target_cpu", "mace_target_cpu"),
    ):
        assert named[name] == digest(module)
    assert not any("caffe" in line or line.startswith("mace_core") for line in lines)


def test_a_digest_covers_the_sources_of_a_package_and_no_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)

    def digest_of(name: str, files: dict[str, str]) -> str:
        for path, text in {"__init__.py": "", **files}.items():
            file = tmp_path / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return digest(name)

    files = {"a.py": "1", "sub/b.py": "2"}
    base = digest_of("base", files)
    for number, more in enumerate(({}, {"notes.txt": "3"}, {"__pycache__/c.py": "3"})):
        assert digest_of(f"same{number}", {**files, **more}) == base, more
    others = ({"a.py": "2"}, {"sub/b.py": "3"}, {"sub/c.h": ""}, {"c.c.in": "3"}, {"t.json": "3"})
    for number, more in enumerate(others):
        assert digest_of(f"other{number}", {**files, **more}) != base, more
    assert digest_of("renamed", {"c.py": "1", "sub/b.py": "2"}) != base


def test_a_digest_is_sixteen_hexadecimal_digits_of_the_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in (("acme_first", "x = 1\n"), ("acme_again", "x = 1\n"), ("acme_other", "x = 2\n")):
        (tmp_path / f"{name}.py").write_text(text)
    first, again, other = (digest(f"acme_{name}") for name in ("first", "again", "other"))
    assert re.fullmatch("[0-9a-f]{16}", first)
    assert first == again != other

"""What a build depends on: every installed transform may take part, so each counts."""

from __future__ import annotations

import re
from dataclasses import replace
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


def test_a_digest_is_sixteen_hexadecimal_digits_of_the_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in (("acme_first", "x = 1\n"), ("acme_again", "x = 1\n"), ("acme_other", "x = 2\n")):
        (tmp_path / f"{name}.py").write_text(text)
    first, again, other = (digest(f"acme_{name}") for name in ("first", "again", "other"))
    assert re.fullmatch("[0-9a-f]{16}", first)
    assert first == again != other

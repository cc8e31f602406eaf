"""What a build depends on: every installed transform may take part, so each counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mace_core.api import Transform
from mace_core.deployment import Deployment, Model
from mace_core.fingerprint import fingerprint
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

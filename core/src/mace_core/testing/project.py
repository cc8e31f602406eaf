"""The contract of targets that make projects, as tests that run for each one."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from mace_core.api import BuildConfig, Product, Region
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_core.ops import core_ops
from mace_core.project_target import Project, ProjectTarget
from mace_core.registry import Registry
from mace_core.run.files import write_all
from mace_core.testing import hostile
from mace_core.testing.plugin import PluginContract


class ProjectContract(PluginContract):
    """Tests of a target that makes projects: derive a class and set `target`."""

    kind = "target"
    target: ClassVar[ProjectTarget]

    @property
    def name(self) -> str:
        """The target's name."""
        return self.target.name

    def test_states_itself(self) -> None:
        assert self.target.device
        assert self.target.abis
        assert not any(fnmatchcase("host", pattern) for pattern in self.target.abis), (
            "a project is not for this machine"
        )
        assert self.target.missing() is None or str(self.target.missing()).strip()

    def test_manifest_is_what_is_written(self) -> None:
        """The build knows every file before the model is read, and the program contains the model."""
        (manifest,) = self.target.manifests("library", [self.model()], self.target.abis[0])
        part = self.target.compile(Region(self.target, self.network()), self.config())
        written = self.target.write("library", {self.model().name: [part]})
        assert sorted(manifest.generated) == sorted(written)
        assert manifest.holds == (self.model().name,)
        assert manifest.product is Product.PROGRAM
        assert manifest.units

    def test_reports_its_figures(self) -> None:
        figures, network = self.make_project().figures, self.network()
        assert figures.inputs
        assert figures.outputs
        assert figures.layers
        assert figures.data_bytes > 0
        assert figures.weight_bytes > 0 or not network.weights

    def test_projects_are_the_same_twice(self, tmp_path: Path) -> None:
        first, second = self.make_project(), self.make_project()
        assert first.files == second.files
        assert first.figures == second.figures
        assert first.notes == second.notes
        for name, content in first.files.items():
            text = content if isinstance(content, str) else bytes(content).decode("latin-1")
            assert str(Path.home()) not in text, name
            assert str(tmp_path.parent) not in text, name

    def test_refuses_with_the_name_of_the_layer(self) -> None:
        """An op that no accelerator has ends in one MaceError that names the node."""
        with pytest.raises(MaceError, match="strange"):
            self.target.emit(strange(), self.config())

    def test_unknown_options_are_named(self) -> None:
        model = replace(self.model(), keys={"target_options": {self.target.name: {"no-such-option": 1}}})
        with pytest.raises(MaceError, match="no-such-option"):
            self.target.emit(self.network(), self.config(model))

    def test_hostile_names_stay_names(self, tmp_path: Path) -> None:
        """No part of a name in a model becomes code, and the project compiles without a warning.

        It is compiled only where a compiler for it is installed.
        """
        project = self.target.emit(self.hostile_network(), self.config())
        assert hostile.escapes(project.files) == []
        assert any(hostile.MARK in str(content) for content in project.files.values()), (
            "no file has any of the names, so the test tests nothing"
        )
        try:
            compiler = Registry.load().select(self.target.name)[0].compiler
        except MaceError as missing:
            pytest.skip(str(missing))
        layout = self.target.layout(self.model())
        write_all(tmp_path, project.files)
        flags = [
            "-std=c99",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-O0",
            *(f"-I{folder}" for folder in layout.includes),
        ]
        # Objects are written to nowhere. -fsyntax-only would be faster, but zig warns of its own arguments
        # then.
        for source in layout.sources:
            command = [*compiler.cc, *compiler.flags, *flags, "-c", source, "-o", os.devnull]
            subprocess.run(command, cwd=tmp_path, check=True)  # the toolchain's

    def make_project(self) -> Project:
        """Return the project of a small network."""
        return self.target.emit(self.network(), self.config())

    def network(self) -> Graph:
        """Return a network that the target computes; override it for a target without convolutions."""
        return small()

    def hostile_network(self) -> Graph:
        """Return a network with hostile names that the target computes."""
        return hostile.chain()

    def config(self, model: Model | None = None) -> BuildConfig:
        """Return the configuration of a build for the target."""
        return BuildConfig(self.target.abis[0], self.target.name, model or self.model())

    def model(self) -> Model:
        """Return the deployment's entry of the small network."""
        return Model("small", ())


def small() -> Graph:
    """Return a network of a convolution with ReLU over 8 x 8 x 3, and a linear layer."""
    rng = np.random.default_rng(0)
    builder = Builder("small")
    x = builder.input("x", DType.F32, (1, 8, 8, 3))
    w = builder.weight("w", rng.normal(0, 0.2, (4, 3, 3, 3)).astype(np.float32))
    windows = {"strides": (1, 1), "pads_before": (1, 1), "pads_after": (1, 1), "dilations": (1, 1)}
    y = builder.one("Conv", [x, w], {**windows, "low": 0.0})
    flat = builder.one("Reshape", [y], {"shape": (1, 256)})
    m = builder.weight("m", rng.normal(0, 0.1, (256, 5)).astype(np.float32))
    return builder.finish([builder.one("MatMul", [flat, m])], ["y"])


def strange() -> Graph:
    """Return a network with a node that no accelerator computes, named "strange"."""
    builder = Builder("strange")
    x = builder.input("x", DType.F32, (1, 8, 8, 3))
    sines = builder.one(core_ops()["Sin"], [x], outputs=["strange"])
    return builder.finish([builder.one("Relu", [sines])], ["y"])

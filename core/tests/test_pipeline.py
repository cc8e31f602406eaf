"""From a deployment file to a graph: files that are missing, keys that a frontend lacks, axes that no library describes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from mace_core.api import Frontend
from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import MAX_RANK, Array, DType, Graph
from mace_core.pipeline import load, load_with, own_names, read
from mace_core.registry import Registry


class Acme(Frontend):
    """Gives y = h + x of a rank, and start values of h."""

    name: ClassVar[str] = "acme"
    suffixes: ClassVar[tuple[str, ...]] = (".acme",)
    order: ClassVar[str] = "NCHW"

    def __init__(self, rank: int = 4, fixes: bool = False) -> None:
        self.rank, self.fixes_inputs = rank, fixes  # type: ignore[misc]  # an instance stands for a class here
        self.shapes: list[object] = []

    def load(self, files: tuple[Path, ...], model: Model, ops: Mapping[str, Any]) -> Graph:
        self.shapes.append([port.shape for port in model.inputs])
        new = Builder("g")
        names = [new.input(name, DType.F32, (1,) * self.rank) for name in ("x", "h")]
        graph = new.finish([new.one("Add", names, outputs=["y"])])
        return replace(graph, notes=("a note",), origin="a file")

    def starts(self, files: tuple[Path, ...], model: Model) -> Mapping[str, Array]:
        return {"h": np.full((1,) * self.rank, 7, np.float32)}

    def port_names(self, files: tuple[Path, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return ("x", "h"), ("y",)


@pytest.fixture(scope="module")
def installed() -> Registry:
    return Registry.load()


def setting(tmp_path: Path, installed: Registry, acme: Acme, **keys: Any) -> tuple[Model, Registry]:
    (tmp_path / "m.acme").touch()
    model = Model("m", (tmp_path / "m.acme",), keys=keys)
    return model, replace(installed, frontends={"acme": acme})


def test_a_graph_has_the_name_of_the_model_and_keeps_notes(tmp_path: Path, installed: Registry) -> None:
    model, registry = setting(tmp_path, installed, Acme())
    graph = load(model, registry)
    assert (graph.name, graph.notes, graph.origin, graph.inputs) == ("m", ("a note",), "a file", ("x", "h"))


def test_a_file_that_is_missing_is_told(tmp_path: Path, installed: Registry) -> None:
    model, registry = setting(tmp_path, installed, Acme())
    missing = replace(model, files=(*model.files, tmp_path / "w.bin"))
    with pytest.raises(
        MaceError, match=r"w\.bin: no such file; correct the path of model 'm' in the deployment file"
    ):
        load(missing, registry)
    assert own_names(missing, registry) is None
    assert own_names(model, registry) == (("x", "h"), ("y",))


@pytest.mark.parametrize(
    ("values", "fixes", "refused"), [({"h": 1}, False, True), ({"h": 1}, True, False), ({}, False, False)]
)
def test_input_values_need_a_frontend_that_knows_them(
    tmp_path: Path, installed: Registry, values: dict[str, int], fixes: bool, refused: bool
) -> None:
    model, registry = setting(tmp_path, installed, Acme(fixes=fixes), input_values=values)
    if not refused:
        read(model, registry)
        return
    with pytest.raises(
        MaceError,
        match="model 'm': input_values: the frontend 'acme' does not support it; export the model with",
    ):
        read(model, registry)


def test_pairs_begin_with_the_values_of_the_model_or_of_a_file(tmp_path: Path, installed: Registry) -> None:
    model, registry = setting(tmp_path, installed, Acme(), states={"h": "y"})
    assert read(model, registry).states[0].start.ravel().tolist() == [7]
    np.save(tmp_path / "h.npy", np.full((1,) * 4, 5, np.float32))
    model = replace(model, keys={**model.keys, "state_starts": {"h": str(tmp_path / "h.npy")}})
    assert read(model, registry).states[0].start.ravel().tolist() == [5]


def test_shapes_go_to_the_frontend_in_its_own_order(tmp_path: Path, installed: Registry) -> None:
    acme = Acme()
    model, registry = setting(tmp_path, installed, acme)
    read(replace(model, inputs=(Port("x", (1, 2, 3, 4), order="NHWC"),)), registry)
    assert acme.shapes == [[(1, 4, 2, 3)]]


@pytest.mark.parametrize(("rank", "refused"), [(MAX_RANK, False), (MAX_RANK + 1, True)])
def test_ports_have_as_many_axes_as_a_library_describes(
    tmp_path: Path, installed: Registry, rank: int, refused: bool
) -> None:
    model, registry = setting(tmp_path, installed, Acme(rank))
    if not refused:
        load(model, registry)
        return
    with pytest.raises(MaceError) as error:
        load(model, registry)
    lines = str(error.value).splitlines()
    assert [line.partition(" has ")[0] for line in lines] == ["m: 'x'", "m: 'h'", "m: 'y'"]
    assert "has 9 axes; at most 8 are supported: let the model reshape it" in lines[0]


def test_runtimes_are_kinds_of_hardware_or_targets(tmp_path: Path, installed: Registry) -> None:
    (tmp_path / "m.acme").touch()
    text = "library_name: n\nmodels: {m: {model_file_path: m.acme, platform: acme, runtime: %s}}\n"
    registry = replace(installed, frontends={"acme": Acme()})
    for word in ("gpu", "cpu", *installed.targets):
        (tmp_path / "n.yml").write_text(text % word)
        # MACE called the DSP by its name as well, which is now that of a target for it.
        expected = "dsp" if word == "hexagon" else word
        assert load_with(registry, tmp_path / "n.yml").models[0].runtimes == (expected,)
    (tmp_path / "n.yml").write_text(text % "xpu")
    with pytest.raises(
        MaceError, match="runtime: 'xpu' is no kind of hardware and no target that is installed"
    ):
        load_with(registry, tmp_path / "n.yml")

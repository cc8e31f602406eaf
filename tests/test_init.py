"""`mace init`: from a model's file to a deployment file that builds."""

from __future__ import annotations

import shutil
from pathlib import Path

import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

from mace_core.cli import main
from mace_core.deployment import load_deployment
from mace_core.errors import MaceError
from mace_core.new_deployment import parse_shapes
from mace_core.registry import Registry

ROOT = Path(__file__).parents[1]


def init(*arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(main, ["init", *arguments])
    assert result.exit_code == status, result.output
    return result.output


def save(file: Path, dims: list[int | str], names: tuple[str, str] = ("x", "y")) -> None:
    """A model of one Relu."""
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, dims) for n in names]
    graph = helper.make_graph([helper.make_node("Relu", [names[0]], [names[1]])], "net", ports[:1], ports[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), file)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_the_file_checks_at_once(here: Path) -> None:
    shutil.copy(ROOT / "models/digits/digits.onnx", here)
    assert "next: mace check digits.yml" in init("digits.onnx")
    (model,) = load_deployment(here / "digits.yml").models
    assert [p.name for p in model.inputs] == ["image"]
    assert [p.name for p in model.outputs] == ["probabilities"]
    result = CliRunner().invoke(main, ["check", "digits.yml"])
    assert result.exit_code == 0, result.output
    assert "ready for target=host" in result.output


def test_what_exists_is_kept_unless_forced(here: Path) -> None:
    save(here / "net.onnx", [1, 4])
    (here / "net.yml").write_text("mine")
    assert "net.yml: exists already; give another --output, or --force" in init("net.onnx", status=2)
    assert (here / "net.yml").read_text() == "mine"
    init("net.onnx", "--force")
    assert "library_name: net" in (here / "net.yml").read_text()


def test_open_dimensions_are_asked_for(here: Path) -> None:
    save(here / "net.onnx", ["batch", "width", 3])
    assert "give the shapes as --shape NAME=1,2,3" in init("net.onnx", status=2)
    assert not (here / "net.yml").exists()
    init("net.onnx", "--shape", "x=1,7,3")
    (model,) = load_deployment(here / "net.yml").models
    assert model.inputs[0].shape == (1, 7, 3)


ODD = (
    "a: b",
    "- x",
    "#",
    'quo"te',
    "it's",
    "{x}",
    "a,b",
    "true",
    "Ünï",
    "${HOME",
    "&a",
    "*a",
    "!t",
    "x\\",
    "\u2028",
)


@pytest.mark.parametrize("name", ODD)
def test_names_are_read_back_as_they_are(here: Path, name: str) -> None:
    save(here / "net.onnx", [1, 4], (name, f"{name}2"))
    init("net.onnx")
    (model,) = load_deployment(here / "net.yml", tuple(Registry.load().frontends)).models
    assert (model.inputs[0].name, model.outputs[0].name) == (name, f"{name}2")


def test_a_path_that_would_be_read_otherwise_is_refused(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "other")
    save(here / "${SECRET}.onnx", [1, 4])
    init("${SECRET}.onnx", "--output", "net.yml", status=2)
    assert not (here / "net.yml").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "file", ["2nd-model v1.5.onnx", "Ünï.onnx", "-.onnx", "int.onnx", "con.onnx", "mace.onnx"]
)
def test_any_file_name_gives_names_that_build(here: Path, file: str) -> None:
    save(here / file, [1, 4])
    init("--output", "net.yml", "--", file)
    assert load_deployment(here / "net.yml").library


@pytest.mark.parametrize("text", ["x", "=1", "x=0,1", "x=-1", "x=a", "x=1,,2", "x=9999999999"])
def test_a_shape_is_a_name_and_positive_integers(text: str) -> None:
    with pytest.raises(MaceError, match=r"is not NAME=1,2,3"):
        parse_shapes([text])
    assert parse_shapes(["a=b=1,2"]) == {"a=b": (1, 2)}


@pytest.mark.parametrize(
    ("before", "after"),
    [("state", "stateN"), ("past_key_0", "present_key_0"), ("h_in", "h_out"), ("h", "h.next")],
)
def test_pairs_that_look_like_states_are_told_in_a_comment(here: Path, before: str, after: str) -> None:
    save_pair(here / "net.onnx", before, after)
    init("net.onnx")
    text = (here / "net.yml").read_text()
    assert f'    # states: {{"{before}": "{after}"}}' in text
    (here / "net.yml").write_text(text.replace("# states:", "states:"))
    (model,) = load_deployment(here / "net.yml").models
    assert model.keys["states"] == {before: after}


@pytest.mark.parametrize(("before", "after"), [("left", "right"), ("x0", "x1"), ("in", "out")])
def test_other_ports_are_no_states(here: Path, before: str, after: str) -> None:
    save_pair(here / "net.onnx", before, after)
    init("net.onnx")
    assert "states" not in (here / "net.yml").read_text()


def save_pair(file: Path, before: str, after: str) -> None:
    """A model with an input beside the image, and an output of the same shape."""
    described = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4])
        for name in ("image", before, "scores", after)
    }
    nodes = [
        helper.make_node("Add", ["image", before], [after]),
        helper.make_node("Concat", [after, "image"], ["both"], axis=1),
    ]
    nodes.append(helper.make_node("ReduceMean", ["both"], ["scores"], axes=[1]))
    described["scores"] = helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 1])
    graph = helper.make_graph(
        nodes, "net", [described["image"], described[before]], [described["scores"], described[after]]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), file)

"""What `mace init` writes, and the shapes that it takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mace_core.api import Frontend
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Quant, Tensor
from mace_core.new_deployment import InitRequest, parse_shapes, write_deployment
from mace_core.new_deployment import _looks_like_state as looks_like_state
from mace_core.registry import Registry


def test_a_shape_is_read_number_by_number_and_a_scalar_has_none() -> None:
    assert parse_shapes(["image=1,224,3", "a=b=7", "step="]) == {
        "image": (1, 224, 3),
        "a=b": (7,),
        "step": (),
    }


def test_the_longest_number() -> None:
    assert parse_shapes(["x=123456789"]) == {"x": (123456789,)}


@pytest.mark.parametrize("text", ["x", "=1,2", "x=0", "x=1,,2", "x=-1", "x=1.5", "x=1234567890"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(MaceError, match=r"is not NAME=1,2,3; write the input's name"):
        parse_shapes([text])


class Acme(Frontend):
    """Gives one graph for any file that begins with "acme"."""

    name, suffixes = "acme", (".acme",)

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def load(self, files: tuple[Path, ...], model: Model, ops: Any) -> Graph:
        if not model.inputs and files[0].stem == "open":
            raise MaceError("open.acme", "its shape is open", "state input_shapes")
        if files[0].read_bytes() != b"acme":
            raise MaceError("x.acme", "is damaged", "get it again")
        return self.graph


def registry(graph: Graph) -> Registry:
    return replace(Registry.load(), frontends={"acme": Acme(graph)})


def network(*pairs: tuple[str, str], keeps: bool = False) -> Graph:
    """Outputs that are inputs of the same type and shape, by their names; the first input has another shape."""
    new = Builder("m")
    x = new.input("pixels", DType.F32, (1, 2))
    outputs = []
    if keeps:
        total = new.state("total", np.zeros((1, 2), np.float32))
        new.set_next(total, new.one("Add", [total, x]))
        outputs.append(new.one("Relu", [total], outputs=["sum"]))
    for before, after in pairs:
        outputs.append(new.one("Neg", [new.input(before, DType.I32, (3,))], outputs=[after]))
    return replace(new.finish(outputs), notes=("something was decided",))


def write_new(
    folder: Path, graph: Graph, file: str = "My net-2.acme", **changes: Any
) -> tuple[list[str], str]:
    (folder / file).write_bytes(b"acme")
    request = InitRequest((folder / file,), folder / "new.yml", {})
    said = write_deployment(replace(request, **changes), registry(graph))
    return said, (folder / "new.yml").read_text()


def test_every_port_is_written_with_its_type_and_shape(tmp_path: Path) -> None:
    said, text = write_new(tmp_path, network(("a", "b")), platform="acme")
    output = tmp_path / "new.yml"
    assert said == [
        "note: something was decided",
        f"wrote {output}",
        f"next: mace check {output} && mace build {output}",
    ]
    assert (
        text
        == """\
library_name: my_net_2
models:
  my_net_2:
    model_file_path: "My net-2.acme"
    platform: acme
    subgraphs:
      - input_tensors: ["pixels", "a"]  # f32 1 x 2; i32 3
        input_shapes: ["1,2", "3"]
        output_tensors: ["b"]  # i32 3
        # Without the next two lines `mace validate` compares with the model's own framework on random input:
        # validation_inputs_data: [INPUT.npy]
        # validation_outputs_data: [OUTPUT.npy]
"""
    )


def test_states_are_told_in_comments(tmp_path: Path) -> None:
    _, text = write_new(tmp_path, network(keeps=True))
    assert (
        '    # `states: reset` gives them their start values before every run:\n    #   "total": f32 1 x 2\n'
        in text
    )
    assert "platform" not in text
    _, text = write_new(tmp_path, network(("h_in", "h_out"), ("c0.prev", "c0.next")), overwrite=True)
    assert "    # With the next line the session does so:\n" in text
    assert '    # states: {"h_in": "h_out", "c0.prev": "c0.next"}\n' in text


@pytest.mark.parametrize(
    ("before", "after", "alike"),
    [
        ("h_in", "h_out", True), ("hIn", "hN", False), ("h_0", "hN_0", False), ("h", "hN", True), ("prev_h", "next.h", True),
        ("h_in", "g_out", False), ("in", "out", False), ("h", "h2", False), ("h1", "h1N", True), ("inner", "outner", False),
    ],
)  # fmt: skip
def test_names_that_look_like_one_state(before: str, after: str, alike: bool) -> None:
    tensors = [Tensor(name, DType.F32, (2,)) for name in (before, after)]
    assert looks_like_state(*tensors) == alike
    for other in (
        replace(tensors[1], shape=(3,)),
        replace(tensors[1], dtype=DType.F64),
        replace(tensors[1], quant=Quant.of(1)),
    ):
        assert not looks_like_state(tensors[0], other)


def test_two_inputs_of_one_next_value_are_no_states(tmp_path: Path) -> None:
    new = Builder("m")
    for name in ("h_in", "h_prev"):
        new.input(name, DType.F32, (1,))
    _, text = write_new(tmp_path, new.finish([new.one("Add", ["h_in", "h_prev"], outputs=["h_out"])]))
    assert "# states:" not in text


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("2d.acme", "model_2d"), ("con.acme", "model_con"), ("-.acme", "model"), ("Ünet.acme", "net"), ("mace.acme", "model_mace"),
        (f"{'x' * 61}.acme", "x" * 60), ("a..b__c.acme", "a_b_c"),
    ],
)  # fmt: skip
def test_names_of_files_become_names_in_c(tmp_path: Path, file: str, name: str) -> None:
    _, text = write_new(tmp_path, network(("a", "b")), file)
    assert text.startswith(f"library_name: {name}\nmodels:\n  {name}:\n")


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = tmp_path / "new.yml"
    for file, said in (
        ("none.acme", "none.acme: no such file"),
        ("bad.acme", "x.acme: is damaged; get it again"),
        (
            "open.acme",
            "open.acme: its shape is open; state input_shapes\nmace init: give the shapes as --shape NAME=1,2,3, once for each",
        ),
    ):
        if not file.startswith("none"):
            (tmp_path / file).write_bytes(b"damaged")
        with pytest.raises(MaceError) as error:
            write_deployment(InitRequest((tmp_path / file,), new, {}), registry(network(("a", "b"))))
        assert said in str(error.value)
        assert not new.exists()
    monkeypatch.setenv("MACE_NET", "other")
    (tmp_path / "other.acme").touch()
    with pytest.raises(MaceError, match="this path cannot be written in a deployment file"):
        write_new(tmp_path, network(("a", "b")), "${MACE_NET}.acme")
    assert not new.exists()
    write_new(tmp_path, network(("a", "b")))
    with pytest.raises(MaceError, match="exists already; give another --output, or --force to replace it"):
        write_new(tmp_path, network(("a", "b")))


def test_the_weights_of_another_file_are_named(tmp_path: Path) -> None:
    (tmp_path / "w.bin").touch()
    (tmp_path / "n.acme").write_bytes(b"acme")
    _, text = write_new(tmp_path, network(("a", "b")), files=(tmp_path / "n.acme", tmp_path / "w.bin"))
    assert '    model_file_path: "n.acme"\n    weight_file_path: "w.bin"\n' in text

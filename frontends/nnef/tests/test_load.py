"""What of a model is read: its folder, inputs, outputs and variables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from nnef_cases import Case, dat, floats, graph_text, load, write_model

from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.ir import DType
from mace_core.run.reference import execute
from mace_frontend_nnef import Nnef
from mace_frontend_nnef.ops import handlers

NET = Case(
    "a = conv(x0, conv_w, b);\n    p = max_pool(a, size = [1, 1, 2, 2], stride = [1, 1, 2, 2]);\n    y = relu(p);",
    ((1, 3, 8, 8),),
    {"conv/w": floats(4, 3, 3, 3), "b": floats(1, 4)},
)


def net(folder: Path) -> tuple[Path, ...]:
    return write_model(folder / "net", NET.text(), NET.variables)


def fault(folder: Path, text: str, model: Model | None = None) -> str:
    files = write_model(folder / "bad", text)
    with pytest.raises(MaceError) as error:
        load(files, replace(model, files=files) if model else None)
    return str(error.value)


def test_a_folder_and_its_description_are_one_model(tmp_path: Path) -> None:
    (folder,) = net(tmp_path)
    assert load((folder,)).nodes == load((folder / "graph.nnef",)).nodes
    frontend = Nnef()
    assert frontend.claims(folder)
    assert frontend.claims(folder / "graph.nnef")
    assert not frontend.claims(tmp_path)
    assert frontend.port_names((folder,)) == (("x0",), ("y",))
    names = [path.relative_to(folder).as_posix() for path in frontend.dependencies((folder,))]
    assert names == ["graph.nnef", "b.dat", "conv/w.dat"]


def test_more_operations_than_forty() -> None:
    assert len(handlers()) >= 100


def test_an_unknown_operation_is_refused_with_all_others(tmp_path: Path) -> None:
    text = Case("a = argmax_pool(x0, size = [1,1,2,2]);\n    y = desample(x0, a, size = [1,1,2,2]);").text()
    lines = fault(tmp_path, text).splitlines()
    remedy = "this operation is not supported; cut the graph before it with output_tensors, or add"
    assert lines == [
        f"graph.nnef: node 'a' (argmax_pool): {remedy} 'nnef::argmax_pool' by a plugin",
        f"graph.nnef: node 'y' (desample): {remedy} 'nnef::desample' by a plugin",
    ]


def test_the_graph_is_cut_where_the_deployment_file_says(tmp_path: Path) -> None:
    files = net(tmp_path)
    model = Model("cut", files, inputs=(Port("a", (1, 4, 8, 8)),), outputs=(Port("p"),))
    graph = load(files, model)
    assert (graph.inputs, graph.outputs) == (("a",), ("p",))
    assert "Conv" not in [node.op.name for node in graph.nodes]
    run = Nnef().reference(files, model)
    array = floats(1, 4, 8, 8)
    np.testing.assert_allclose(execute(graph, {"a": array})["p"], run({"a": array})["p"])


def test_an_inner_input_needs_a_shape(tmp_path: Path) -> None:
    files = net(tmp_path)
    with pytest.raises(MaceError, match="input 'a' has an unknown rank; write in the deployment file"):
        load(files, Model("cut", files, inputs=(Port("a"),)))


def test_names_that_no_tensor_has(tmp_path: Path) -> None:
    files = net(tmp_path)
    with pytest.raises(MaceError, match="no tensor 'yy' for the deployment file's output; did you mean 'y'"):
        load(files, Model("cut", files, outputs=(Port("yy"),)))


def test_another_batch_may_be_stated_and_no_other_size(tmp_path: Path) -> None:
    files = net(tmp_path)
    graph = load(files, Model("m", files, inputs=(Port("x0", (4, 3, 8, 8)),)))
    assert graph.tensors["y"].shape == (4, 4, 4, 4)
    with pytest.raises(MaceError, match=r"input 'x0' has shape \[1,3,8,8\] in the model, \[1, 3, 9, 8\]"):
        load(files, Model("m", files, inputs=(Port("x0", (1, 3, 9, 8)),)))


def test_an_input_that_nothing_reads_stays(tmp_path: Path) -> None:
    lines = ["x = external<integer>(shape = [2]);", "z = external(shape = [3]);", "y = copy(x);"]
    graph = load(write_model(tmp_path / "m", graph_text(["x", "z"], ["y"], lines)))
    assert graph.inputs == ("x", "z")
    assert graph.tensors["x"].dtype is DType.I64


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ("../b", "variable '../b' lies outside of the model's folder"),
        ("c/../../b", "variable 'c/../../b' lies outside of the model's folder"),
        ("//etc/b", "variable '//etc/b' lies outside of the model's folder"),
        ("link", "variable 'link' lies outside of the model's folder"),
        ("none", "variable 'none': none.dat: No such file or directory; copy the whole folder of the model"),
    ],
)
def test_variables_lie_in_the_folder(label: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "b.dat").write_bytes(dat(floats(2)))
    (folder,) = write_model(
        tmp_path / "m",
        graph_text(
            ["x"],
            ["y"],
            [
                "x = external(shape = [2]);",
                f"w = variable(shape = [2], label = '{label}');",
                "y = add(x, w);",
            ],
        ),
    )
    (folder / "link.dat").symlink_to(tmp_path / "b.dat")
    with pytest.raises(MaceError) as error:
        load((folder,))
    assert said in str(error.value)


def header(array: np.ndarray, **words: int) -> bytes:
    """A variable's file with other words in its header: by their place among those of four bytes."""
    data = bytearray(dat(array))
    for place, word in words.items():
        at = 4 * int(place.removeprefix("at"))
        data[at : at + 4] = word.to_bytes(4, "little")
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "its file is no tensor of NNEF 1.0"),
        (b"N\xef\x02\x00" + bytes(200), "its file is no tensor of NNEF 1.0"),
        (header(floats(2), at2=9), "its file states a rank of 9"),
        (header(floats(2), at3=1 << 31), "its file holds 8 bytes, 8589934592 by the shape [2147483648]"),
        (header(floats(2), at1=4), "its file holds 8 bytes, 8 by the shape [2]"),
        (header(floats(2), at11=33), "its file holds items of type 0 and 33 bits"),
        (header(floats(2), at12=3), "its file holds quantized integers"),
        (dat(floats(2)) + b"x", "its file holds 9 bytes, 8 by the shape [2]"),
        (dat(floats(1, 2)), "variable 'w' has shape [1, 2] in its file, [2] in the graph"),
    ],
)
def test_damaged_variables(data: bytes, said: str, tmp_path: Path) -> None:
    text = graph_text(
        ["x"],
        ["y"],
        ["x = external(shape = [2]);", "w = variable(shape = [2], label = 'w');", "y = add(x, w);"],
    )
    (folder,) = write_model(tmp_path / "m", text)
    (folder / "w.dat").write_bytes(data)
    with pytest.raises(MaceError) as error:
        load((folder,))
    assert said in str(error.value)


def body(text: str) -> str:
    return f"version 1.0; graph net(x) -> (y) {{ x = external(shape = [1, 2]); {text} }}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no NNEF description: line 1: expected 'version', found 'the end'; export the model again"),
        ("version 2.0;", "version 2.0 is not supported, 1.0 is"),
        (
            "version 1.0; extension KHR_enable_fragment_definitions;",
            "line 1: extension KHR_enable_fragment_definitions is",
        ),
        ("version 1.0; \0", "'\\x00' is no word of NNEF"),
        ("version 1.0; graph n\u00e4t", "it holds bytes that are no ASCII text"),
        ("version 1.0;\ngraph net(x) -> (y)\n{ y = relu(x) }", "line 3: expected ';', found '}'"),
        (body("y = relu(x); }"), "'}' after the graph"),
        (body("z = relu(x);"), "output 'y' is never computed"),
        (body("x = relu(x); y = relu(x);"), "'x' is assigned twice"),
        (body("y = relu(" + "[" * 40), "brackets are nested more than 32 deep"),
        (
            body("y = softmax(x, axes = [99999999999999999999]);"),
            "the integer 99999999999999999999 has more than 64 bits",
        ),
        (body("y = elu(x, 1e999);"), "the number 1e999 is too large"),
        (body("y = elu(x, alpha = true);"), "elu: argument 'alpha' is of another type"),
        (body("y = softmax(x, axes = [1.5]);"), "softmax: argument 'axes' is of another type"),
        (body("y = softmax(x, axes = 1);"), "softmax: argument 'axes' is of another type"),
        (body("y = pad(x, padding = [(1, 2, 3)]);"), "pad: argument 'padding' is of another type"),
        (body("y = pad(x, [(0, 0)], border = x);"), "pad: argument 'border' is of another type"),
        (body("y = relu('x');"), "relu: argument 'x' is of another type"),
        (body("y = relu();"), "relu: argument 'x' is missing"),
        (body("y = relu(x, x);"), "relu: it takes 1 arguments, 2 are given"),
        (body("y = relu(x, x = x);"), "relu: argument 'x' is given twice"),
        (body("y = relu(x, z = x);"), "relu: argument 'z' is unknown"),
        (body("y, z = relu(x);"), "relu: it has 1 results, 2 are named"),
        ("version 1.0; graph net(a) -> (y) { y = relu(1.0); }", "input 'a' is not declared by `external`"),
        (body("y = relu(z);"), "node 'y' (relu): it reads 'z', which nothing before it computes"),
        (body("y = [relu](x);"), "line 1: expected a name, found '['"),
    ],
)
def test_what_is_no_description(text: str, said: str, tmp_path: Path) -> None:
    assert said in fault(tmp_path, text)


def test_quantized_models_and_several_files_are_refused(tmp_path: Path) -> None:
    (folder,) = net(tmp_path)
    with pytest.raises(MaceError, match="an NNEF model is one folder, 2 files are named"):
        load((folder, folder))
    (folder / "graph.quant").write_text("")
    with pytest.raises(
        MaceError, match=r"has a graph\.quant in its folder; quantized NNEF models are not supported"
    ):
        load((folder,))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MaceError, match=r"none\.nnef: cannot be read: No such file"):
        load((tmp_path / "none.nnef",))

"""What a user is told whose file, names or shapes are wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tflite_cases import load
from tflite_write import Step, Value, Written

from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.ops import core_ops
from mace_frontend_tflite import TfLite

X = Value("x", shape=(1, 4))
Y = Value("y", shape=(1, 4))
RELU = Written([X, Y], [Step("RELU", ["x"], ["y"])], ["x"], ["y"])


def model(folder: Path, inputs: tuple[Port, ...] = (), outputs: tuple[Port, ...] = ()) -> Model:
    return Model("case", (folder / "case.tflite",), inputs=inputs, outputs=outputs)


def test_every_unknown_operator_is_named_at_once(tmp_path: Path) -> None:
    steps = [Step("SKIP_GRAM", ["x"], ["m"]), Step("custom Own", ["m"], ["y"])]
    with pytest.raises(MaceError) as error:
        load(tmp_path, Written([X, Value("m"), Y], steps, ["x"], ["y"]))
    first, second = str(error.value).splitlines()
    assert (
        "case.tflite: node 'm' (SKIP_GRAM): operator SKIP_GRAM is not supported; cut the graph before it with output_tensors"
        in first
    )
    assert "node 'y' (custom Own): operator custom Own" in second


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        # RELU has one result, whatever the file says.
        (
            [Step("RELU", ["x"], ["y", "m"])],
            "case.tflite: output 'm': no node computes it; convert the model again",
        ),
        (
            [Step("RELU", ["x"], ["y"])],
            "case.tflite: output 'm': it reads 'm', which the file neither holds nor computes; convert the model again",
        ),
        # What lacks its operand is no fault of its own.
        (
            [Step("SKIP_GRAM", ["x"], ["m"]), Step("RELU", ["m"], ["y"])],
            "case.tflite: node 'm' (SKIP_GRAM): operator SKIP_GRAM is not supported; cut the graph before it with "
            "output_tensors, or add it by a plugin",
        ),
    ],
)
def test_an_output_that_no_node_computes_is_told_once(steps: list[Step], said: str, tmp_path: Path) -> None:
    with pytest.raises(MaceError) as error:
        load(tmp_path, Written([X, Value("m", shape=(1, 4)), Y], steps, ["x"], ["y", "m"]))
    assert str(error.value) == said


def test_what_is_not_needed_is_not_asked_for(tmp_path: Path) -> None:
    steps = [Step("RELU", ["x"], ["m"]), Step("custom Own", ["m"], ["y"])]
    graph = load(
        tmp_path,
        Written([X, Value("m"), Y], steps, ["x"], ["y"]),
        model=model(tmp_path, outputs=(Port("m"),)),
    )
    assert list(graph.outputs) == ["m"]


def test_the_first_tensor_of_a_file_may_be_an_inner_one(tmp_path: Path) -> None:
    """Tensors are numbered from 0, and -1 is an absent one: what computes tensor 0 is needed as well."""
    steps = [Step("RELU", ["x"], ["m"]), Step("EXP", ["m"], ["y"])]
    graph = load(tmp_path, Written([Value("m", shape=(1, 4)), X, Y], steps, ["x"], ["y"]))
    assert [node.op.name for node in graph.nodes] == ["Clip", "Exp"]


def test_an_input_that_nothing_reads_stays_unless_others_are_named(tmp_path: Path) -> None:
    written = Written([X, Value("off", shape=(2, 3)), Y], RELU.steps, ["x", "off"], ["y"])
    assert load(tmp_path, written).inputs == ("x", "off")
    assert load(tmp_path, written, model=model(tmp_path, inputs=(Port("x"),))).inputs == ("x",)
    named = model(tmp_path, inputs=(Port("off"),))
    assert load(tmp_path, written, model=named).inputs == ("off", "x")


def test_an_empty_axis_is_not_an_open_one(tmp_path: Path) -> None:
    empty = Value("x", shape=(1, 0, 4), signature=(-1, 0, 4))
    graph = load(tmp_path, Written([empty, Value("y", shape=(1, 0, 4))], RELU.steps, ["x"], ["y"]))
    assert graph.tensors["y"].shape == (1, 0, 4)


def test_a_name_that_is_nearly_right_is_suggested(tmp_path: Path) -> None:
    with pytest.raises(MaceError, match="no tensor 'yy' for the deployment file's output; did you mean 'y'"):
        load(tmp_path, RELU, model=model(tmp_path, outputs=(Port("yy"),)))
    with pytest.raises(
        MaceError, match="no tensor 'image' for the deployment file's input; the model's inputs are x"
    ):
        load(tmp_path, RELU, model=model(tmp_path, inputs=(Port("image"),)))


def test_an_open_dimension_is_asked_for_with_the_line_to_write(tmp_path: Path) -> None:
    open_x = Value("x", shape=(1, 1, 4), signature=(-1, -1, 4))
    written = Written([open_x, Y], [Step("RELU", ["x"], ["y"])], ["x"], ["y"])
    lines = r'\n  input_tensors: \[x\]\n  input_shapes: \["1,\?,4"\]$'
    with pytest.raises(MaceError, match=rf"'x' leaves dimension 1 open; write [^\n]*{lines}"):
        load(tmp_path, written)
    two = Written(
        [open_x, Value("off", shape=(2, 3)), Y], [Step("ADD", ["x", "off"], ["y"])], ["x", "off"], ["y"]
    )
    with pytest.raises(MaceError) as error:
        load(tmp_path, two)
    assert str(error.value).endswith('\n  input_tensors: [x, "off"]\n  input_shapes: ["1,?,4", "2,3"]')
    graph = load(tmp_path, written, model=model(tmp_path, inputs=(Port("x", shape=(2, 7, 4)),)))
    assert graph.tensors["y"].shape == (2, 7, 4)


def test_a_shape_that_contradicts_the_file_is_told(tmp_path: Path) -> None:
    fixed = Written([Value("x", shape=(1, 3, 4), signature=(-1, 3, 4)), Y], RELU.steps, ["x"], ["y"])
    with pytest.raises(
        MaceError,
        match=r"has shape \[\?,3,4\] in the model, \[1, 4, 3\] in the deployment file; .*input_data_formats",
    ):
        load(tmp_path, fixed, model=model(tmp_path, inputs=(Port("x", shape=(1, 4, 3)),)))


def test_a_shape_of_more_axes_reaches_the_nodes(tmp_path: Path) -> None:
    written = Written(
        [X, Value("w", shape=(2, 3), data=np.ones((2, 3), "f4")), Y],
        [Step("BATCH_MATMUL", ["x", "w"], ["y"])],
        ["x"],
        ["y"],
    )
    with pytest.raises(MaceError, match=r"case\.tflite: node 'y' \(BATCH_MATMUL\)"):
        load(tmp_path, written)


@pytest.mark.parametrize(
    "data", [b"", b"PK\x03\x04", b"\x1c\x00\x00\x00TFL3", b"\xff\xff\xff\x7fTFL3" + bytes(40)]
)
def test_what_is_no_model_is_told(data: bytes, tmp_path: Path) -> None:
    file = tmp_path / "case.tflite"
    file.write_bytes(data)
    with pytest.raises(
        MaceError,
        match=r"case\.tflite: is no TensorFlow Lite model, or a damaged one.*; convert or download it again",
    ):
        TfLite().load((file,), Model("case", (file,)), core_ops())


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(MaceError, match="cannot be read"):
        TfLite().load((tmp_path / "none.tflite",), Model("case", ()), core_ops())


def test_one_file_is_a_model(tmp_path: Path) -> None:
    with pytest.raises(MaceError, match="is one file, 2 are named"):
        TfLite().load((tmp_path / "a.tflite", tmp_path / "b.tflite"), Model("case", ()), core_ops())


def test_an_absent_input_is_no_state(tmp_path: Path) -> None:
    """Tensors are numbered from 0: -1 is not the last one, here a state that no output needs."""
    values = [X, Value("w", shape=(4, 4), data=np.ones((4, 4), "f4")), Value("z"), Y]
    last = Value("h", shape=(1, 4), variable=True)
    steps = [
        Step("FULLY_CONNECTED", ["x", "w", ""], ["y"], ("FullyConnectedOptions", {})),
        Step("custom Own", ["x", "", "h"], ["z"]),
    ]
    graph = load(tmp_path, Written([*values, last], steps, ["x"], ["y"]))
    assert [node.op.name for node in graph.nodes] == ["MatMul"]

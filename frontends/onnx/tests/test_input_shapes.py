"""Shapes of inputs that the file leaves open, and what the deployment file may state of them."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.ir import Graph, Shape
from mace_core.ops import core_ops
from mace_frontend_onnx import Onnx

Dims = tuple[int | str | None, ...]


def load(
    path: Path, dims: Dims | None, stated: Shape | None = None, element: int = TensorProto.FLOAT
) -> Graph:
    """Load a model of one Relu whose input has these dimensions in the file; None for an unknown rank."""
    x = helper.make_tensor_value_info("x", element, dims)
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "g", [x], [onnx.ValueInfoProto(name="y")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    ports = () if stated is None else (Port("x", shape=stated),)
    return Onnx().load((path,), Model("m", (path,), inputs=ports), core_ops())


@pytest.mark.parametrize(
    ("dims", "stated", "shape"),
    [
        ((2, 3), None, (2, 3)),
        (("N", 3), None, (1, 3)),
        ((None, 3), None, (1, 3)),
        ((-1, 3), None, (1, 3)),
        (("?", 3), None, (1, 3)),
        (("N", "N"), None, (1, 1)),
        ((None, 3), (4, 3), (4, 3)),
        (("N", "H"), (4, 5), (4, 5)),
        ((0, 3), (4, 3), (4, 3)),
        (None, (4, 3), (4, 3)),
        ((), None, ()),
        ((), (1,), ()),
    ],
)
def test_input_has_the_shape(dims: Dims | None, stated: Shape | None, shape: Shape, tmp_path: Path) -> None:
    assert load(tmp_path / "m.onnx", dims, stated).tensors["x"].shape == shape


@pytest.mark.parametrize(
    ("dims", "stated", "message"),
    [
        ((2, None), None, "input 'x' leaves dimension 1 open"),
        (("N", "H"), None, "input 'x' leaves dimension 1 ('H') open"),
        (None, None, "input 'x' has an unknown rank"),
        ((2, 3), (2, 4), "input 'x' has shape [2,3] in the model, [2, 4] in the deployment file"),
        (("N", 3), (2, 4), "input 'x' has shape [N,3] in the model, [2, 4] in the deployment file"),
        ((None, 3), (3,), "input 'x' has shape [?,3] in the model, [3] in the deployment file"),
        ((0, 3), (4, 5), "input 'x' has shape [0,3] in the model, [4, 5] in the deployment file"),
        ((), (2,), "input 'x' has shape [] in the model, [2] in the deployment file"),
    ],
)
def test_shape_is_refused(dims: Dims | None, stated: Shape | None, message: str, tmp_path: Path) -> None:
    with pytest.raises(MaceError) as error:
        load(tmp_path / "m.onnx", dims, stated)
    assert str(error.value).startswith(f"m.onnx: {message}")


def test_type_that_the_ir_has_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MaceError) as error:
        load(tmp_path / "m.onnx", (2, 3), element=TensorProto.COMPLEX64)
    text = "its elements are of type COMPLEX64, which is not supported; convert the model to float32"
    assert str(error.value) == f"m.onnx: input 'x': {text}"


def test_input_that_is_no_tensor_is_refused(tmp_path: Path) -> None:
    x = helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, [2])
    graph = helper.make_graph(
        [helper.make_node("SequenceLength", ["x"], ["y"])], "g", [x], [onnx.ValueInfoProto(name="y")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(MaceError, match="input 'x' is no tensor") as error:
        Onnx().load((path,), Model("m", (path,)), core_ops())
    remedy = "cut the graph behind it: name inner tensors under input_tensors"
    assert str(error.value).splitlines()[0] == f"m.onnx: input 'x' is no tensor; {remedy}"

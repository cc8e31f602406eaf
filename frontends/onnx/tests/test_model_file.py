"""What a model file must hold, and on which side of each limit it is still read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.importer import RefusedError
from mace_core.ir import DType
from mace_core.ops import core_ops
from mace_frontend_onnx import Onnx, model_file
from mace_frontend_onnx.external_data import data_files
from mace_frontend_onnx.model_file import OnnxFile

NEWEST = onnx.defs.onnx_opset_version()


def model(opset: int = 17, domain: str = "", version: int = 1) -> ModelProto:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, version)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def save(path: Path, made: ModelProto) -> Path:
    path.write_bytes(made.SerializeToString())
    return path


def message(path: Path) -> str:
    with pytest.raises(MaceError) as error:
        Onnx().load((path,), Model("m", (path,)), core_ops())
    return str(error.value)


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (model(7), ""),
        (model(NEWEST), ""),
        (model(6), "uses operator set 6; 7 is the oldest that is read; convert it: onnx.version_converter"),
        (
            model(NEWEST + 1),
            f"uses operator set {NEWEST + 1}; the installed onnx {onnx.__version__} knows {NEWEST}",
        ),
        (model(17, "d", 0), ""),
        (model(17, "d", 2**31 - 1), ""),
        (model(17, "d", 2**31), "uses operator set 2147483648 of domain 'd', which cannot exist"),
        (model(17, "d", -1), "uses operator set -1 of domain 'd', which cannot exist"),
        (model(-1), "uses operator set -1 of domain 'ai.onnx', which cannot exist"),
    ],
)
def test_versions(made: ModelProto, problem: str, tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", made)
    if problem:
        assert message(path).startswith(f"m.onnx: {problem}")
    else:
        assert model_file.read(path).opsets[""] == made.opset_import[0].version


def test_versions_of_functions_count_too(tmp_path: Path) -> None:
    result = model()
    result.functions.add(name="f", domain="d").opset_import.add(domain="e", version=2**31)
    assert "uses operator set 2147483648 of domain 'e'" in message(save(tmp_path / "m.onnx", result))


def without_graph(made: ModelProto) -> None:
    made.ClearField("graph")


def without_version(made: ModelProto) -> None:
    made.ir_version = 0


@pytest.mark.parametrize("change", [without_graph, without_version])
def test_a_file_without_graph_or_version_is_no_model(
    change: Callable[[ModelProto], None], tmp_path: Path
) -> None:
    result = model()
    change(result)
    text = message(save(tmp_path / "m.onnx", result))
    assert (
        text
        == "m.onnx: is no ONNX model, or a damaged one: it holds no graph; export or download the model again"
    )


def test_a_model_without_operator_set_of_onnx_is_one_of_the_oldest(tmp_path: Path) -> None:
    result = model()
    del result.opset_import[:]
    result.opset_import.add(domain="d", version=1)
    assert "" not in model_file.read(save(tmp_path / "m.onnx", result)).opsets


@pytest.mark.parametrize(
    ("offset", "length", "fits"),
    [
        (0, 8, True),
        (4, 8, True),
        (5, 8, False),
        (12, 0, False),
        (-1, 8, False),
        (0, -8, False),
        (13, 8, False),
    ],
)
def test_payloads_lie_inside_the_file(offset: int, length: int, fits: bool, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(np.arange(3, dtype="<f4").tobytes())
    tensor = TensorProto(name="w", dims=[2], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", ""), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
    file = OnnxFile(path, model())
    if fits:
        first = offset // 4
        np.testing.assert_array_equal(file.array(tensor), np.float32([first, first + 1]))
        return
    with pytest.raises(MaceError, match="the data of tensor 'w' cannot be read: ") as error:
        file.array(tensor)
    assert str(error.value).endswith("; export the model again, and keep its data file beside it")


def external(name: str, location: str) -> TensorProto:
    tensor = TensorProto(name=name, dims=[1], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="offset", value="0")
    tensor.external_data.add(key="location", value=location)
    return tensor


def test_files_of_weights_are_found_wherever_a_tensor_is(tmp_path: Path) -> None:
    result = model()
    inner = helper.make_graph(
        [helper.make_node("Constant", [], ["k"], value=external("k", "c"))], "b", [], []
    )
    inner.initializer.append(external("i", "b"))
    result.graph.initializer.extend(
        [external("w", "d"), external("v", "a"), external("u", "a"), external("p", "")]
    )
    result.graph.node.append(helper.make_node("If", ["x"], ["z"], then_branch=inner))
    result.graph.node.append(helper.make_node("Odd", [], ["q"], domain="d", value=external("t", "e")))
    path = save(tmp_path / "m.onnx", result)
    assert model_file.read(path).locations == ["a", "b", "c", "d", "e"]
    for name in "ace":
        (tmp_path / name).touch()
    (tmp_path / "b").mkdir()
    assert data_files(path) == tuple(tmp_path / name for name in "ace")
    assert data_files(save(tmp_path / "n.onnx", model())) == ()


def test_initializers_are_no_inputs(tmp_path: Path) -> None:
    """Before IR version 4, every constant had to be listed among the inputs; sparse ones as well."""
    result = model()
    result.graph.input.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "ws")
    result.graph.initializer.append(numpy_helper.from_array(np.zeros(1, np.float32), "w"))
    values = numpy_helper.from_array(np.ones(1, np.float32), "s")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(np.zeros(1, np.int64), "i"), [1])
    result.graph.sparse_initializer.append(sparse)
    file = model_file.read(save(tmp_path / "m.onnx", result))
    assert (file.inputs, file.outputs) == (["x"], ["y"])
    assert file.initializers == {"w", "s"}


@pytest.mark.parametrize(("indices", "shape"), [([1, 5], (2, 3)), ([[0, 1], [1, 2]], (2, 3)), ([1, 5], (6,))])
def test_sparse_constants_become_dense(indices: list[object], shape: tuple[int, ...], tmp_path: Path) -> None:
    result = model()
    values = numpy_helper.from_array(np.float32([7, 8]), "s")
    positions = numpy_helper.from_array(np.int64(indices), "i")
    result.graph.sparse_initializer.append(helper.make_sparse_tensor(values, positions, shape))
    result.graph.node[0].op_type = "Add"
    result.graph.node[0].input.append("s")
    for value in (*result.graph.input, *result.graph.output):
        value.CopyFrom(helper.make_tensor_value_info(value.name, TensorProto.FLOAT, shape))
    path = save(tmp_path / "m.onnx", result)
    graph = Onnx().load((path,), Model("m", (path,)), core_ops())
    (dense,) = graph.weights.values()
    np.testing.assert_array_equal(dense.reshape(-1), [0, 7, 0, 0, 0, 8])
    assert dense.shape == shape


@pytest.mark.parametrize(
    ("code", "dtype"),
    [(TensorProto.FLOAT, DType.F32), (TensorProto.BOOL, DType.BOOL), (TensorProto.UINT16, DType.U16)],
)
def test_element_types(code: int, dtype: DType) -> None:
    assert model_file.element_type(code) is dtype


@pytest.mark.parametrize(
    ("code", "name"), [(TensorProto.COMPLEX64, "COMPLEX64"), (99, "99"), (0, "UNDEFINED")]
)
def test_element_types_that_the_ir_has_not(code: int, name: str) -> None:
    with pytest.raises(
        RefusedError, match=f"its elements are of type {name}, which is not supported; convert"
    ):
        model_file.element_type(code)


def test_the_first_line_of_an_error() -> None:
    assert model_file.first_line(ValueError(" a \nb")) == "a "
    assert model_file.first_line(ValueError("")) == "ValueError"


def test_a_long_complaint_of_the_checker_is_cut(tmp_path: Path) -> None:
    result = model()
    result.graph.node[0].attribute.append(helper.make_attribute("odd" * 300, 1))
    text = message(save(tmp_path / "m.onnx", result))
    start, end = "m.onnx: is no valid ONNX model: ", "; export the model again"
    assert text.startswith(start)
    assert text.endswith(end)
    assert len(text) == len(start) + len(end) + model_file.MAX_CHECKER_TEXT

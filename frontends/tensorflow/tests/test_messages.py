"""What is said of models that cannot be read, and of deployment files that do not fit."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.ir import Graph
from mace_core.ops import core_ops
from mace_core.ops.op import Op
from mace_core.ops.unary_attrs import AlphaAttributes
from mace_core.run.reference import execute
from mace_core.verify import verify
from mace_frontend_tensorflow import TensorFlow
from mace_frontend_tensorflow.messages import GraphDef

FLOAT, INT32 = 1, 3


def node(graph: Any, name: str, op: str, *inputs: str, **attrs: Any) -> Any:
    """Add a node; attributes: a type, a number, a text, or a shape as a list."""
    result = graph.node.add(name=name, op=op, input=inputs)
    for key, value in attrs.items():
        if key in ("T", "dtype", "DstT"):
            result.attr[key].type = value
        elif key == "shape" and value is not None:
            for size in value:
                result.attr[key].shape.dim.add(size=size)
        elif key == "shape":
            result.attr[key].shape.unknown_rank = True
        elif isinstance(value, bytes):
            result.attr[key].s = value
        elif isinstance(value, np.ndarray):
            tensor = result.attr[key].tensor
            tensor.dtype = {"f": FLOAT, "i": INT32}[value.dtype.kind]
            tensor.tensor_content = value.tobytes()
            for size in value.shape:
                tensor.tensor_shape.dim.add(size=size)
    return result


def chain() -> Any:
    """x [?, 4] -> scaled -> activated, and a node that nothing reads."""
    graph = GraphDef()
    node(graph, "image", "Placeholder", dtype=FLOAT, shape=[-1, 4])
    node(graph, "factor", "Const", dtype=FLOAT, value=np.float32([1, 2, 3, 4]))
    node(graph, "scaled", "Mul", "image", "factor", T=FLOAT)
    node(graph, "layer/activated", "Relu", "scaled", T=FLOAT)
    return graph


def load(graph: Any, folder: Path, ops: Mapping[str, Op] | None = None, **ports: Any) -> Graph:
    file = folder / "model.pb"
    file.write_bytes(graph.SerializeToString())
    return verify(TensorFlow().load((file,), Model("m", (file,), **ports), ops or core_ops()))


def refusal(graph: Any, folder: Path, **ports: Any) -> str:
    with pytest.raises(MaceError) as error:
        load(graph, folder, **ports)
    return str(error.value)


def test_an_unknown_operator_is_named_with_its_node_and_a_way_out(tmp_path: Path) -> None:
    graph = chain()
    node(graph, "odd", "Sinkhorn", "layer/activated", T=FLOAT)
    node(graph, "odder", "Betainc", "layer/activated", T=FLOAT)
    node(graph, "both", "Add", "odd", "odder", T=FLOAT)
    text = refusal(graph, tmp_path, inputs=(Port("image", (2, 4)),))
    assert (
        "model.pb: node 'odd' (Sinkhorn): this operator is not supported; cut the graph before it with output_tensors"
        in text
    )
    assert "node 'odder' (Betainc)" in text
    assert "'both'" not in text


def test_a_missing_tensor_comes_with_the_nearest_name(tmp_path: Path) -> None:
    text = refusal(chain(), tmp_path, inputs=(Port("imagine", (2, 4)),))
    assert "no tensor 'imagine' for the deployment file's input; did you mean 'image'?" in text
    text = refusal(chain(), tmp_path, outputs=(Port("quite else"),))
    assert (
        "no tensor 'quite else' for the deployment file's output; the model's outputs are layer/activated"
        in text
    )


def test_open_shapes_are_asked_for(tmp_path: Path) -> None:
    graph = chain()
    graph.node[0].attr["shape"].shape.dim[1].size = -1
    assert refusal(graph, tmp_path).endswith('\n  input_tensors: [image]\n  input_shapes: ["1,?"]')
    graph.node[0].attr["shape"].shape.unknown_rank = True
    text = refusal(graph, tmp_path)
    assert "input 'image' has an unknown rank; write in the deployment file" in text
    assert text.endswith('\n  input_tensors: [image]\n  input_shapes: ["?"]')


def test_a_shape_that_does_not_fit_is_told(tmp_path: Path) -> None:
    text = refusal(chain(), tmp_path, inputs=(Port("image", (2, 5)),))
    assert (
        "input 'image' has shape [?,4] in the model, [2, 5] in the deployment file; state that shape" in text
    )


def test_names_with_and_without_number_mean_the_same(tmp_path: Path) -> None:
    ports = ("image", "image:0"), ("layer/activated", "layer/activated:0")
    results = [
        load(chain(), tmp_path, inputs=(Port(i, (2, 4)),), outputs=(Port(o),))
        for i, o in zip(*ports, strict=True)
    ]
    assert [g.outputs for g in results] == [("layer/activated",), ("layer/activated:0",)]
    assert [n.op for n in results[0].nodes] == [n.op for n in results[1].nodes]


def test_the_graph_is_cut_where_the_file_says(tmp_path: Path) -> None:
    graph = load(chain(), tmp_path, inputs=(Port("scaled", (2, 4)),))
    assert [n.op.name for n in graph.nodes] == ["Relu"]


def test_sound_is_fed_as_features(tmp_path: Path) -> None:
    graph = GraphDef()
    node(graph, "wav", "Placeholder", dtype=7, shape=[])
    node(graph, "decoded", "DecodeWav", "wav")
    node(graph, "Mfcc", "Mfcc", "decoded:0", "decoded:1")
    node(graph, "out", "Softmax", "Mfcc", T=FLOAT)
    text = refusal(graph, tmp_path, inputs=(Port("wav", ()),))
    assert "its elements are of type string" in text
    assert [n.op.name for n in load(graph, tmp_path, inputs=(Port("Mfcc", (1, 10)),)).nodes] == ["Softmax"]


def test_an_operator_of_a_plugin_is_used(tmp_path: Path) -> None:
    odd = Op(
        "tensorflow::Sinkhorn",
        ("x",),
        ("y",),
        lambda i, a: [(i[0].dtype, i[0].shape)],
        lambda x, attrs: x * attrs.alpha,
        AlphaAttributes,
    )  # type: ignore[union-attr]
    graph = chain()
    node(graph, "odd", "Sinkhorn", "layer/activated", T=FLOAT).attr["alpha"].f = 3.0
    result = load(graph, tmp_path, {**core_ops(), odd.name: odd}, inputs=(Port("image", (1, 4)),))
    actual = execute(result, {"image": np.ones((1, 4), np.float32)})
    np.testing.assert_allclose(actual["odd"], [[3, 6, 9, 12]])


def test_cycles_are_told(tmp_path: Path) -> None:
    graph = GraphDef()
    node(graph, "a", "Relu", "b", T=FLOAT)
    node(graph, "b", "Relu", "a", T=FLOAT)
    node(graph, "c", "Relu", "b", T=FLOAT)
    assert "it reads" in refusal(graph, tmp_path)


def test_functions_that_call_themselves_are_told(tmp_path: Path) -> None:
    graph = chain()
    function = graph.library.function.add()
    function.signature.name = "f"
    function.signature.input_arg.add(name="x", type=FLOAT)
    function.signature.output_arg.add(name="y", type=FLOAT)
    function.node_def.add(name="again", op="f", input=["x"])
    function.ret["y"] = "again:y:0"
    node(graph, "call", "f", "layer/activated")
    assert "functions call each other more than 48 deep; export the model again" in refusal(graph, tmp_path)


def test_other_files_are_told_apart(tmp_path: Path) -> None:
    for data in (b"", b"\x08\x01", b"hello, world"):
        (tmp_path / "model.pb").write_bytes(data)
        with pytest.raises(MaceError, match=r"model.pb: is no TensorFlow model, or a damaged one"):
            TensorFlow().load((tmp_path / "model.pb",), Model("m", (tmp_path / "model.pb",)), core_ops())
    with pytest.raises(MaceError, match="cannot be read: No such file"):
        TensorFlow().load((tmp_path / "none.pb",), Model("m", (tmp_path / "none.pb",)), core_ops())


def test_tensorflow_itself_is_not_loaded(tmp_path: Path) -> None:
    load(chain(), tmp_path, inputs=(Port("image", (2, 4)),))
    script = (
        "import sys; from pathlib import Path; from mace_core.deployment import Model, Port; from mace_core.ops import core_ops\n"
        "from mace_frontend_tensorflow import TensorFlow\n"
        "file = Path(sys.argv[1]); TensorFlow().load((file,), Model('m', (file,), inputs=(Port('image', (2, 4)),)), core_ops())\n"
        "sys.exit(' '.join(m for m in sys.modules if m.partition('.')[0] in ('tensorflow', 'keras')))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, str(tmp_path / "model.pb")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.strip() == ""

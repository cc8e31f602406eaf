"""Boundaries, names, weights and faults of model files."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from mace_core.attributes import Attributes
from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.ir import Graph
from mace_core.ops import core_ops
from mace_core.ops.op import Op
from mace_core.ops.shapes import same
from mace_core.run.reference import execute
from mace_core.verify import verify
from mace_frontend_onnx import Onnx
from mace_frontend_onnx.wire import MIN_PAYLOAD, WireError, without_payloads

HEAD = '<ir_version: 8, opset_import: ["" : 13]> g '
CHAIN = (
    HEAD
    + "(float[N,3,H] x, float[N] s) => (float[N,3,H] y) { [first] a = Relu(x) [second] b = Neg(a) [third] y = Exp(b) }"
)
FIXED = CHAIN.replace("[N,3,H]", "[2,3,4]").replace("float[N] s", "float[2] s")


def save(path: Path, text: str | onnx.ModelProto) -> Path:
    model = onnx.parser.parse_model(text) if isinstance(text, str) else text
    path.write_bytes(model.SerializeToString())
    return path


def load(path: Path, inputs: tuple[Port, ...] = (), outputs: tuple[str, ...] = ()) -> Graph:
    model = Model("m", (path,), inputs=inputs, outputs=tuple(Port(o) for o in outputs))
    return verify(Onnx().load((path,), model, core_ops()))


def fault(path: Path, inputs: tuple[Port, ...] = (), outputs: tuple[str, ...] = ()) -> str:
    with pytest.raises(MaceError) as error:
        load(path, inputs, outputs)
    return str(error.value)


def test_names_are_kept(tmp_path: Path) -> None:
    graph = load(save(tmp_path / "m.onnx", FIXED))
    assert [(n.name, n.op.name, n.outputs, n.sources) for n in graph.nodes] == [
        ("first", "Relu", ("a",), ("first",)),
        ("second", "Neg", ("b",), ("second",)),
        ("third", "Exp", ("y",), ("third",)),
    ]
    assert graph.inputs == ("x", "s")


def test_a_node_with_the_name_of_its_result_leaves_it_the_name(tmp_path: Path) -> None:
    """Then `mace validate --layers` compares the result in ONNX's order of axes, as the framework has it."""
    text = "(float[1,2,4,5] x, float[3,2,1,1] w) => (float[1,3,4,5] y) { [a] a = Conv(x, w) [y] y = Relu(a) }"
    graph = load(save(tmp_path / "m.onnx", HEAD + text))
    assert graph.tensors["a"].shape == (1, 3, 4, 5)
    assert [tensor.shape for name, tensor in graph.tensors.items() if name == "a.1"] == [(1, 4, 5, 3)]


def test_unknown_dimensions_are_told_together(tmp_path: Path) -> None:
    chain = CHAIN.replace("float[N] s", 'float[N,?] "mask-1", float[N] s').replace('"mask-1"', "mask")
    model = onnx.parser.parse_model(chain)
    model.graph.input[1].name = "mask-1"
    text = fault(save(tmp_path / "m.onnx", model))
    assert text.splitlines() == [
        "m.onnx: input 'x' leaves dimension 2 ('H') open",
        "m.onnx: input 'mask-1' leaves dimension 1 open; write in the deployment file, each name and ? replaced by a number:",
        '  input_tensors: [x, "mask-1", s]',
        '  input_shapes: ["1,3,H", "1,?", "1"]',
    ]


def test_an_open_batch_is_one_and_a_note_says_so(tmp_path: Path) -> None:
    text = (
        HEAD
        + "(float[N,3] x, float[5,N] mask, float[M] t, float r) => (float[a,b] y) { a = MatMul(mask, x) b = Add(a, t) y = Mul(b, r) }"
    )
    graph = load(save(tmp_path / "m.onnx", text))
    assert [graph.tensors[n].shape for n in graph.inputs] == [(1, 3), (5, 1), (1,), ()]
    assert graph.notes == (
        "m.onnx leaves the first dimension of 'x', 'mask', 't' open: taken as 1; for another, write in the deployment file:\n"
        '  input_tensors: [x, mask, t, r]\n  input_shapes: ["1,3", "5,1", "1", ""]',
    )


def test_the_lines_of_the_note_load(tmp_path: Path) -> None:
    text = HEAD + "(float[N,3] x, float r) => (float[a,b] y) { y = Mul(x, r) }"
    # "" is read as (1,).
    graph = load(save(tmp_path / "m.onnx", text), (Port("x", (4, 3)), Port("r", (1,))))
    assert [graph.tensors[n].shape for n in graph.inputs] == [(4, 3), ()]
    assert graph.notes == ()


def test_a_symbol_is_known_from_another_input(tmp_path: Path) -> None:
    graph = load(save(tmp_path / "m.onnx", CHAIN), (Port("x", (2, 3, 5)), Port("s")))
    assert graph.tensors["s"].shape == (2,)


def test_contradicting_shape(tmp_path: Path) -> None:
    text = fault(save(tmp_path / "m.onnx", CHAIN), (Port("x", (2, 5, 3)), Port("s")))
    assert "input 'x' has shape [N,3,H] in the model, [2, 5, 3] in the deployment file" in text


def test_unknown_name_gets_a_suggestion(tmp_path: Path) -> None:
    big = save(tmp_path / "m.onnx", FIXED.replace(" x", " image").replace("(x)", "(image)"))
    assert "no tensor 'imge' for the deployment file's input; did you mean 'image'?" in fault(
        big, (Port("imge"),)
    )
    assert "the model's outputs are y" in fault(big, outputs=("probabilities",))


def test_cut_on_both_sides(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", FIXED)
    graph = load(path, (Port("a"),), ("b", "y"))
    assert (graph.inputs, graph.outputs) == (("a",), ("b", "y"))
    assert [n.name for n in graph.nodes] == ["second", "third"]
    model = Model("m", (path,), inputs=(Port("a"),), outputs=(Port("b"), Port("y")))
    arrays = {"a": np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4)}
    run = Onnx().reference((path,), model)
    assert run is not None
    for name, array in run(arrays).items():
        np.testing.assert_allclose(execute(graph, arrays)[name], array, rtol=1e-6)


def test_cut_hides_what_is_not_supported(tmp_path: Path) -> None:
    path = save(
        tmp_path / "m.onnx",
        HEAD + "(float[2,3] x) => (float[k,n] y) { a = Relu(x) b = Thing(a) y = other.Thing(b) }",
    )
    assert load(path, outputs=("a",)).outputs == ("a",)


def test_unsupported_operators_are_told_together(tmp_path: Path) -> None:
    body = "{ [one] a = ImageDecoder(x) b = StringConcat(x, x) [two] y = ImageDecoder(b) }"
    lines = fault(
        save(tmp_path / "m.onnx", HEAD + "(float[2,3,3] x) => (float[2] a, float[2] y) " + body)
    ).splitlines()
    assert [line.split(" is not supported")[0] for line in lines] == [
        "m.onnx: 2 nodes (ImageDecoder), 'one', 'two': operator ai.onnx::ImageDecoder",
        "m.onnx: node 'StringConcat_1' (StringConcat): operator ai.onnx::StringConcat",
    ]
    assert all("cut the graph before it with output_tensors" in line for line in lines)


def test_faults_of_single_nodes_are_told_together(tmp_path: Path) -> None:
    body = "{ [one] a = Reshape(x, s) [two] b = Tile(x, s) c = Relu(b) y = Add(a, c) }"
    text = fault(save(tmp_path / "m.onnx", HEAD + "(float[2,3] x, int64[2] s) => (float[a,b] y) " + body))
    assert [line.split(":")[1] for line in text.splitlines()] == [
        " node 'one' (Reshape)",
        " node 'two' (Tile)",
    ]


@dataclass(frozen=True)
class ScaleAttributes(Attributes):
    by: float = 1.0
    up: bool = False


def test_operator_of_a_plugin(tmp_path: Path) -> None:
    op = Op(
        "acme::Scale",
        ("x",),
        ("y",),
        same,
        lambda x, attrs: x * attrs.by if attrs.up else x / attrs.by,
        ScaleAttributes,
    )
    text = (
        HEAD.replace('["" : 13]', '["" : 13, "acme" : 1]')
        + "(float[2] x) => (float[2] y) { [n] y = acme.Scale<by=2.0, up=1>(x) }"
    )
    path = save(tmp_path / "m.onnx", text)
    graph = verify(Onnx().load((path,), Model("m", (path,)), {**core_ops(), op.name: op}))
    assert graph.nodes[0].attrs == ScaleAttributes(2.0, True)
    assert "acme::Scale" in fault(path)


def test_functions_of_the_model(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 13, "local" : 1]> g (float[2,3] x) => (float[2,3] y)
    { [f] a = local.twice<slope=0.5>(x) y = local.twice(a) }
    <domain: "local", opset_import: ["" : 13, "local" : 1]> twice <slope: float = 0.25> (v) => (w)
    { a = local.once<alpha: float = @slope>(v) w = Add(a, v) }
    <domain: "local", opset_import: ["" : 13]> once <alpha> (v) => (w) { w = LeakyRelu<alpha: float = @alpha>(v) }"""
    path = save(tmp_path / "m.onnx", text)
    graph = load(path)
    x = {"x": np.array([[-2, 1, 3], [0, -1, 5]], np.float32)}
    a = np.where(x["x"] < 0, x["x"] * 1.5, x["x"] * 2)
    np.testing.assert_allclose(execute(graph, x)["y"], np.where(a < 0, a * 1.25, a * 2), rtol=1e-6)
    assert graph.nodes[0].sources == ("f",)
    assert graph.nodes[1].outputs == ("a",)


@pytest.mark.parametrize(
    "content", [b"", b"no model at all", b"\x08\x07", bytes(4096), b"\xff" * 300, b"\n\xff\xff\xff\xff\x7f"]
)
def test_no_model(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    assert fault(path).startswith("m.onnx: ")


def test_names_that_are_no_text(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", FIXED)
    path.write_bytes(path.read_bytes().replace(b"Relu", b"R\xff\xfeu"))
    assert "is no ONNX model" in fault(path)


def test_missing_file(tmp_path: Path) -> None:
    assert "cannot be read" in fault(tmp_path / "none.onnx")
    assert "cannot be read" in fault(tmp_path)


def weighty() -> onnx.ModelProto:
    model = onnx.parser.parse_model(
        HEAD
        + "(float[1,4,6,6] x) => (float[a,b,c,d] y) { [c] a = Conv(x, w) r = Reshape(w, s) y = Mul(a, t) }"
    )
    weights = {
        "w": np.ones((16, 4, 5, 5), np.float32),
        "t": np.ones((1, 16, 2, 2), np.float32),
        "s": np.array([-1], np.int64),
    }
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in weights.items())
    return model


@pytest.mark.slow
def test_damaged_files_give_one_error(tmp_path: Path) -> None:
    good = save(tmp_path / "m.onnx", weighty()).read_bytes()
    rng = np.random.default_rng(5)
    outcomes = {True: 0, False: 0}
    texts: list[str] = []
    for turn in range(300):
        data = bytearray(good)
        if turn < 100:
            data = data[: int(rng.integers(1, len(good)))]
        else:  # damage the structure, not the weights
            for place in rng.integers(0, 60 if turn % 2 else len(good), 4):
                data[-1 - place if turn % 3 else place] = int(rng.integers(0, 256))
        (tmp_path / "d.onnx").write_bytes(data)
        try:
            load(tmp_path / "d.onnx")
        except MaceError as error:
            texts.append(str(error))
            outcomes[False] += 1
        else:
            outcomes[True] += 1
    assert outcomes[False] > 150
    assert all(texts)


def test_cyclic_graph(tmp_path: Path) -> None:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    values = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2]) for n in "xb"]
    model = helper.make_model(
        helper.make_graph(nodes, "g", values[:1], values[1:]), opset_imports=[helper.make_opsetid("", 13)]
    )
    assert "topologically sorted" in fault(save(tmp_path / "m.onnx", model))


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/hostname", "none.bin"])
def test_weights_outside_of_the_folder(location: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(6400))
    model = weighty()
    onnx.external_data_helper.set_external_data(model.graph.initializer[0], location, 0, 6400)
    model.graph.initializer[0].ClearField("raw_data")
    assert "the data of tensor 'w' cannot be read" in fault(save(folder / "m.onnx", model))


def test_weights_beside_the_file(tmp_path: Path) -> None:
    model = weighty()
    onnx.save_model(
        model, str(tmp_path / "m.onnx"), save_as_external_data=True, location="w.bin", size_threshold=100
    )
    graph = load(tmp_path / "m.onnx")
    assert graph.weights["w"].shape == (16, 5, 5, 4)
    assert graph.weights["w"].sum() == 16 * 4 * 5 * 5


def test_old_versions_and_newer_ones(tmp_path: Path) -> None:
    old = fault(save(tmp_path / "m.onnx", FIXED.replace('"" : 13', '"" : 6')))
    assert "uses operator set 6; 7 is the oldest" in old
    assert "install a newer onnx" in fault(save(tmp_path / "m.onnx", FIXED.replace('"" : 13', '"" : 4000')))


def test_payloads_stay_in_the_file() -> None:
    model = weighty()
    for array in (np.arange(3000, dtype=np.float32), np.arange(2000, dtype=np.float64)):
        tensor = model.graph.initializer.add(
            name=str(array.dtype), data_type=helper.np_dtype_to_tensor_dtype(array.dtype)
        )
        tensor.dims.extend(array.shape)
        (tensor.float_data if array.dtype == np.float32 else tensor.double_data).extend(array)
    data = model.SerializeToString()
    light = onnx.ModelProto.FromString(without_payloads(data))
    assert light.ByteSize() < len(data) / 20
    for full, noted in zip(model.graph.initializer, light.graph.initializer, strict=True):
        if not noted.external_data:
            assert noted == full
            continue
        places = {e.key: e.value for e in noted.external_data}
        assert places["location"] == ""
        start, length = int(places["offset"]), int(places["length"])
        assert length >= MIN_PAYLOAD
        assert data[start : start + length] == numpy_helper.to_array(full).tobytes()


def test_an_output_that_a_function_does_not_have_is_refused(tmp_path: Path) -> None:
    """A call may name more outputs than its function computes; the checker of onnx lets it pass."""
    body = [helper.make_node("Relu", ["a"], ["b"])]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("acme", 1)]
    function = helper.make_function("acme", "F", ["a"], ["b"], body, opsets[:1])
    ports = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1, 2]) for n in ("x", "z")]
    graph = helper.make_graph(
        [helper.make_node("F", ["x"], ["y", "z"], domain="acme")], "g", ports[:1], ports[1:]
    )
    model = helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=9)
    with pytest.raises(MaceError, match="output 'z': nothing computes it; export the model again"):
        load(save(tmp_path / "net.onnx", model))


def test_messages_that_nest_without_end() -> None:
    content = b"x" * MIN_PAYLOAD
    for _ in range(200):
        for number in (6, 5, 1):  # attribute.g, node.attribute, graph.node
            content = bytes([number << 3 | 2]) + _varint(len(content)) + content
    with pytest.raises(WireError, match="nest"):
        without_payloads(b"\x3a" + _varint(len(content)) + content)


def _varint(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80]) + _varint(value >> 7) if value > 0x7F else bytes([value])


def test_importing_is_light() -> None:
    code = "import sys, mace_frontend_onnx; assert not {'onnx', 'onnxruntime', 'google.protobuf'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


MEMORY = """
import sys
from pathlib import Path
import mace_frontend_onnx.load as loading
from mace_frontend_onnx.ops import handlers
from mace_core.deployment import Model
from mace_core.ops import core_ops

def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

core_ops(), handlers()
path = Path(sys.argv[1])
before = peak()
graph = loading.load((path,), Model("m", (path,)), core_ops())
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the peak of memory is read from Linux's /proc"
)
def test_memory(tmp_path: Path) -> None:
    body = "(float[1,1024] x) => (float[1,1024] y) "
    body += "{ a = Gemm<transB=1>(x, w0) b = MatMul(a, w1) c = Gemm<transB=1>(b, w2) y = MatMul(c, w3) }"
    model = onnx.parser.parse_model(HEAD + body)
    size = 1024 * 1024 * 4
    for i in range(4):
        weight = np.full((1024, 1024), i, np.float32)
        model.graph.initializer.append(numpy_helper.from_array(weight, f"w{i}"))
    path = save(tmp_path / "m.onnx", model)
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(path)], check=True, capture_output=True, text=True
    )
    assert 4 * size < int(done.stdout) < 1.75 * 4 * size

"""Damaged models: each ends in one error or in a valid graph."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from malformed_models import CONTROL, CONVOLUTION, HEAD, MODELS, MOVEMENT, QUANTIZED, RUNTIME, numbers, parse
from onnx import AttributeProto, NodeProto, TensorProto, helper, numpy_helper

from mace_core.ir import Array
from mace_core.testing.malformed import Damaged, check_damaged, message_mutations, mutations


def one(what: str, model: onnx.ModelProto | bytes | None, **beside: bytes) -> Damaged:
    data = model.SerializeToString() if isinstance(model, onnx.ModelProto) else model
    return Damaged(
        what, {"m.onnx": data, **{name.replace("_", "."): b for name, b in beside.items()}}, ("m.onnx",)
    )


def random_damage() -> Iterator[Damaged]:
    for i, model in enumerate(MODELS):
        yield from (one(f"bytes {i}", data) for data in mutations(model.SerializeToString(), i, 30))
        yield from (one(f"fields {i}", m) for m in message_mutations(model, i, 50))


def changed(text: str, **constants: Array | list[int]) -> onnx.ModelProto:
    return parse("(float[2,3] x) => (float[k,l] y) { " + text + " }", **constants)


HUGE = 2**62
MODELS_BY_FAULT = {
    "a cycle": changed("a = Add(x, b) b = Relu(a) y = Relu(b)"),
    "a node that reads itself": changed("y = Add(x, y)"),
    "a huge reshape": changed("y = Reshape(x, s)", s=[HUGE, HUGE]),
    "a huge expansion": changed("y = Expand(x, s)", s=[HUGE, 2, 3]),
    "a constant of a huge shape": changed("a = ConstantOfShape(s) y = Add(x, a)", s=[1 << 40, 1 << 10]),
    "a constant of 8 GiB": changed("a = ConstantOfShape(s) b = Exp(a) y = ReduceMax(b)", s=[1 << 31]),
    "constants of 2 GiB": changed(
        "a = Expand(x, s) b = ConstantOfShape(t) c = Exp(b) y = Add(a, c)",
        s=[1 << 28, 2, 3],
        t=[1 << 29, 1, 1],
    ),
    "a constant of a shape below 0": changed("a = ConstantOfShape(s) y = Add(x, a)", s=[-1, -3]),
    "a huge tile": changed("y = Tile(x, s)", s=[HUGE, HUGE]),
    "a tile of a constant": changed("a = Tile(w, s) y = Add(x, a)", w=numbers(2, 3), s=[1 << 20, 1 << 20]),
    "a huge pad": changed("y = Pad(x, s)", s=[HUGE, 0, 0, HUGE]),
    "a pad below all": changed("y = Pad(x, s)", s=[-9, -9, 0, 0]),
    "a huge range": changed(
        "a = Range(o, n, i) b = Cast<to=1>(a) y = Add(x, b)", o=np.array(0), n=np.array(HUGE), i=np.array(1)
    ),
    "a range of steps of 0": changed(
        "a = Range(o, n, i) b = Cast<to=1>(a) y = Add(x, b)", o=np.array(0), n=np.array(9), i=np.array(0)
    ),
    "a huge one-hot": changed("a = Cast<to=7>(x) y = OneHot(a, n, v)", n=[HUGE], v=np.float32([0, 1])),
    "a huge eye": changed("a = EyeLike(x) b = Tile(a, s) y = Relu(b)", s=[HUGE, 1]),
    "a huge resize": changed("y = Resize(x, , s)", s=np.float32([1e30, 1e30])),
    "a resize by nan": changed("y = Resize(x, , s)", s=np.float32([np.nan, 1])),
    "a window of a huge size": changed("a = HannWindow(n) y = Mul(x, a)", n=np.array(HUGE)),
    "a loop of many turns": changed(
        "y = Loop(n, , x)<body = b (int64 i, bool go, float[2,3] v) => (bool on, float[2,3] u) { on = Identity(go) u = Sin(v) }>",
        n=np.array(HUGE),
    ),
    "a loop of as many turns as are written out": changed(
        "y = Loop(n, , x)<body = b (int64 i, bool go, float[2,3] v) => (bool on, float[2,3] u) { on = Identity(go) u = Sin(v) }>",
        n=np.array(4096),
    ),
    "a scan of many rows": changed(
        "a = Reshape(r, s) w, y = Scan<num_scan_inputs=1, body = n (float[1] p, float[1] q) => (float[1] t, float[1] m) "
        "{ t = Add(p, q) m = Neg(t) }>(o, a)",
        r=np.zeros((1, 4096), np.float32),
        s=[4096, 1],
        o=np.zeros(1, np.float32),
    ),
    "loops in loops": changed(
        "y = Loop(n, , x)<body = b (int64 i, bool go, float[2,3] v) => (bool on, float[2,3] u) { on = Identity(go) u = Loop(n, , v)"
        "<body = c (int64 j, bool ho, float[2,3] w) => (bool pn, float[2,3] q) { pn = Identity(ho) q = Loop(n, , w)"
        "<body = d (int64 k, bool io, float[2,3] e) => (bool qn, float[2,3] f) { qn = Identity(io) f = Sin(e) }> }> }>",
        n=np.array(1000),
    ),
    "a huge top": changed("y, i = TopK(x, n)", n=[HUGE]),
    "a huge split": changed("y, b = Split(x, n)", n=[HUGE, -HUGE]),
    "a slice beyond": changed("y = Slice(x, s, e, a, t)", s=[HUGE], e=[-HUGE], a=[-9], t=[0]),
    "a permutation of more": changed("y = Transpose<perm=[0,1,2,3,4,5]>(x)"),
    "an equation of nothing": changed('y = Einsum<equation="->->,,...">(x)'),
    "a long equation": changed(f'y = Einsum<equation="{"a" * 100000}->a">(x)'),
    "a cast to nothing": changed("y = Cast<to=99>(x)"),
    "a cast to text": changed("y = Cast<to=8>(x)"),
    "axes without end": changed("y = Unsqueeze(x, s)", s=[0] * 3000),
    "a gather beyond": changed("y = Gather(x, i)", i=[HUGE, -HUGE]),
    "a huge count of mean": changed("a = RandomNormal<shape=[1000000, 1000000]>() y = Add(x, a)"),
    "an operator of no inputs": changed("y = Relu()"),
    "a divided by 0": changed("a = Div(n, z) b = Cast<to=1>(a) y = Add(x, b)", n=[1], z=[0]),
    "a modulo by 0": changed("a = Mod(n, z) b = Cast<to=1>(a) y = Add(x, b)", n=[1], z=[0]),
    "a shift by much": changed(
        'a = BitShift<direction="LEFT">(n, z) b = Cast<to=1>(a) y = Add(x, b)',
        n=np.uint8([1]),
        z=np.uint8([200]),
    ),
    "a huge power": changed("a = Pow(n, z) b = Cast<to=1>(a) y = Add(x, b)", n=[9], z=[-3]),
}


def function(name: str, *bodies: NodeProto) -> onnx.FunctionProto:
    return helper.make_function(
        "local", name, ["v"], ["w"], bodies, [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    )


def with_functions(*functions: onnx.FunctionProto) -> onnx.ModelProto:
    model = onnx.parser.parse_model(
        HEAD.replace('"" : 17', '"" : 17, "local" : 1') + "(float[2] x) => (float[2] y) { y = local.f0(x) }"
    )
    model.functions.extend(functions)
    return model


def calls() -> Iterator[tuple[str, onnx.ModelProto]]:
    """Functions that call themselves, each other, or twice the next one."""

    def call(name: str, x: str = "v", y: str = "w") -> NodeProto:
        return helper.make_node(name, [x], [y], domain="local")

    yield "a function that calls itself", with_functions(function("f0", call("f0")))
    yield (
        "functions that call each other",
        with_functions(function("f0", call("f1")), function("f1", call("f0"))),
    )
    doubling = [
        function(f"f{i}", call(f"f{i + 1}", "v", "a"), call(f"f{i + 1}", "a", "w")) for i in range(40)
    ]
    yield (
        "functions that double",
        with_functions(*doubling, function("f40", helper.make_node("Relu", ["v"], ["w"]))),
    )
    row = [function(f"f{i}", call(f"f{i + 1}")) for i in range(500)]
    yield "functions in a row", with_functions(*row, function("f500", helper.make_node("Relu", ["v"], ["w"])))


def branches_within(depth: int, *, both: bool) -> onnx.ModelProto:
    """Ifs whose branches hold Ifs; both: in either branch, so that there are 2 ** depth."""
    outputs = [helper.make_tensor_value_info("o", 1, [2, 3])]
    least = graph = helper.make_graph([helper.make_node("Relu", ["x"], ["o"])], "g", [], outputs)
    for _ in range(depth):
        node = helper.make_node("If", ["c"], ["o"], then_branch=graph, else_branch=graph if both else least)
        graph = helper.make_graph([node], "g", [], outputs)
    inputs = [helper.make_tensor_value_info("x", 1, [2, 3]), helper.make_tensor_value_info("c", 9, [])]
    whole = helper.make_graph(list(graph.node), "g", inputs, outputs)
    return helper.make_model(whole, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def outside(**places: str | int) -> onnx.ModelProto:
    """A model whose weights lie in another file."""
    model = changed("y = Add(x, w)")
    tensor = model.graph.initializer.add(
        name="w", data_type=1, dims=[2, 3], data_location=TensorProto.EXTERNAL
    )
    for key, value in places.items():
        tensor.external_data.add(key=key, value=str(value))
    return model


def elsewhere() -> Iterator[Damaged]:
    for location in (
        "../0/m.onnx",
        "/etc/passwd",
        "/dev/zero",
        "/proc/self/mem",
        "none.bin",
        "",
        ".",
        "..",
        "w.bin/x",
        "\x00",
        "w" * 5000,
    ):
        yield one(
            f"weights in {location[:20]!r}", outside(location=location, offset=0, length=24), w_bin=bytes(24)
        )
    for offset, length in (
        (HUGE, 24),
        (0, HUGE),
        (-8, 24),
        (0, -1),
        (12, 24),
        ("nan", 24),
        (0, "0x18"),
        (0, 23),
        ("9" * 400, 24),
    ):
        places = {"offset": offset, "length": length}
        yield one(
            f"weights at {str(offset)[:9]} of {length}", outside(location="w.bin", **places), w_bin=bytes(24)
        )
        yield one(
            f"own weights at {str(offset)[:9]} of {length}", outside(location="", **places), w_bin=bytes(24)
        )
    yield one("weights without a place", outside())
    for dims in ([1 << 40], [-4], [1 << 20, 1 << 20], [2, 3]):
        sparse = changed("y = Add(x, w)")
        made_of = sparse.graph.sparse_initializer.add(dims=dims)
        made_of.values.CopyFrom(numpy_helper.from_array(np.float32([1, 2]), "w"))
        made_of.indices.CopyFrom(numpy_helper.from_array(np.array([1, 1 << 50]), "i"))
        yield one(f"a sparse constant of {dims}", sparse)
    link = outside(location="w.bin", offset=0, length=24)
    link.graph.initializer[0].dims[:] = [1 << 40, 1 << 40]
    yield one("weights of a huge shape", link, w_bin=bytes(24))


def tensors() -> Iterator[tuple[str, onnx.ModelProto]]:
    """Weights whose shape, type or elements lie."""
    for dims, kind in (
        ([HUGE, 4], 1),
        ([-2, -3], 1),
        ([2, 3], 99),
        ([2, 3], 0),
        ([2, 3], 8),
        ([2, 3], 16),
        ([0, HUGE], 1),
        ([1 << 33], 22),
    ):
        model = changed("y = Add(x, w)")
        model.graph.initializer.add(name="w", data_type=kind, dims=dims, raw_data=bytes(24))
        yield f"weights {dims} of type {kind}", model
    model = changed("y = Add(x, w)")
    model.graph.initializer.add(name="w", data_type=1, dims=[2, 3], raw_data=bytes(24), float_data=[1.0] * 6)
    yield "weights told twice", model
    model = changed("y = Add(x, w)")
    model.graph.initializer.add(name="w", data_type=1, dims=[2, 3], int64_data=[1] * 6)
    yield "weights in the wrong field", model
    for dim in (-1, 0, HUGE):
        model = changed("y = Relu(x)")
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = dim
        yield f"an input of {dim}", model


def attributes() -> Iterator[tuple[str, onnx.ModelProto]]:
    """Attributes of other types than their operators have."""
    kinds = (
        AttributeProto.INT,
        AttributeProto.FLOAT,
        AttributeProto.STRING,
        AttributeProto.INTS,
        AttributeProto.GRAPH,
        AttributeProto.TENSOR,
    )
    places = (
        *(
            (CONVOLUTION, "conv", "pads"),
            (MOVEMENT, "turn", "perm"),
            (CONTROL, "if", "then_branch"),
            (QUANTIZED, "dw", "axis"),
        ),
        *(
            (RUNTIME, "skip", "epsilon"),
            (RUNTIME, "conv", "activation_params"),
            (RUNTIME, "attention", "num_heads"),
            (RUNTIME, "softmax", "axis"),
        ),
    )
    for model, name, attribute in places:
        for kind in kinds:
            other = onnx.ModelProto()
            other.CopyFrom(model)
            node = next(n for n in other.graph.node if n.name == name)
            result = next(a for a in node.attribute if a.name == attribute)
            result.type = kind
            yield f"{attribute} as {AttributeProto.AttributeType.Name(kind)}", other
    for text in ("", "abc", "Relu", "num_heads"):
        other = onnx.ModelProto()
        other.CopyFrom(RUNTIME)
        for node in other.graph.node:
            for i, given in enumerate(node.attribute):
                if node.domain == "com.microsoft":
                    node.attribute[i].CopyFrom(helper.make_attribute(given.name, text))
        yield f"texts {text!r} for all", other
    twice = changed("y = Relu(x)")
    twice.graph.node[0].attribute.extend([helper.make_attribute("alpha", 1.0)] * 2)
    yield "an attribute twice that it has not", twice


def nested_messages(depth: int) -> bytes:
    data = b""
    for _ in range(depth):
        for number in (6, 5, 1):  # attribute.g, node.attribute, graph.node
            data = bytes([number << 3 | 2]) + length(data) + data
    return b"\x08\x08" + b"\x3a" + length(data) + data + b"B\x04\n\x00\x10\x11"


def length(data: bytes) -> bytes:
    size, made_of = len(data), bytearray()
    while size > 0x7F:
        made_of.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes((*made_of, size))


def known_damage() -> Iterator[Damaged]:
    yield from (
        one(what, model) for what, model in (*MODELS_BY_FAULT.items(), *calls(), *tensors(), *attributes())
    )
    yield from elsewhere()
    yield from (
        one(f"branches {depth} deep", branches_within(depth, both=depth < 20)) for depth in (3, 10, 30)
    )
    yield from (one(f"messages {3 * depth} deep", nested_messages(depth)) for depth in (30, 3000))
    yield one("nothing", b"")
    yield one("a folder", None)
    yield one("a graph alone", CONVOLUTION.graph.SerializeToString())
    yield one("names that are no text", CONVOLUTION.SerializeToString().replace(b"conv", b"\xff\xfe\xfdv"))
    many = changed("y = Relu(x)")
    many.graph.node[0].output[0] = "n0"
    many.graph.node.extend(helper.make_node("Relu", [f"n{i}"], [f"n{i + 1}"]) for i in range(3000))
    many.graph.node.append(helper.make_node("Relu", ["n3000"], ["y"]))
    yield one("many nodes", many)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(300)
def test_damaged_models(tmp_path: Path) -> None:
    damaged = [*(one("sound", model) for model in MODELS), *random_damage(), *known_damage()]
    assert len(damaged) >= 500
    result = check_damaged("onnx", damaged, tmp_path)
    assert result["graph"] >= len(MODELS)
    assert result["error"] > 200

"""The serialized form: numbers, fields and payloads, byte by byte, on both sides of every limit."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from mace_frontend_onnx import wire
from mace_frontend_onnx.wire import BYTES, FIXED32, FIXED64, MIN_PAYLOAD, VARINT, WireError

NUMBERS = (
    (0, b"\x00"),
    (1, b"\x01"),
    (127, b"\x7f"),
    (128, b"\x80\x01"),
    (300, b"\xac\x02"),
    (16383, b"\xff\x7f"),
    (16384, b"\x80\x80\x01"),
    (2**64 - 1, b"\xff" * 9 + b"\x01"),
)


@pytest.mark.parametrize(("number", "content"), NUMBERS)
def test_numbers_are_groups_of_seven_bits(number: int, content: bytes) -> None:
    assert wire._varint(number) == content
    assert wire._read_varint(b"\xff" + content + b"\x05", 1, len(content) + 1) == (number, len(content) + 1)


@pytest.mark.parametrize(
    ("content", "end", "place"),
    [
        (b"", 0, 0),
        (b"\x80", 1, 1),
        (b"\x80\x01", 1, 1),
        (b"\x80" * 11, 11, 10),
        (b"\x80" * 10 + b"\x01", 11, 10),
    ],
)
def test_a_number_that_does_not_end_is_refused(content: bytes, end: int, place: int) -> None:
    """A number of 64 bits takes ten bytes of seven bits each; an eleventh is refused."""
    with pytest.raises(WireError, match=f"the number before byte {place} does not end"):
        wire._read_varint(content, 0, end)


def test_ten_groups_are_a_number() -> None:
    assert wire._read_varint(b"\x80" * 9 + b"\x01", 0, 10) == (1 << 63, 10)


FIELDS = b"\x08\x96\x01" + b"\x15abcd" + b"\x19abcdefgh" + b"\x22\x03xyz" + b"\xaa\x01\x00"


def test_fields_of_each_type() -> None:
    fields = list(wire._read_fields(FIELDS, 0, len(FIELDS)))
    assert fields == [
        (1, VARINT, 0, 1, 3, 150),
        (2, FIXED32, 3, 4, 8, 0),
        (3, FIXED64, 8, 9, 17, 0),
        (4, BYTES, 17, 19, 22, 0),
        (21, BYTES, 22, 25, 25, 0),
    ]
    assert [field.size for field in fields] == [2, 4, 8, 3, 0]
    assert list(wire._read_fields(FIELDS, 17, 22)) == [(4, BYTES, 17, 19, 22, 0)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x0b", "byte 0 starts no field"),
        (b"\x08\x01\x0c", "byte 2 starts no field"),
        (b"\x22\x03xy", "the field at byte 0 ends 1 bytes after the end"),
        (b"\x15abc", "the field at byte 0 ends 1 bytes after the end"),
        (b"\x08\x01\x19abcdef", "the field at byte 2 ends 2 bytes after the end"),
        (b"\x22", "the number before byte 1 does not end"),
    ],
)
def test_fields_that_reach_too_far_are_refused(content: bytes, message: str) -> None:
    with pytest.raises(WireError, match=message):
        list(wire._read_fields(content, 0, len(content)))


def model_of(tensor: TensorProto) -> bytes:
    node = helper.make_node("Constant", [], ["y"], value=tensor)
    graph = helper.make_graph([node], "g", [], [onnx.ValueInfoProto(name="y")], [tensor])
    return bytes(helper.make_model(graph, ir_version=8).SerializeToString())


def tensors(content: bytes) -> list[TensorProto]:
    model = ModelProto.FromString(content)
    return [model.graph.initializer[0], model.graph.node[0].attribute[0].t]


def reference(tensor: TensorProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}


@pytest.mark.parametrize(
    ("size", "stays"), [(MIN_PAYLOAD, True), (MIN_PAYLOAD - 1, False), (MIN_PAYLOAD + 1, True)]
)
def test_payloads_from_a_size_on_stay_in_the_file(size: int, stays: bool) -> None:
    array = np.arange(size).astype(np.uint8)
    content = model_of(numpy_helper.from_array(array, "w"))
    result = tensors(wire.without_payloads(content))
    assert [tensor.data_location == TensorProto.EXTERNAL for tensor in result] == [stays] * 2
    for tensor in result:
        assert (tensor.name, list(tensor.dims), tensor.data_type) == ("w", [size], TensorProto.UINT8)
        if not stays:
            assert tensor.raw_data == array.tobytes()
            continue
        assert not tensor.raw_data
        entries = reference(tensor)
        assert list(entries) == ["location", "offset", "length"]
        assert (entries["location"], entries["length"]) == ("", str(size))
        start = int(entries["offset"])
        assert content[start : start + size] == array.tobytes()


COUNT = MIN_PAYLOAD


@pytest.mark.parametrize(
    ("field", "kind", "stays"),
    [
        ("float_data", TensorProto.FLOAT, True),
        ("double_data", TensorProto.DOUBLE, True),
        ("int32_data", TensorProto.INT32, False),
        ("int64_data", TensorProto.INT64, False),
        ("uint64_data", TensorProto.UINT64, False),
        ("float_data", TensorProto.COMPLEX64, False),
        ("double_data", TensorProto.COMPLEX128, False),
    ],
)
def test_which_lists_of_elements_stay(field: str, kind: int, stays: bool) -> None:
    """Only what lies in the file as in memory: integers are of variable length, complex numbers are pairs."""
    tensor = TensorProto(name="w", dims=[COUNT], data_type=kind)
    getattr(tensor, field).extend([7] * COUNT)
    result = tensors(wire.without_payloads(model_of(tensor)))
    assert [bool(reference(tensor)) for tensor in result] == [stays] * 2


def test_two_lists_of_elements_stay_as_they_are() -> None:
    tensor = TensorProto(name="w", dims=[COUNT], data_type=TensorProto.FLOAT, raw_data=bytes(4 * COUNT))
    tensor.float_data.append(1)
    assert [reference(found) for found in tensors(wire.without_payloads(model_of(tensor)))] == [{}, {}]


def test_a_stated_location_gives_way_to_the_payload() -> None:
    tensor = TensorProto(name="w", dims=[COUNT], data_type=TensorProto.UINT8, raw_data=bytes(COUNT))
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="other")
    assert [reference(found)["location"] for found in tensors(wire.without_payloads(model_of(tensor)))] == [
        "",
        "",
    ]


def test_payloads_in_branches_functions_and_lists_are_found() -> None:
    array = numpy_helper.from_array(np.zeros(COUNT, np.uint8), "w")
    inner = helper.make_graph([], "b", [], [], [array])
    nodes = [
        helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner),
        helper.make_node("Odd", [], ["z"], domain="d", graphs=[inner], tensors=[array, array]),
    ]
    model = helper.make_model(helper.make_graph(nodes, "g", [], []), ir_version=8)
    model.functions.add(name="f", domain="d").node.extend(nodes[:1])
    copy = ModelProto.FromString(wire.without_payloads(bytes(model.SerializeToString())))
    first, second = copy.graph.node
    found = [attribute.g.initializer[0] for attribute in first.attribute]
    by_name = {attribute.name: attribute for attribute in second.attribute}
    found += [by_name["graphs"].graphs[0].initializer[0], *by_name["tensors"].tensors]
    found += [attribute.g.initializer[0] for attribute in copy.functions[0].node[0].attribute]
    assert [bool(reference(tensor)) for tensor in found] == [True] * 7


def test_messages_nest_up_to_a_depth() -> None:
    deepest = wire.MAX_DEPTH
    wire._copy_message(b"", "model", (0, 0), deepest)
    with pytest.raises(WireError, match=f"messages nest more than {deepest} deep"):
        wire._copy_message(b"", "model", (0, 0), deepest + 1)

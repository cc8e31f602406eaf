"""Reads the serialized form of a model without its weights.

A parsed protobuf message holds a copy of every weight, and returns each as one more copy. So large payloads
are left in the file: each is replaced by a reference to its place before anything is parsed. The reference
has the form that ONNX gives to data outside of the message (`external_data`), with an empty location, which
stands for the model file itself.

Wire format: https://protobuf.dev/programming-guides/encoding/ ; field numbers: onnx/onnx.proto.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from mmap import mmap
from types import MappingProxyType
from typing import NamedTuple

MIN_PAYLOAD = 1024
"""Size in bytes from which a payload stays in the file. A smaller one is not worth a read of its own."""

MAX_DEPTH = 64
"""How deep messages may nest, by branches within branches; keeps damaged files from exhausting the stack."""

MAX_VARINT_BITS = 70
"""Ten groups of seven bits: the longest form of a number of 64 bits."""

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

MESSAGES: Mapping[tuple[str, int], str] = MappingProxyType(
    {
        ("model", 7): "graph",
        ("model", 25): "function",
        ("graph", 1): "node",
        ("graph", 5): "tensor",
        ("function", 7): "node",
        ("node", 5): "attribute",
        ("attribute", 5): "tensor",
        ("attribute", 6): "graph",
        ("attribute", 10): "tensor",
        ("attribute", 11): "graph",
    }
)
"""(message, field number) -> the message in that field, for all through which a tensor can be reached."""

TENSOR_TYPE, TENSOR_LOCATION, TENSOR_EXTERNAL = 2, 14, 13
PAYLOADS: Mapping[int, int | None] = MappingProxyType(
    {4: 1, 5: None, 6: None, 7: None, 9: 0, 10: 11, 11: None}
)
"""Field of a tensor that holds elements -> the element type whose memory layout the field has.

0 (raw_data) for every type; None for fields that are packed otherwise, such as variable-length integers.
"""

Data = bytes | mmap


class WireError(ValueError):
    """The bytes are no serialized message."""


class WireField(NamedTuple):
    """One field of a message: its number and wire type, and the range of bytes of the field and its content.

    value: of a VARINT field.
    """

    number: int
    wire_type: int
    start: int
    content_start: int
    end: int
    value: int

    @property
    def size(self) -> int:
        """Bytes of its content."""
        return self.end - self.content_start


def without_payloads(data: Data) -> bytes:
    """Return the serialized model with every large payload replaced by its place in the file.

    Raises WireError for malformed data.
    """
    return _copy_message(data, "model", (0, len(data)), 0)


def _copy_message(data: Data, kind: str, span: tuple[int, int], depth: int) -> bytes:
    if depth > MAX_DEPTH:
        raise WireError(f"messages nest more than {MAX_DEPTH} deep")
    fields = list(_read_fields(data, *span))
    payload = _find_payload(fields) if kind == "tensor" else None
    parts = []
    for field in fields:
        inner = MESSAGES.get((kind, field.number))
        if payload and field.number in (payload.number, TENSOR_LOCATION, TENSOR_EXTERNAL):
            continue
        if inner and field.wire_type == BYTES and field.size >= MIN_PAYLOAD:
            content = _copy_message(data, inner, (field.content_start, field.end), depth + 1)
            parts.append(_bytes_field(field.number, content))
        else:
            parts.append(data[field.start : field.end])
    if payload:
        parts.append(_reference(payload))
    return b"".join(parts)


def _find_payload(fields: Sequence[WireField]) -> WireField | None:
    """Return the field with a tensor's elements if it is the only one, large, and in the memory layout."""
    candidates = [field for field in fields if field.number in PAYLOADS]
    if len(candidates) != 1:
        return None
    (payload,) = candidates
    if payload.wire_type != BYTES or payload.size < MIN_PAYLOAD:
        return None
    element_type = next((field.value for field in fields if field.number == TENSOR_TYPE), None)
    return payload if PAYLOADS[payload.number] in (0, element_type) else None


def _reference(payload: WireField) -> bytes:
    """Return the fields `data_location` and `external_data` of a tensor whose payload stays in the file."""
    entries = (("location", ""), ("offset", str(payload.content_start)), ("length", str(payload.size)))
    pairs = (_bytes_field(1, key.encode()) + _bytes_field(2, value.encode()) for key, value in entries)
    fields = (_bytes_field(TENSOR_EXTERNAL, pair) for pair in pairs)
    external = 1  # TensorProto.DataLocation.EXTERNAL
    return _varint(TENSOR_LOCATION << 3 | VARINT) + _varint(external) + b"".join(fields)


def _bytes_field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | BYTES) + _varint(len(content)) + content


def _read_fields(data: Data, position: int, end: int) -> Iterator[WireField]:
    while position < end:
        start = position
        tag, position = _read_varint(data, position, end)
        wire_type, value, content_start = tag & 7, 0, position
        if wire_type == VARINT:
            value, position = _read_varint(data, position, end)
        elif wire_type == BYTES:
            size, content_start = _read_varint(data, position, end)
            position = content_start + size
        elif wire_type in (FIXED32, FIXED64):
            position += 4 if wire_type == FIXED32 else 8
        else:
            raise WireError(f"byte {start} starts no field")
        if position > end:
            raise WireError(f"the field at byte {start} ends {position - end} bytes after the end")
        yield WireField(tag >> 3, wire_type, start, content_start, position, value)


def _read_varint(data: Data, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end and shift < MAX_VARINT_BITS:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position += 1
        shift += 7
        if byte < 0x80:
            return value, position
    raise WireError(f"the number before byte {position} does not end")


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)

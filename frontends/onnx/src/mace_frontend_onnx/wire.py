"""The serialised form of a model, read without its weights.

A parsed protobuf message holds a copy of every weight and gives each out as one more copy. So the large
payloads are left in
the file: each is replaced by a note where it lies, before anything is parsed. The note has the form that ONNX
gives to data outside of the message (`external_data`), with an empty location, which stands for the model
file itself.

Wire format: https://protobuf.dev/programming-guides/encoding/ ; field numbers: onnx/onnx.proto.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from mmap import mmap
from types import MappingProxyType
from typing import NamedTuple

LEAST = 1024
"""Bytes from which on a payload stays in the file."""

DEPTH = 64
"""How deep messages may nest: branches within branches."""

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
"""Fields of a tensor that hold elements -> the element type whose plain bytes they are.

0 for every type, None for no type.
"""

Data = bytes | mmap


class WireError(ValueError):
    """These bytes are no serialised message."""


class Field(NamedTuple):
    """One field of a message: its number and wire type, where it starts, where its content lies.

    `value` of a varint.
    """

    number: int
    wire: int
    start: int
    begin: int
    end: int
    value: int


def without_payloads(data: Data) -> bytes:
    """The serialised model with every large payload replaced by its place in the file.

    WireError for a malformed one.
    """
    return _message(data, "model", (0, len(data)), 0)


def _message(data: Data, kind: str, span: tuple[int, int], depth: int) -> bytes:
    if depth > DEPTH:
        raise WireError(f"messages nest more than {DEPTH} deep")
    found = list(_fields(data, *span))
    payload = _payload(found) if kind == "tensor" else None
    parts = []
    for field in found:
        inner = MESSAGES.get((kind, field.number))
        if payload and field.number in (payload.number, TENSOR_LOCATION, TENSOR_EXTERNAL):
            continue
        if inner and field.wire == BYTES and field.end - field.begin >= LEAST:
            content = _message(data, inner, (field.begin, field.end), depth + 1)
            parts.append(_varint(field.number << 3 | BYTES) + _varint(len(content)) + content)
        else:
            parts.append(data[field.start : field.end])
    if payload:
        parts.append(_note(payload))
    return b"".join(parts)


def _payload(fields: list[Field]) -> Field | None:
    """The field with a tensor's elements, if it is one, large, and in the plain byte form."""
    held = [f for f in fields if f.number in PAYLOADS]
    if len(held) != 1 or held[0].wire != BYTES or held[0].end - held[0].begin < LEAST:
        return None
    kind = next((f.value for f in fields if f.number == TENSOR_TYPE), None)
    return held[0] if PAYLOADS[held[0].number] in (0, kind) else None


def _note(payload: Field) -> bytes:
    entries = (("location", ""), ("offset", str(payload.begin)), ("length", str(payload.end - payload.begin)))
    notes = (_text(1, key) + _text(2, value) for key, value in entries)
    fields = (_varint(TENSOR_EXTERNAL << 3 | BYTES) + _varint(len(note)) + note for note in notes)
    return _varint(TENSOR_LOCATION << 3 | VARINT) + _varint(1) + b"".join(fields)


def _text(number: int, text: str) -> bytes:
    return _varint(number << 3 | BYTES) + _varint(len(text)) + text.encode()


def _fields(data: Data, position: int, end: int) -> Iterator[Field]:
    while position < end:
        start = position
        tag, position = _read_varint(data, position, end)
        wire, value, begin = tag & 7, 0, position
        if wire == VARINT:
            value, position = _read_varint(data, position, end)
        elif wire == BYTES:
            size, begin = _read_varint(data, position, end)
            position = begin + size
        elif wire in (FIXED32, FIXED64):
            position += 4 if wire == FIXED32 else 8
        else:
            raise WireError(f"byte {start} starts no field")
        if position > end:
            raise WireError(f"the field at byte {start} ends {position - end} bytes after the end")
        yield Field(tag >> 3, wire, start, begin, position, value)


def _read_varint(data: Data, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end and shift < 70:
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

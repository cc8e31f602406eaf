"""Encodes networks as the driver loads them; driver/mdla_network.h describes the same bytes for C.

All numbers are little-endian. A header; the operands; the operations; a pool of words with shapes, scales and
lists of operands; then data, which begins with the TFLite file. The pool begins with the numbers of the
network's inputs and outputs. A checksum covers all behind it. A network that the vendor's compiler has made
is the same header with the compiled bytes as data.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from mace_core.errors import MaceError
from mace_core.ir import Graph, Node
from mace_core.refusal import Refusal
from mace_target_mdla.lite_model import LiteModel
from mace_target_mdla.network_operators import LOWERINGS
from mace_target_mdla.network_table import PLACE, NetworkTable
from mace_target_mdla.neuron import MAX_RANK
from mace_target_mdla.unsigned_model import UnsignedModel

MAGIC = b"MACEMDLA"
VERSION = 1
RELAX_FLOAT = 1
"""Flag: the device may compute real numbers of 32 bits with 16."""

# The driver reads these in place as C structures: mdla_network.c asserts their sizes of 80, 48 and 24 bytes.
_HEADER = struct.Struct("<8s2IQ8I3Q")
_CHECKED = 16
"""Bytes in front of what the checksum covers."""
_OPERAND = struct.Struct("<iIIfiIIIQQ")
_OPERATION = struct.Struct("<iIIIII")
_DATA_ALIGNMENT = 64


class NetworkKind(IntEnum):
    """How the driver loads a network.

    OPERATIONS: it states operands and operations to the Neuron adapter, which compiles them on the device.
    COMPILED: the adapter restores what its own storeCompiledNetwork made, or LiteRT's ahead-of-time path.
    DLA: the Neuron runtime loads a file of `ncc-tflite`.
    """

    OPERATIONS = 0
    COMPILED = 1
    DLA = 2


@dataclass(frozen=True)
class _Sections:
    """Holds the parts of an encoded network behind its header."""

    operands: Sequence[bytes]
    operations: Sequence[bytes]
    words: Sequence[bytes]
    data: bytes


def encode_network(graph: Graph, tflite: bytes, relax_float: bool = False, unsigned: bool = False) -> bytes:
    """Return the network of a graph, for a device whose runtime compiles it.

    tflite: the graph as a TFLite file, with inputs and outputs in the graph's order.
    relax_float: whether the device may compute real numbers of 32 bits with 16, as MDLA does.
    unsigned: whether the device receives the int8 tensors between the ports as uint8.
    MaceError with all operators that the adapter cannot be told, or where file and graph differ.
    """
    model = UnsignedModel(tflite, signed_ports=True) if unsigned else LiteModel(tflite)
    _compare_ports(graph, model)
    return encode_lite_model(model, relax_float)


def encode_lite_model(model: LiteModel, relax_float: bool = False) -> bytes:
    """Return the network of a TFLite file; see `encode_network`."""
    table = NetworkTable(model)
    faults = []
    ports = [*map(table.tensor, model.inputs), *map(table.tensor, model.outputs)]
    if len(set(ports)) != len(ports):
        raise MaceError(PLACE, "a tensor is two of its inputs and outputs", "leave it to the CPU")
    for operator in model.operators:
        lower = LOWERINGS.get(operator.code)
        if lower is None:
            faults.append(f"{PLACE}: the adapter has no {operator.name}; leave it to the CPU")
            continue
        try:
            lower(operator, table)
        except MaceError as error:
            faults.append(str(error))
    if faults:
        raise MaceError.of(dict.fromkeys(faults))
    sections = _encode_table(table, ports)
    counts = (len(model.inputs), len(model.outputs), model.file_bytes)
    return _join(NetworkKind.OPERATIONS, RELAX_FLOAT if relax_float else 0, counts, sections)


def refuse_encoding(node: Node, graph: Graph, unsigned: bool = False) -> Refusal | None:
    """Tell why the adapter cannot be told a node; None where it can.

    unsigned: whether it receives the int8 tensors as uint8.

    The node's own TFLite file is encoded and thrown away, so that the answer is that of `encode_network`.
    """
    from mace_tflite_writer import write_tflite

    names = [name for name in dict.fromkeys((*node.inputs, *node.outputs)) if name]
    weights = {name: graph.weights[name] for name in names if name in graph.weights}
    inputs = tuple(name for name in dict.fromkeys(node.inputs) if name and name not in weights)
    if not inputs:
        return Refusal("other", "all its inputs are constants", "let a transform compute it before")
    tensors = {name: graph.tensors[name] for name in names}
    single = Graph(graph.name, (node,), tensors, weights, inputs, node.outputs)
    try:
        tflite = write_tflite(single)
        # All tensors, because those of this file lie between the ports of the region.
        encode_lite_model(UnsignedModel(tflite, signed_ports=False) if unsigned else LiteModel(tflite))
    except MaceError as error:
        return Refusal("unsupported-op", f"the Neuron adapter: {error.relocate('')}")
    return None


def encode_compiled(graph: Graph, compiled: bytes, kind: NetworkKind) -> bytes:
    """Return a network that the vendor's compiler has made; kind: COMPILED or DLA."""
    if kind is NetworkKind.OPERATIONS or not compiled:
        raise MaceError(PLACE, "there are no compiled bytes", "state what the compiler wrote, and its kind")
    counts = (len(graph.inputs), len(graph.outputs), 0)
    return _join(kind, 0, counts, _Sections((), (), (), compiled))


def find_tflite(network: bytes) -> bytes:
    """Return the TFLite file inside of an encoded network; empty where a compiler has made it."""
    fields = _HEADER.unpack_from(network)
    start, tflite_bytes = fields[-3], fields[-1]
    return network[start : start + tflite_bytes]


def _compare_ports(graph: Graph, model: LiteModel) -> None:
    """Raise MaceError where a port of the file takes other bytes than the graph's: the driver passes both."""
    for names, numbers in ((graph.inputs, model.inputs), (graph.outputs, model.outputs)):
        required = [graph.tensors[name].bytes for name in names]
        actual = [model.tensors[number].bytes for number in numbers]
        if required != actual:
            raise MaceError(
                f"{PLACE} {graph.name!r}",
                f"the TFLite file has ports of {actual} bytes, and the graph of {required}",
                "report this as an error of mace",
            )


def _encode_table(table: NetworkTable, ports: Sequence[int]) -> _Sections:
    words: list[bytes] = [struct.pack(f"<{len(ports)}I", *ports)]
    count = len(ports)
    operands, operations = [], []

    # Tables name places in the pool by the number of a word, as mdla_network.h does.
    def append(data: bytes) -> int:
        nonlocal count
        words.append(data)
        count += len(data) // 4
        return count - len(data) // 4

    for operand in table.operands:
        if len(operand.shape) > MAX_RANK:
            raise MaceError(PLACE, f"a tensor has {len(operand.shape)} axes", f"use at most {MAX_RANK}")
        shape = append(struct.pack(f"<{len(operand.shape)}I", *operand.shape))
        scales = append(struct.pack(f"<{len(operand.scales)}f", *operand.scales))
        operands.append(
            _OPERAND.pack(
                operand.type,
                len(operand.shape),
                shape,
                operand.scale,
                operand.zero_point,
                operand.axis,
                scales,
                len(operand.scales),
                operand.offset,
                operand.size,
            )
        )
    names = bytearray()
    for call in table.operations:
        inputs = append(struct.pack(f"<{len(call.inputs)}I", *call.inputs))
        outputs = append(struct.pack(f"<{len(call.outputs)}I", *call.outputs))
        name = len(table.data) + len(names)
        # The driver reads a name up to its first NUL.
        names += call.name.encode().replace(b"\0", b"?") + b"\0"
        counts = (len(call.inputs), inputs, len(call.outputs), outputs)
        operations.append(_OPERATION.pack(call.code, *counts, name))
    return _Sections(operands, operations, words, bytes(table.data + names))


def _join(kind: NetworkKind, flags: int, counts: tuple[int, int, int], sections: _Sections) -> bytes:
    """Return the bytes of a network.

    counts: inputs, outputs, and bytes of the TFLite file at the begin of the data.
    """
    inputs, outputs, tflite_bytes = counts
    tables = b"".join((*sections.operands, *sections.operations, *sections.words))
    words = sum(map(len, sections.words)) // 4
    start = -(-(_HEADER.size + len(tables)) // _DATA_ALIGNMENT) * _DATA_ALIGNMENT
    size = start + len(sections.data)
    # The last is a reserved word, behind which the 64-bit numbers of the C structure are aligned.
    sizes = (len(sections.operands), len(sections.operations), words, inputs, outputs, 0)
    fields = (int(kind), flags, *sizes, start, len(sections.data), tflite_bytes)
    header = _HEADER.pack(MAGIC, VERSION, 0, size, *fields)
    body = bytearray(header + tables)
    body += bytes(start - len(body)) + sections.data
    # Last, because the checksum lies in front of what it covers; a view spares a copy of the weights.
    struct.pack_into("<I", body, 12, zlib.crc32(memoryview(body)[_CHECKED:]))
    return bytes(body)

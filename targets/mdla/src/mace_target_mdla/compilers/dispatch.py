"""Takes the compiled network out of a file that LiteRT's ahead-of-time compilation writes.

Such a file has one custom operator DISPATCH_OP for each compiled part. Its options, a FlexBuffer, tell where
the vendor's bytes lie in the file (litert/core/dispatch_op_schema.cc of LiteRT). Those are a FlatBuffer of
the vendor's schema (litert/vendors/mediatek/schema/neuron_schema.fbs): networks with their entry points, and
the version of the SDK.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import tflite
from flatbuffers import flexbuffers
from flatbuffers import number_types as numbers
from flatbuffers.table import Table

from mace_core.errors import MaceError
from mace_target_mdla.network import NetworkKind

DISPATCH = b"DISPATCH_OP"
KINDS = {0: NetworkKind.DLA, 2: NetworkKind.COMPILED}
"""Number of the schema's CompiledType -> how the driver loads such bytes; 1, DLB, it cannot load."""
INDEX = 1
"""The member of the schema's union BufferIndicate that numbers a buffer."""


@dataclass(frozen=True)
class DispatchedNetwork:
    """A compiled network. version: of the vendor's SDK; () where the file has none."""

    content: bytes
    kind: NetworkKind
    version: tuple[int, ...]


def read_dispatched(file: bytes, place: str) -> DispatchedNetwork:
    """Return the one network of a file.

    MaceError if the compiler left an operator, or the form is another.
    """
    try:
        return _read_graphs(_find_bytecode(file, place), place)
    # The readers of `tflite` and `flatbuffers` check no offset: a damaged file shows as any of these.
    except (struct.error, IndexError, TypeError, ValueError, AssertionError, KeyError) as error:
        problem = f"LiteRT wrote a file of another form than is known here ({type(error).__name__}: {error})"
        raise MaceError(place, problem, "install another version of ai-edge-litert") from None


def _find_bytecode(file: bytes, place: str) -> bytes:
    """Return the vendor's bytes of a file with one compiled part and nothing else."""
    model = tflite.Model.GetRootAs(file, 0)
    graph = model.Subgraphs(0)
    operators = [graph.Operators(i) for i in range(graph.OperatorsLength())]
    codes = [model.OperatorCodes(operator.OpcodeIndex()).CustomCode() for operator in operators]
    # A part is one network, and an operator that the compiler leaves would have nobody who computes it.
    if codes != [DISPATCH]:
        left = sum(code != DISPATCH for code in codes)
        raise MaceError(
            place,
            f"the vendor's compiler makes {codes.count(DISPATCH)} networks of it and leaves {left} operators",
            "give these nodes to another target, or write compiler: none",
        )
    options = flexbuffers.Loads(operators[0].CustomOptionsAsNumpy().tobytes())
    start, size = options["bytecode_offset"], options["bytecode_size"]
    bytecode = file[start : start + size]
    if not size or len(bytecode) != size:
        raise ValueError(f"bytes {start} to {start + size} of {len(file)}")
    return bytecode


def _read_graphs(bytecode: bytes, place: str) -> DispatchedNetwork:
    """Read the vendor's schema: table Graphs with subgraphs (1), data (2) and neuron_sdk_version (4)."""
    root = Table(bytecode, struct.unpack_from("<I", bytecode)[0])
    subgraphs, buffers = _tables(root, 1), _tables(root, 2)
    if len(subgraphs) != 1:
        raise ValueError(f"{len(subgraphs)} entry points")
    # Table Subgraph: type (1), the union compiled_index with its member (2) and value (3).
    kind = _scalar(subgraphs[0], 1, numbers.Int8Flags)
    if kind not in KINDS:
        raise MaceError(
            place, f"the vendor's compiler wrote a network of type {kind}", "write compiler: none"
        )
    if _scalar(subgraphs[0], 2, numbers.Uint8Flags) != INDEX:
        raise ValueError("a network that lies outside of the file")
    index = _scalar(_table(subgraphs[0], 3), 0, numbers.Int32Flags, -1)
    if not 0 <= index < len(buffers):
        raise ValueError(f"buffer {index} of {len(buffers)}")
    return DispatchedNetwork(_bytes(buffers[index], 1), KINDS[kind], _read_version(root))


def _read_version(root: Table) -> tuple[int, ...]:
    """Return the version of the SDK, a struct of three numbers."""
    offset = root.Offset(_slot(4))
    return tuple(struct.unpack_from("<3I", root.Bytes, root.Pos + offset)) if offset else ()


def _slot(field: int) -> int:
    """Return where a table's directory has a field."""
    # The directory begins with its own size and that of the table, two bytes each, like its entries.
    return 4 + 2 * field


def _scalar(table: Table, field: int, kind: type, default: int = 0) -> int:
    offset = table.Offset(_slot(field))
    return int(table.Get(kind, table.Pos + offset)) if offset else default


def _table(table: Table, field: int) -> Table:
    offset = table.Offset(_slot(field))
    if not offset:
        raise ValueError(f"field {field} is absent")
    return Table(table.Bytes, table.Indirect(table.Pos + offset))


def _tables(table: Table, field: int) -> list[Table]:
    start, count = _vector(table, field)
    return [Table(table.Bytes, table.Indirect(start + 4 * i)) for i in range(count)]


def _bytes(table: Table, field: int) -> bytes:
    start, count = _vector(table, field)
    content = bytes(table.Bytes[start : start + count])
    if not count or len(content) != count:
        raise ValueError(f"{len(content)} bytes of {count}")
    return content


def _vector(table: Table, field: int) -> tuple[int, int]:
    """Return where a vector begins and how many elements it has."""
    offset = table.Offset(_slot(field))
    if not offset:
        raise ValueError(f"field {field} is absent")
    count = table.VectorLen(offset)
    # A damaged file may state any count, and the vector is read element by element.
    if count > len(table.Bytes):
        raise ValueError(f"{count} elements")
    return table.Vector(offset), count

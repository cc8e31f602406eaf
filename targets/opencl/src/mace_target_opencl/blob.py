"""Encodes a program as bytes for the driver; `driver/opencl_blob.h` has the same layout.

The contract with what makes the calls stands in `mace_target_opencl.enqueue`.

All numbers are little-endian. The header is followed by calls, operands, offsets of the kernels' names, in a
check build of the operands' labels, then names and labels, the options of the compiler, and the source as a
raw stream of DEFLATE; each begins at a multiple of 8.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mace_core.errors import PluginError
from mace_core.memory import Arena, arena
from mace_core.program import Call, Kernel, Program
from mace_target_opencl.check_build import is_checked, label_operand
from mace_target_opencl.enqueue import FIELDS, needs_half, operands_of, render_program
from mace_target_opencl.limits import UNLIMITED, QueueLimits

MAGIC = 0x4C434F4D
"""The bytes "MOCL"."""
VERSION = 1
WEIGHTS = -1
"""The number of the binding of the constants; ports of the part count from 0: inputs, outputs, scratch."""
CHECKED = 2
"""Flag of a program whose kernels test their accesses."""
ALIGNMENT = 256
BRIEF = 4
"""Flag of a program whose long kernels are cut into slices."""
NEEDS_HALF = 1
"""Flag of a program that devices without cl_khr_fp16 cannot compute."""
COMPILER_OPTIONS = "-cl-std=CL1.2"
CALL, OPERAND = struct.Struct("<IIII6Q"), struct.Struct("<iIQQ")
"""Records of calls: kernel, operands that are read, first operand, operands, global and local size.

Those of operands: binding, unit, offset, size.
"""


@dataclass(frozen=True)
class Blob:
    """A region for the device.

    scratch: bytes for what passes between its calls.  calls, kernels: how many.  source_bytes: of the text of
    the kernels.
    """

    code: bytes
    weights: bytes
    scratch: int
    calls: int
    kernels: int
    source_bytes: int


@dataclass(frozen=True)
class Location:
    """Where a tensor lies.  binding: WEIGHTS or a port.  offset, size: bytes.  unit: bytes of an element."""

    binding: int
    offset: int
    size: int
    unit: int


def encode(program: Program, limits: QueueLimits = UNLIMITED) -> Blob:
    """Return a program as the driver reads it."""
    kernels = _list_kernels(program.calls)
    is_check_build = any(map(is_checked, kernels))
    flags = (NEEDS_HALF if any(map(needs_half, kernels)) else 0) | (CHECKED if is_check_build else 0)
    flags |= BRIEF if limits.is_brief else 0
    source = render_program(kernels).encode()
    placement = _Placement(program)
    calls, operands = bytearray(), bytearray()
    numbers = {kernel.name: number for number, kernel in enumerate(kernels)}
    for call in program.calls:
        reads = [tensor for tensor in call.reads if tensor]
        locations = [placement.find(tensor) for tensor in (*reads, *call.writes)]
        first = len(operands) // OPERAND.size
        for location in locations:
            operands += OPERAND.pack(location.binding, location.unit, location.offset, location.size)
        calls += CALL.pack(
            numbers[call.kernel.name],
            len(reads),
            first,
            len(locations),
            *_sizes(call, "global_size"),
            *_sizes(call, "local_size"),
        )
    strings = _SourceTable(list(numbers), _label_operands(program.calls) if is_check_build else [], source)
    return Blob(
        _join(_Header(flags, placement.bindings, limits.window), bytes(calls), bytes(operands), strings),
        placement.weights,
        placement.arena.bytes,
        len(program.calls),
        len(kernels),
        len(source),
    )


def _list_kernels(calls: Sequence[Call]) -> list[Kernel]:
    """Return the distinct kernels of calls, in the order of their first calls."""
    kernels: dict[str, Kernel] = {}
    for call in calls:
        other = kernels.setdefault(call.kernel.name, call.kernel)
        if other != call.kernel or call.kernel.fields != FIELDS:
            raise PluginError(
                f"kernel {call.kernel.name!r}",
                "has the name of another kernel, or other fields than its sizes",
                "make calls by `enqueue`",
            )
    return list(kernels.values())


def _label_operands(calls: Sequence[Call]) -> list[str]:
    """Return what messages call each operand of each call, in the order of the table."""
    labels: list[str] = []
    for call in calls:
        tensors = [tensor for tensor in (*call.reads, *call.writes) if tensor]
        labels += map(label_operand, operands_of(call), tensors)
    return labels


class _Placement:
    """Where the tensors of a program lie on the device."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.arena: Arena = arena(program)
        self._ports = {name: number for number, name in enumerate(program.inputs)}
        for number, name in enumerate(program.outputs, len(program.inputs)):
            self._ports[program.root(name)] = number
        self._scratch = len(program.inputs) + len(program.outputs)
        self.bindings = self._scratch + (1 if self.arena.bytes else 0)
        self._weights: dict[str, Location] = {}
        packed = bytearray()
        for name, weight in program.weights.items():
            array = np.ascontiguousarray(weight.make())
            self._weights[name] = Location(WEIGHTS, len(packed), array.nbytes, array.dtype.itemsize)
            data = array.astype(array.dtype.newbyteorder("<")).tobytes()
            packed += data + bytes(-len(data) % ALIGNMENT)
        self.weights = bytes(packed)

    def find(self, tensor: str) -> Location:
        """Return where a tensor lies."""
        root = self.program.root(tensor)
        if root in self._weights:
            return self._weights[root]
        described = self.program.tensors[root]
        size, unit = described.bytes, described.dtype.numpy.itemsize
        if root in self._ports:
            return Location(self._ports[root], 0, size, unit)
        return Location(self._scratch, self.arena.offsets[root], size, unit)


def _sizes(call: Call, field: str) -> tuple[int, int, int]:
    value = call.args[field]
    assert isinstance(value, tuple), f"{call.kernel.name}: {field} has no three numbers"
    first, second, third = value
    return int(first), int(second), int(third)


class _Header(NamedTuple):
    """The numbers of the header that no table tells."""

    flags: int
    bindings: int
    window: int


class _SourceTable(NamedTuple):
    """The names of the kernels, the labels of the operands, and the source of the kernels."""

    names: Sequence[str]
    labels: Sequence[str]
    source: bytes


def _join(first: _Header, calls: bytes, operands: bytes, strings: _SourceTable) -> bytes:
    """Return header and tables."""
    names, labels, source = strings
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    deflated = compressor.compress(source) + compressor.flush()
    starts, text = [], bytearray()
    for name in (*names, *labels):
        starts.append(len(text))
        text += name.encode() + b"\0"
    compiler_options = COMPILER_OPTIONS.encode() + b"\0"
    header = struct.pack(
        "<12I",
        MAGIC,
        VERSION,
        first.flags,
        first.bindings,
        len(names),
        len(calls) // CALL.size,
        len(operands) // OPERAND.size,
        len(text),
        len(compiler_options),
        len(source),
        len(deflated),
        first.window,
    )
    pieces = [
        header,
        calls,
        operands,
        struct.pack(f"<{len(names)}I", *starts[: len(names)]),
        struct.pack(f"<{len(labels)}I", *starts[len(names) :]),
        text,
        compiler_options,
        deflated,
    ]
    return b"".join(bytes(piece) + bytes(-len(piece) % 8) for piece in pieces)

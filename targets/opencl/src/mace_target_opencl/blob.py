"""Encodes a program as bytes for the driver; `driver/opencl_blob.h` has the same layout.

The contract with what makes the calls stands in `mace_target_opencl.enqueue`.

All numbers are little-endian. The header is followed by calls, operands, images, offsets of the kernels'
names, in a check build of the operands' labels, then names and labels, the options of the compiler, and the
source as a raw stream of DEFLATE; each begins at a multiple of 8.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from mace_core.errors import PluginError
from mace_core.memory import Arena, Touch, arena, touches_of
from mace_core.program import Call, Kernel, Program
from mace_target_opencl.check_build import is_checked, label_operand
from mace_target_opencl.enqueue import FIELDS, has_dots, needs_half, operands_of, render_program
from mace_target_opencl.image_pool import find_pitch, plan_pool
from mace_target_opencl.image_storage import count_bytes, plan_images
from mace_target_opencl.kernel_operand import QUAD
from mace_target_opencl.limits import UNLIMITED, QueueLimits

MAGIC = 0x4C434F4D
"""The bytes "MOCL"."""
VERSION = 3
WEIGHTS = -1
"""The number of the binding of the constants; ports of the part count from 0: inputs, outputs, scratch."""
IMAGE = -2
"""The number of the binding of images; the offset of an operand is the number of one then."""
POOL = -3
"""The number of the binding of the pool, in which the driver may place images too."""
CHECKED = 2
"""Flag of a program whose kernels test their accesses."""
# That of the memory space in target.py: vector loads rely on it for constants too.
ALIGNMENT = 256
BRIEF = 4
"""Flag of a program whose long kernels are cut into slices."""
DOTS = 8
"""Flag of a program whose kernels multiply bytes four at a time."""
NEEDS_HALF = 1
"""Flag of a program that devices without cl_khr_fp16 cannot compute."""
# No -cl-fast-relaxed-math: it assumes that there is no NaN, for which kernels test, and rounds freely.
COMPILER_OPTIONS = "-cl-std=CL1.2"
CALL, OPERAND = struct.Struct("<IIII6Q"), struct.Struct("<iIQQQ")
"""Records of calls: kernel, operands that are read, first operand, operands, global and local size.

Those of operands: binding, unit, offset, size, and the offset in a pool without images.
"""
IMAGE_RECORD = struct.Struct("<8IQ")
"""Record of a tensor in an image.

Rows, columns, quads, unit, slot, whether it is a constant, pitch, padding and offset.

slot: the number of the first tensor that lies in the same image, where images lie outside of the pool.
pitch: pixels from row to row in the pool.  offset: in the pool, or of a constant among the weights.
"""


@dataclass(frozen=True)
class PoolSizes:
    """Bytes for what passes between calls, where some of it lies in images.

    pool: of images and buffers together.  bound: the largest live set of these.
    buffers: of the buffers alone, where images have memory of their own.  images: of these images.
    """

    pool: int
    bound: int
    buffers: int
    images: int

    @property
    def apart(self) -> int:
        """Bytes where images have memory of their own."""
        return self.buffers + self.images


@dataclass(frozen=True)
class Blob:
    """A region for the device.

    scratch: bytes for what passes between its calls, where no such tensor lies in an image.
    image_bytes: of images that have memory of their own, constants among them.
    pool: bytes for what passes between calls elsewhere.
    calls, kernels: how many.  source_bytes: of the text of the kernels.
    """

    code: bytes
    weights: bytes
    scratch: int
    calls: int
    kernels: int
    source_bytes: int
    image_bytes: int = 0
    pool: PoolSizes | None = None


@dataclass(frozen=True)
class Location:
    """Where a tensor lies.

    binding: WEIGHTS, IMAGE, POOL or a port.
    offset, size: bytes; of an image, its number and the tensor's bytes.
    unit: bytes of an element.  apart: offset in a pool without images.
    """

    binding: int
    offset: int
    size: int
    unit: int
    apart: int = 0

    def encode(self) -> bytes:
        """Return the record of an operand that lies there."""
        return OPERAND.pack(self.binding, self.unit, self.offset, self.size, self.apart)


def encode(program: Program, limits: QueueLimits = UNLIMITED) -> Blob:
    """Return a program as the driver reads it."""
    kernels = _list_kernels(program.calls)
    is_check_build = any(map(is_checked, kernels))
    flags = (NEEDS_HALF if any(map(needs_half, kernels)) else 0) | (CHECKED if is_check_build else 0)
    flags |= (BRIEF if limits.is_brief else 0) | (DOTS if any(map(has_dots, kernels)) else 0)
    source = render_program(kernels).encode()
    placement = _Placement(program)
    calls, operands = bytearray(), bytearray()
    numbers = {kernel.name: number for number, kernel in enumerate(kernels)}
    for call in program.calls:
        reads = [tensor for tensor in call.reads if tensor]
        locations = [placement.find(tensor) for tensor in (*reads, *call.writes)]
        _check_forms(call, locations)
        first = len(operands) // OPERAND.size
        for location in locations:
            operands += location.encode()
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
        _join(
            _Header(flags, placement.bindings, limits.window, placement.sizes),
            _Tables(bytes(calls), bytes(operands), placement.encode_images()),
            strings,
        ),
        placement.weights,
        0 if placement.sizes else placement.arena.bytes,
        len(program.calls),
        len(kernels),
        len(source),
        count_bytes(placement.images),
        placement.sizes,
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


def _check_forms(call: Call, locations: Sequence[Location]) -> None:
    """Raise PluginError where a kernel takes a buffer and the tensor lies in an image, or the reverse."""
    # The two are different numbers of arguments: drivers read beyond what they got.
    for operand, location in zip(operands_of(call), locations, strict=True):
        if (operand.image is None) != (location.binding != IMAGE):
            raise PluginError(
                f"kernel {call.kernel.name!r}",
                f"reaches {str(operand.name)!r} in another form than it lies in",
                "give a tensor one form in all calls",
            )


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
        self.images = plan_images(program)
        self._image_numbers = {image.name: number for number, image in enumerate(self.images)}
        self.arena: Arena = arena(program, self._list_touches())
        # Constants have images of their own in both cases.
        self._image_bytes = count_bytes([image for image in self.images if not image.is_constant])
        self.pool = plan_pool(program, self.images, self.arena.bytes + self._image_bytes)
        self._ports = {name: number for number, name in enumerate(program.inputs)}
        for number, name in enumerate(program.outputs, len(program.inputs)):
            self._ports[program.root(name)] = number
        self._scratch = len(program.inputs) + len(program.outputs)
        self.bindings = self._scratch + (1 if self.arena.bytes and not self.pool else 0)
        self._weights: dict[str, Location] = {}
        packed = bytearray()
        # Constants of images lie behind those of the buffer, which the device gets without them.
        for name, weight in sorted(program.weights.items(), key=lambda item: item[0] in self._image_numbers):
            array = np.ascontiguousarray(weight.make())
            self._weights[name] = Location(WEIGHTS, len(packed), array.nbytes, array.dtype.itemsize)
            data = array.astype(array.dtype.newbyteorder("<")).tobytes()
            packed += data + bytes(-len(data) % ALIGNMENT)
        self.weights = bytes(packed)

    @property
    def sizes(self) -> PoolSizes | None:
        """The bytes of the pool; None where no tensor between calls lies in an image."""
        pool = self.pool
        if not pool:
            return None
        return PoolSizes(pool.bytes, pool.bound, self.arena.bytes, self._image_bytes)

    def _list_touches(self) -> list[Touch]:
        """Return what the calls do to the arena, in which no tensor in an image lies."""
        touches = []
        for touch in touches_of(self.program):
            reads, writes = (
                tuple(name for name in names if name not in self._image_numbers)
                for names in (touch.reads, touch.writes)
            )
            touches.append(replace(touch, reads=reads, writes=writes, inplace=touch.inplace and bool(writes)))
        return touches

    def encode_images(self) -> bytes:
        """Return the table of images."""
        table = bytearray()
        for image in self.images:
            form, offset, pitch = image.form, 0, 0
            if image.is_constant:
                offset = self._weights[image.name].offset
            elif self.pool:
                offset, pitch = self.pool.offsets[image.name], find_pitch(image)
            numbers = (form.rows, form.columns, form.quads, image.unit, image.slot, image.is_constant)
            table += IMAGE_RECORD.pack(*numbers, pitch, 0, offset)
        return bytes(table)

    def find(self, tensor: str) -> Location:
        """Return where a tensor lies."""
        number = self._image_numbers.get(tensor)
        if number is not None:
            image = self.images[number]
            size = image.form.rows * image.form.width * QUAD * image.unit
            return Location(IMAGE, number, size, image.unit)
        root = self.program.root(tensor)
        if root in self._weights:
            return self._weights[root]
        described = self.program.tensors[root]
        size, unit = described.bytes, described.dtype.numpy.itemsize
        if root in self._ports:
            return Location(self._ports[root], 0, size, unit)
        if self.pool:
            return Location(POOL, self.pool.offsets[root], size, unit, self.arena.offsets[root])
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
    sizes: PoolSizes | None


class _Tables(NamedTuple):
    """The records of the calls, their operands and images."""

    calls: bytes
    operands: bytes
    images: bytes


class _SourceTable(NamedTuple):
    """The names of the kernels, the labels of the operands, and the source of the kernels."""

    names: Sequence[str]
    labels: Sequence[str]
    source: bytes


def _join(first: _Header, tables: _Tables, strings: _SourceTable) -> bytes:
    """Return header and tables."""
    names, labels, source = strings
    # Negative window bits: a raw stream without zlib's header, as opencl_inflate.c reads it.
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    deflated = compressor.compress(source) + compressor.flush()
    starts, text = [], bytearray()
    for name in (*names, *labels):
        starts.append(len(text))
        text += name.encode() + b"\0"
    compiler_options = COMPILER_OPTIONS.encode() + b"\0"
    header = struct.pack(
        "<14I2Q",
        MAGIC,
        VERSION,
        first.flags,
        first.bindings,
        len(names),
        len(tables.calls) // CALL.size,
        len(tables.operands) // OPERAND.size,
        len(text),
        len(compiler_options),
        len(source),
        len(deflated),
        first.window,
        len(tables.images) // IMAGE_RECORD.size,
        # Padding: the driver reads the calls in place, and their sizes have 64 bits.
        0,
        first.sizes.pool if first.sizes else 0,
        first.sizes.buffers if first.sizes else 0,
    )
    pieces = [
        header,
        *tables,
        struct.pack(f"<{len(names)}I", *starts[: len(names)]),
        struct.pack(f"<{len(labels)}I", *starts[len(names) :]),
        text,
        compiler_options,
        deflated,
    ]
    return b"".join(bytes(piece) + bytes(-len(piece) % 8) for piece in pieces)

"""Defines parts: what a target makes of a region of a graph, and what it needs to run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from mace_core.errors import PluginError
from mace_core.ir import Tensor
from mace_core.json_types import Json

if TYPE_CHECKING:
    from mace_core.levels import Level
    from mace_core.program import Call, Program
    from mace_core.selection import Selection


@dataclass(frozen=True, eq=False)
class Stream:
    """Content of a file, made in pieces while it is written, because it may be too large for memory."""

    make: Callable[[], Iterator[bytes]]

    def __bytes__(self) -> bytes:
        return b"".join(self.make())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and bytes(self) == bytes(other)

    def __hash__(self) -> int:
        return hash(bytes(self))


Content = str | bytes | Stream


@dataclass(frozen=True)
class MemorySpace:
    """Describes memory by who can address it and by what it demands.

    Parts that name one space share its arena.

    alignment: of an address, bytes.  granule: of a size, bytes: a cache line, a page.  slack: bytes behind
    the last tensor that may be read.  capacity: bytes; None where the build knows no limit.
    """

    name: str
    alignment: int = 64
    granule: int = 64
    slack: int = 0
    capacity: int | None = None

    def round_up(self, size: int) -> int:
        """Return the bytes that a tensor of this size occupies."""
        step = max(self.alignment, self.granule)
        return -(-size // step) * step


HOST = MemorySpace("host")
"""The memory of the processor that the application runs on.

64 bytes are a cache line, and the widest vector.
"""


class BufferKind(Enum):
    """Lists the kinds of buffers that an application may bind to a port, by their names in mace_types.h."""

    HOST = "MACE_HOST"
    DMABUF = "MACE_DMABUF"
    AHARDWAREBUFFER = "MACE_AHARDWAREBUFFER"
    CL_MEM = "MACE_CL_MEM"
    RPCMEM = "MACE_RPCMEM"
    BUS_ADDRESS = "MACE_BUS_ADDRESS"


@dataclass(frozen=True)
class PartPort:
    """Describes a tensor at the edge of a part: the space in which it must lie, and its bytes there.

    size: bytes; 0 stands for the dense bytes of the tensor.
    kinds: buffers of the application that the driver imports without a copy, if the port is one of the
    model's; () stands for plain host memory only. In a space of a device, such a buffer takes the place of
    the tensor's memory; from and to host memory core copies.
    """

    tensor: Tensor
    space: MemorySpace = HOST
    size: int = 0
    kinds: tuple[BufferKind, ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes of the tensor in its space, padding of the device included."""
        return max(self.size, self.tensor.bytes)


@dataclass(frozen=True)
class FastMemory:
    """Describes memory that the processor of a part reaches faster than the rest of host memory.

    Sessions get it by `mace_config.fast_memory`, and do without it where there is none.
    space: its name, alignment, and capacity, which must be stated.  gains: tells whether a call runs faster
    where the tensors that it reads lie there.
    """

    space: MemorySpace
    gains: Callable[[Call], bool]


@dataclass(frozen=True)
class CallsBody:
    """Holds kernel calls in host memory, which core writes as plain C calls.

    levels: those of the part's own target. Its kernels are compiled for these and its weights are packed for
    these.
    fast: where tensors that only its calls touch may lie as well.
    """

    program: Program
    levels: tuple[Level, ...]
    fast: FastMemory | None = None


@dataclass(frozen=True)
class BlobBody:
    """Holds bytes that a driver loads: a compiled network, a command stream, kernels with a table of calls.

    built_by: tool and version; built_for: device generation or configuration. The driver compares both with
    the device.
    compiled: what devices compiled of it, as a `mace_cache` was given it.
    """

    code: bytes
    weights: bytes = b""
    built_by: str = ""
    built_for: str = ""
    compiled: tuple[bytes, ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 of code and weights: what is compiled of other bytes does not fit."""
        return hashlib.sha256(self.code + self.weights).hexdigest()


@dataclass(frozen=True)
class ProjectBody:
    """Holds a whole model as the files of a project of its own."""

    files: Mapping[str, Content]


Body = CallsBody | BlobBody | ProjectBody


@dataclass(frozen=True)
class PartFigures:
    """A target's report of a part whose memory core does not plan.

    inputs, outputs: as its programs take and give them.  layers: what can be read of a run, in the order of
    the runner's files.
    data_bytes, weight_bytes: memory in use.  summary: for people.  details: plain data of the target's own,
    for programs.
    """

    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    layers: tuple[Tensor, ...] = ()
    data_bytes: int = 0
    weight_bytes: int = 0
    summary: str = ""
    details: Json = field(default_factory=dict)


@dataclass(frozen=True)
class PartLayer:
    """Describes a layer that a driver shows to observers, in the order in which it computes them.

    result: dense, as the driver shows it.  node: of the graph, for the reader.  kernel: what computes it.
    sources: the model's own nodes.
    """

    result: Tensor
    node: str
    kernel: str = ""
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """States what a target made of one region, and what it needs to run.

    name: unique in the model.  target: the target's name.  nodes: of the graph that it computes, by name.
    driver: the C symbol of its `const mace_driver`; "" for plain C calls and for projects.
    scratch: bytes of its space that it needs while it runs, besides its ports; of parts with a driver.
    layers: those that its driver shows, where it has `observe`.
    selections: what was chosen for nodes that several candidates could compute; of parts with a driver.
    PluginError, which names the target, where these contradict each other.
    """

    name: str
    target: str
    inputs: tuple[PartPort, ...]
    outputs: tuple[PartPort, ...]
    body: Body
    driver: str = ""
    scratch: int = 0
    nodes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    figures: PartFigures = field(default_factory=PartFigures)
    layers: tuple[PartLayer, ...] = ()
    selections: tuple[Selection, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.body, BlobBody) != bool(self.driver):
            self._fail(
                "has a driver and no bytes for it, or bytes and no driver",
                "set driver= exactly if body= is a BlobBody",
            )
        if self.layers and not self.driver:
            self._fail("has layers that no driver shows", "leave layers= empty: core shows those of calls")
        devices = {
            port.space.name: port.space
            for port in (*self.inputs, *self.outputs)
            if port.space.name != HOST.name
        }
        if len(devices) > 1:
            self._fail(
                f"uses the spaces {', '.join(sorted(devices))}",
                "let all ports of a part lie in one space, or in host memory",
            )
        if devices and not self.driver:
            self._fail(
                "has tensors outside host memory that nothing can reach",
                "set driver=, whose copy() moves them",
            )
        for port in (*self.inputs, *self.outputs):
            if BufferKind.HOST in port.kinds and port.space.name != HOST.name:
                # The engine copies between host memory and such a space, so that none is imported there.
                self._fail(
                    f"imports host memory into {port.space.name!r} at {port.tensor.name!r}",
                    "leave HOST out of kinds=: core copies it",
                )
            if port.size and port.size < port.tensor.bytes:
                self._fail(
                    f"gives {port.tensor.name!r} {port.size} bytes of {port.tensor.bytes}",
                    "state at least its dense size",
                )

    @property
    def space(self) -> MemorySpace:
        """The space that it computes in: its device's, else host memory."""
        others = (port.space for port in (*self.inputs, *self.outputs) if port.space.name != HOST.name)
        return next(others, HOST)

    def _fail(self, problem: str, remedy: str) -> None:
        raise PluginError(f"target {self.target!r}: part {self.name!r}", problem, remedy)

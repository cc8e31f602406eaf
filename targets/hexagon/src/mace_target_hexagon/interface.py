"""The remote calls of a DSP library: methods with their parameters, and the interface file that states them.

The vendor's compiler `qaic` makes a stub and a skeleton of such a file. Ours are `driver/hexagon_part.c` and
`dsp/hexagon_dsp.c`, which need no SDK; the interface file documents the calls, and serves whoever calls the
library from an application of his own. Language and rules: Hexagon SDK, "Interface definition language".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files

from mace_core.emit.text import CComment, CIdentifier, Code
from mace_core.ir import Tensor

TEMPLATES = files("mace_target_hexagon") / "dsp"
MAX_BUFFERS = 254
"""Inputs, and outputs, of one call: the word that goes with a call has 8 bits for each count, and the lengths
of all sequences are one input more."""

MAX_BYTES = 2**31 - 1
"""Octets of a sequence, whose length is an `int` in the vendor's stubs."""

SEQUENCE, NUMBER = "sequence<octet>", "unsigned long"


@dataclass(frozen=True)
class RemoteParameter:
    """One parameter of a remote call.

    mode: "in" or "rout".  kind: SEQUENCE or NUMBER.  comment: what it is.
    """

    mode: str
    kind: str
    name: str
    comment: str = ""

    def __str__(self) -> str:
        return f"{self.mode} {self.kind} {self.name}"


@dataclass(frozen=True)
class RemoteMethod:
    """One remote call, as a function of the interface."""

    name: str
    parameters: tuple[RemoteParameter, ...]
    comment: str = ""

    @property
    def declaration(self) -> Code:
        """Return the function as the interface file declares it."""
        listed = ", ".join(map(str, self.parameters))
        return Code(f"long {CIdentifier(self.name)}({listed});")

    @property
    def about(self) -> CComment:
        """Return the comment in front of it."""
        lines = [f"{p.name}: {p.comment}" for p in self.parameters if p.comment]
        return CComment(self.comment, *lines)


COMMON_METHODS = (
    RemoteMethod(
        "load",
        (
            RemoteParameter("in", SEQUENCE, "digest"),
            RemoteParameter("in", NUMBER, "threads", "0 for as many as there are vector units"),
            RemoteParameter("in", NUMBER, "vtcm", "1 where memory of the vector units may be taken"),
            RemoteParameter("rout", NUMBER, "method", "the number of the region's function"),
            RemoteParameter("rout", NUMBER, "started", "threads that compute"),
            RemoteParameter("rout", NUMBER, "vtcm_bytes", "bytes of such memory that the regions have"),
            RemoteParameter("rout", NUMBER, "vtcm_planned", "bytes that their tensors want there"),
            RemoteParameter("rout", NUMBER, "vectors", "0 where the DSP gives no vector unit"),
        ),
        "Prepare the region with this digest; the first call decides what all regions share.",
    ),
    RemoteMethod("unload", (RemoteParameter("in", NUMBER, "method"),), "Give the memory of a region back."),
    RemoteMethod(
        "power",
        tuple(RemoteParameter("in", NUMBER, name) for name in ("corner", "dcvs", "latency_us")),
        "Vote for the DSP's clocks; corner 0 drops the votes.",
    ),
)
"""Methods that every DSP library has behind `open` and `close` of its base, `remote_handle64`."""

FIRST_NUMBER = 2
"""The number of the first method behind `open` and `close`."""


def list_methods(
    regions: Iterable[tuple[str, Sequence[Tensor], Sequence[Tensor]]],
) -> tuple[RemoteMethod, ...]:
    """Return the methods of a DSP library, those of its regions last.

    regions: name, inputs and outputs of each.
    """
    # The vendor's compiler numbers methods as they stand: those that the driver calls by number come first.
    return (*COMMON_METHODS, *(_region_method(*region) for region in regions))


def _region_method(name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> RemoteMethod:
    parameters = [_tensor_parameter("in", f"input{i}", tensor) for i, tensor in enumerate(inputs)]
    parameters += [_tensor_parameter("rout", f"output{i}", tensor) for i, tensor in enumerate(outputs)]
    return RemoteMethod(name, tuple(parameters), f"Compute the region {name}.")


def _tensor_parameter(mode: str, name: str, tensor: Tensor) -> RemoteParameter:
    # Octets whatever the type is: FastRPC swaps no bytes, and both processors are little-endian.
    shape = " x ".join(map(str, tensor.shape)) or "scalar"
    return RemoteParameter(mode, SEQUENCE, name, f"{tensor.bytes} octets, {tensor.dtype.value} {shape}")


def write_interface(module: str, methods: Sequence[RemoteMethod]) -> Code:
    """Return the interface file of a DSP library."""
    from mace_core.emit.render import render  # the target asks this module for limits only

    return render(TEMPLATES / "interface.h.in", module=CIdentifier(module), methods=methods)

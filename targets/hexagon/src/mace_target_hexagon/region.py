"""A region for the DSP as a part of a model: the header that the driver reads, and the program behind it."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from mace_core.api import BlobBody, BuildConfig, MemorySpace, Part, PartFigures, Region
from mace_core.compilation import compile_region
from mace_core.deployment.names import c_name
from mace_core.emit.code import bundle
from mace_core.errors import MaceError
from mace_core.ir import DType
from mace_core.part import CallsBody
from mace_core.plan import Plan, make_plan
from mace_target_hexagon.interface import MAX_BUFFERS, MAX_BYTES
from mace_target_hexagon.options import HexagonOptions
from mace_target_hexagon.processor import Hvx
from mace_target_hexagon.vtcm import describe_vtcm

SPACE = MemorySpace("hexagon", alignment=128, granule=128, slack=128)
"""Memory that processor and DSP share.

A vector has 128 bytes, and kernels may load a whole one where a tensor ends.
"""

DRIVER = "mace_hexagon_driver"
BUILT_BY = "mace-target-hexagon 0.1.0"
MAGIC = 0x3158484D
"""As HEXAGON_MAGIC of `driver/hexagon_interface.h`, which has the same layout."""


@dataclass(frozen=True)
class RegionBody(BlobBody):
    """Holds the header that the driver reads, and the plan that is compiled for the DSP.

    plan: with a single part of kernel calls, named after the region.  digest: of its program and weights, in
    hexadecimal.
    """

    plan: Plan | None = field(default=None, repr=False, compare=False)
    digest: str = ""


def module_name(model: str) -> str:
    """Return the name of the DSP library of a model, which its file and its functions begin with."""
    return f"{c_name(model)}_hexagon"


def compile_remote(region: Region, config: BuildConfig, options: HexagonOptions) -> Part:
    """Return a region as a part that the driver runs."""
    processor, abi = Hvx(), options.abi
    graph = region.graph.with_name(region.name)
    inputs, outputs = region.ports(SPACE)
    # Refused here and not by the call, of which only the user of a phone would learn.
    for side, ports in (("inputs", inputs), ("outputs", outputs)):
        _check_ports(
            f"model {config.model.name!r}: region {region.name}", side, [p.tensor.bytes for p in ports]
        )
    # As a build for the DSP itself compiles it: kernels, levels and packing are the DSP's, not the library's.
    calls = compile_region(Region(processor, graph), replace(config, abi=abi, target=abi))
    assert isinstance(calls.body, CallsBody)
    calls = replace(calls, body=replace(calls.body, fast=describe_vtcm(options.vtcm_kb)))
    plan = make_plan(graph, [calls])
    digest = _digest(plan, processor, abi)
    sizes = [port.tensor.bytes for port in (*inputs, *outputs)]
    module = module_name(config.model.name).encode()
    # The driver knows sizes alone: it copies bytes into shared memory, and what they mean only the DSP knows.
    code = struct.pack("<4I", MAGIC, len(inputs), len(outputs), len(module)) + digest.encode()
    code += struct.pack(f"<{len(sizes)}I", *sizes) + module
    body = RegionBody(code, built_by=BUILT_BY, built_for=abi, plan=plan, digest=digest)
    nodes = tuple(node.name for node in region.graph.nodes)
    summary = f"{len(plan.program.calls)} kernel calls on the DSP, {plan.weight_bytes} bytes of weights"
    if plan.fast.bytes:
        summary += f", {plan.fast.bytes} bytes of tensors in VTCM"
    details = {"vtcm_bytes": plan.fast.bytes, "arena_bytes": plan.host.bytes}
    figures = PartFigures(summary=summary, weight_bytes=plan.weight_bytes, details=details)
    return Part(
        region.name,
        region.target.name,
        inputs,
        outputs,
        body,
        driver=DRIVER,
        nodes=nodes,
        notes=_note_floats(region),
        figures=figures,
    )


def _check_ports(place: str, side: str, sizes: Sequence[int]) -> None:
    """Raise MaceError for what no remote call can pass."""
    if len(sizes) > MAX_BUFFERS:
        raise MaceError(
            place,
            f"has {len(sizes)} {side}; a remote call passes {MAX_BUFFERS}",
            "build without the target hexagon",
        )
    if (largest := max(sizes, default=0)) > MAX_BYTES:
        raise MaceError(
            place,
            f"has {side} of {largest} bytes; a remote call passes {MAX_BYTES}",
            "make its tensors smaller",
        )


def _digest(plan: Plan, processor: Hvx, abi: str) -> str:
    """Return what identifies a region: a library with another program or other weights has another digest."""
    # Of the sources and not of the graph: another version of a kernel makes another program, too.
    sources = bundle("region", [plan], {processor.name: processor.levels(abi)})
    digest = hashlib.sha256(f"{plan.name} {abi}".encode())
    # Each file with its length, so that no bytes can pass from one to the next without another digest.
    for name, content in sorted(sources.files.items()):
        data = content.encode() if isinstance(content, str) else bytes(content)
        digest.update(name.encode() + struct.pack("<Q", len(data)) + data)
    return digest.hexdigest()


def _note_floats(region: Region) -> tuple[str, ...]:
    """Return what a user must know of a region with floats; () for one of integers."""
    results = chain.from_iterable(node.outputs for node in region.graph.nodes)
    count = sum(region.graph.tensors[name].dtype is DType.F32 for name in results if name)
    if not count:
        return ()
    return (f"hexagon: {count} tensors of {region.name} are floats, which the DSP computes without vectors",)

"""Offers the GPU as a target: regions become kernels with a table of calls, which a driver runs."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from mace_core.api import (
    BlobBody,
    BufferKind,
    BuildConfig,
    Manifest,
    MemorySpace,
    Part,
    PartFigures,
    PartLayer,
    PartPort,
    Region,
    Target,
)
from mace_core.calibration import CalibratedTarget, Measure, Numbers
from mace_core.candidates import Candidate
from mace_core.deployment import Model
from mace_core.device_choice import ChoosingTarget
from mace_core.device_code import AssemblingTarget
from mace_core.ir import Graph
from mace_core.kernel_target import KernelTarget
from mace_core.levels import Level
from mace_core.lowering import Lower
from mace_core.program import Call, Program
from mace_core.tables import rows
from mace_core.tuning import NO_TUNING, Tuning, tuning_of
from mace_target_opencl.options import UNITS, OpenclOptions

if TYPE_CHECKING:
    from mace_target_opencl.blob import Blob

SPACE = MemorySpace("opencl", alignment=256, granule=256)
"""Memory of the GPU.  Wide loads of all devices are aligned where a tensor begins at a multiple of 256."""

BUILT_BY = "mace-target-opencl 0.1.0"
BUILT_FOR = "OpenCL 1.2"


class Opencl(KernelTarget, CalibratedTarget, ChoosingTarget, AssemblingTarget):
    """A GPU, or another device that has an OpenCL driver of version 1.2 or newer.

    options: the types in which kernels store and compute numbers, and which regions the device computes.
    """

    name = "opencl"
    device = "gpu"
    abis: ClassVar[tuple[str, ...]] = ("amd64", "arm64*", "armeabi-v7a", "armhf", "host", "riscv64", "x86*")
    calls_c: ClassVar[bool] = False

    def __init__(self, options: OpenclOptions | None = None) -> None:
        self.options = options or OpenclOptions()

    @property
    def lowerings(self) -> Mapping[str, Lower | Sequence[Candidate]]:  # type: ignore[override]
        """The lowering of each op that has kernels, read on first use."""
        from mace_target_opencl.candidates import REQUESTS, offer_candidates

        return offer_candidates(rows("mace_target_opencl.lower", "LOWERINGS"), REQUESTS)

    @property
    def quantized(self) -> Mapping[str, Lower | Sequence[Candidate]]:  # type: ignore[override]
        """The lowerings of ops over quantized tensors."""
        from mace_target_opencl.candidates import INTEGER_REQUESTS, offer_candidates

        return offer_candidates(rows("mace_target_opencl.quantized", "LOWERINGS"), INTEGER_REQUESTS)

    def levels(self, abi: str) -> tuple[Level, ...]:
        """Return nothing: the driver of the device compiles the kernels."""
        return ()

    def variants(self, abi: str) -> tuple[Level, ...]:
        """Return one level, which stands for the device, so that a tuning file chooses among candidates."""
        from mace_target_opencl.candidates import LEVEL

        return (LEVEL,)

    def parameters(self, level: Level | None) -> Hashable:
        """Return the options, which decide in which type kernels store and compute."""
        return self.options

    def lower(self, graph: Graph, abi: str = "host", tuning: Tuning = NO_TUNING) -> Program:
        """Return the program of a region."""
        from mace_target_opencl.depthwise_product import drop_requests

        options = self.options.for_abi(abi)
        if options != self.options:
            return type(self)(options).lower(graph, abi, tuning)
        return drop_requests(super().lower(graph, abi, tuning))

    def fuse(self, first: Call, second: Call, tensor: str) -> Call | None:
        """Return a kernel of an op and an element-wise one behind it, or of a depthwise convolution first."""
        # Read on first use, as the lowerings are.
        from mace_target_opencl.depthwise_product import join_depthwise
        from mace_target_opencl.fusion import fuse

        return fuse(first, second, tensor) or join_depthwise(first, second, tensor, self.options)

    def check_options(self, model: Model) -> None:
        """Raise one MaceError with every option that is unknown, or has a value that it cannot have."""
        OpenclOptions.of_model(model)

    def configure(self, model: Model) -> Target:
        """Return the target with the options of a model."""
        options = OpenclOptions.of_model(model)
        # A model that asks for nothing leaves the target as whoever made it configured it.
        return self if options == OpenclOptions() else Opencl(options)

    def worth(self, region: Graph) -> bool:
        """Tell whether a region is faster here, where the processor shares the model; else always."""
        return not self.options.is_selective or self.options.costs.is_worth(region)

    def calibrate(self, measure: Measure) -> Numbers:
        """Return the compute units of the device, and its costs where they decide about regions."""
        from mace_target_opencl.calibration import build_probes, fit_costs

        device = Opencl(replace(self.options, is_selective=False))
        probes = build_probes() if self.options.is_selective else build_probes()[:1]
        times = measure(probes, device)
        costs = fit_costs(times, measure(probes, None)) if self.options.is_selective else {}
        # A driver that does not know them says 0.
        return {**costs, **({UNITS: times[0].units} if times[0].units else {})}

    def select_device(self, name: str) -> str:
        """Return the option by which the driver takes a device."""
        return f"opencl.device={name}"

    def assemble(self, code: bytes) -> bytes | None:
        """Return machine code of PTX, which NVIDIA's driver gives out; None for any other program."""
        from mace_target_opencl.ptx import assemble_ptx

        return assemble_ptx(code)

    def compile(self, region: Region, config: BuildConfig) -> Part:
        """Return the region's kernels and calls for the driver; all its tensors lie in the GPU's memory."""
        from mace_target_opencl.binaries import describe_stale, read_binaries, select_binaries
        from mace_target_opencl.blob import encode
        from mace_target_opencl.check_build import check_bounds
        from mace_target_opencl.half_arithmetic import compute_in_half
        from mace_target_opencl.half_storage import store_in_half
        from mace_target_opencl.image_storage import store_in_images

        program = self.lower(region.graph, config.abi, tuning_of(config.model, config.abi))
        # The order matters: only factors that are stored in half precision are multiplied so, and an image
        # has the size and format of elements whose type is settled.
        if self.options.storage == "f16":
            program = store_in_half(program)
        if self.options.arithmetic == "f16":
            program = compute_in_half(program)
        program = store_in_images(program)
        if self.options.checks_bounds:
            program = check_bounds(program)
        blob = encode(program, self.options.limits)
        body = BlobBody(blob.code, blob.weights, BUILT_BY, BUILT_FOR)
        binaries = read_binaries(config.model, self.options.binaries)
        compiled = select_binaries(binaries, body)
        stale = (describe_stale(region.name, len(binaries)),) if binaries and not compiled else ()
        inputs, outputs = (tuple(map(_take_buffers, ports)) for ports in region.ports(SPACE))
        return Part(
            region.name,
            self.name,
            inputs,
            outputs,
            replace(body, compiled=compiled),
            driver="mace_opencl_driver",
            scratch=blob.scratch,
            nodes=tuple(node.name for node in region.graph.nodes),
            figures=PartFigures(
                summary=_summarize(blob),
                details={
                    "kernels": blob.kernels,
                    "source_bytes": blob.source_bytes,
                    "image_bytes": blob.image_bytes,
                    **_describe_pool(blob),
                },
            ),
            notes=stale,
            selections=program.selections,
            layers=tuple(
                PartLayer(program.tensors[call.writes[0]], call.node, call.kernel.name, call.sources)
                for call in program.calls
            ),
        )

    def manifests(self, library: str, models: Sequence[Model], abi: str) -> tuple[Manifest, ...]:
        """Return the driver, which is compiled into the library, and what it looks for at run time."""
        from mace_target_opencl.driver import manifests

        return manifests(library)


def _summarize(blob: Blob) -> str:
    """Return what the build's log says of a part."""
    line = f"{blob.calls} calls of {blob.kernels} kernels"
    if blob.pool is None:
        return line
    pool = f"{blob.pool.pool} bytes for images and buffers in one pool"
    return f"{line}; {pool}, {blob.pool.apart} where images have memory of their own"


def _describe_pool(blob: Blob) -> dict[str, int]:
    """Return the bytes of the pool, its lower bound, and those of images and buffers apart."""
    pool = blob.pool
    if pool is None:
        return {}
    return {
        "pool_bytes": pool.pool,
        "pool_lower_bound": pool.bound,
        "apart_bytes": pool.apart,
    }


def _take_buffers(port: PartPort) -> PartPort:
    """Return a port that takes buffers of the device in place of a tensor, if it is one of the model's."""
    return replace(port, kinds=(BufferKind.CL_MEM, BufferKind.AHARDWAREBUFFER))

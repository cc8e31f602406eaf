"""The CPU target: kernels for every op of the core, on any ABI."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, ClassVar

from mace_core.api import Target
from mace_core.candidates import Candidate
from mace_core.compact_weights import WideningKernels
from mace_core.deployment import Model
from mace_core.hookspecs import hookimpl
from mace_core.ir import Graph
from mace_core.kernel_target import KernelTarget
from mace_core.levels import Level
from mace_core.lowering import Lower
from mace_core.numerics import Numerics
from mace_core.program import Call, Program
from mace_core.tables import rows
from mace_core.tuning import NO_TUNING, Tuning
from mace_target_cpu.isa import GENERIC, X86, X86_DEFAULT, CpuLevel, Packing

if TYPE_CHECKING:
    from mace_core.winograd import MeasuredErrors


class Cpu(KernelTarget):
    """Any CPU, through portable C; on x86-64 with levels from SSE2 to AVX-512.

    winograd: the largest tile of Winograd's convolution that the model allows; 0 for none.
    winograd_error: the largest error that it allows them; 0 for any.
    winograd_errors: those that were measured of its filters; None to measure each again.
    takes_default_tiles: whether a model that says nothing of tiles gets those that need no permission.
    has_default_tiles: whether this one does.
    arithmetics: what `arithmetic` of a model may be, the default first.
    arithmetic: the type to which factors of products of floats may be rounded; "f32" for none.
    """

    name = "cpu"
    device = "cpu"
    winograd = 0
    winograd_error = 0.0
    winograd_errors: MeasuredErrors | None = None
    takes_default_tiles = False
    has_default_tiles = False
    arithmetics: ClassVar[tuple[str, ...]] = ("f32", "bf16")
    arithmetic = "f32"

    def __init__(self, takes_default_tiles: bool = False) -> None:
        """takes_default_tiles: not for classes that derive from this one and expect one lowering of Conv."""
        self.takes_default_tiles = takes_default_tiles

    def check_options(self, model: Model) -> None:
        """Raise one MaceError with every option that is wrong."""
        from mace_target_cpu.options import read_arithmetic  # read where a file has options

        read_arithmetic(model, self.name, self.arithmetics)

    def configure(self, model: Model) -> Target:
        """Return the target with the arithmetic and the tiles that a model allows."""
        from mace_target_cpu.options import read_arithmetic

        configured = self._allow_tiles(model)
        arithmetic = read_arithmetic(model, self.name, self.arithmetics)
        # A model that asks for nothing leaves the target as whoever made it configured it.
        if arithmetic == self.arithmetics[0]:
            return configured
        configured = copy(configured)
        configured.arithmetic = arithmetic
        return configured

    def _allow_tiles(self, model: Model) -> Cpu:
        from mace_core.winograd import MeasuredErrors, WinogradKeys  # read on first use

        keys = WinogradKeys.of_model(model)
        # Whoever wants weights as they are stored wants a small library.
        is_small = model.keys.get("weights") == "as-stored"
        takes_default = self.takes_default_tiles and not keys.is_stated and not is_small
        # A model that asks for nothing leaves the target as whoever made it configured it.
        if not keys.tile and (self.winograd or not takes_default):
            return self
        configured = copy(self)
        configured.winograd, configured.winograd_error = keys.tile, keys.error
        configured.winograd_errors, configured.has_default_tiles = MeasuredErrors(), takes_default
        return configured

    @property
    def lowerings(self) -> Mapping[str, Lower | Sequence[Candidate]]:  # type: ignore[override]
        """Every op's lowering, read on first use; convolutions by tiles too where the model allows them."""
        table: Mapping[str, Lower] = rows("mace_target_cpu.lower", "LOWERINGS")
        if self.arithmetic == "bf16":
            from mace_target_cpu.lower.bfloats import BFLOATS

            return {**table, **BFLOATS}
        if not self.winograd and not self.has_default_tiles:
            return table
        from mace_core.winograd import MeasuredErrors  # read on first use
        from mace_target_cpu.lower.default_tiles import offer_default_tiles
        from mace_target_cpu.lower.winograd import TileRules, offer_winograd

        errors = self.winograd_errors or MeasuredErrors()
        if not self.winograd:
            return {**table, "Conv": offer_default_tiles(errors)}
        return {**table, "Conv": offer_winograd(TileRules(self.winograd, self.winograd_error, errors))}

    @property
    def quantized(self) -> Mapping[str, Lower]:  # type: ignore[override]
        """The lowerings of ops over quantized tensors that have integer kernels."""
        return rows("mace_target_cpu.quantized", "LOWERINGS")

    @property
    def fixed_point(self) -> Mapping[str, Lower]:  # type: ignore[override]
        """The lowerings of the same ops by `numerics: tflite-reference`."""
        return rows("mace_target_cpu.fixed_point", "LOWERINGS")

    def lower(self, graph: Graph, abi: str = "host", tuning: Tuning = NO_TUNING) -> Program:
        """Return the program of a region; MaceError where `arithmetic: bf16` would do nothing."""
        if self.arithmetic == "bf16":
            from mace_target_cpu.options import need_floats

            need_floats(graph, self.name)
        return super().lower(graph, abi, tuning)

    def levels(self, abi: str) -> tuple[Level, ...]:
        """AVX-512 with VNNI, AVX2 and SSE2 where the ABI is x86-64, plain C elsewhere."""
        return X86_DEFAULT if is_x86(abi) else GENERIC

    def known_levels(self, abi: str) -> tuple[Level, ...]:
        """All levels of x86-64 where the ABI is one, plain C elsewhere."""
        levels = self.levels(abi)
        # A target that derives from this one has levels of its own, for which its weights are packed.
        return X86 if levels is X86_DEFAULT else levels

    def parameters(self, level: Level | None) -> Hashable:
        """How weights are packed for the level."""
        if not isinstance(level, CpuLevel):
            return Packing()
        has_halves = bool(level.half_products)
        return Packing(
            panel=level.panel,
            depth_step=level.depth_step,
            by_scalar=level.by_scalar,
            is_signed=level.is_signed,
            has_halves=has_halves,
            reads_lines=level.reads_lines,
        )

    def fuse(self, first: Call, second: Call, tensor: str) -> Call | None:
        """Products compute element-wise ops on their results; some convolutions read planes."""
        from mace_target_cpu.epilogue import fuse  # read on first use, as the lowerings are
        from mace_target_cpu.lower.lines import read_planes

        return fuse(first, second, tensor) or read_planes(first, second, tensor)

    def can_round(self, numerics: Numerics) -> bool:
        """Tell that every rule has lowerings."""
        return True

    def varies(self, call: Call) -> str | None:
        """Tell kernels whose sums depend on the level, and functions of the C library."""
        from mace_target_cpu.reproducible import why_it_varies  # read where it is asked for

        return why_it_varies(call)

    def place(self, call: Call, joint: Call, program: Program) -> Call | None:
        """Convolutions write the channels of a Concat."""
        from mace_target_cpu.placement import place

        return place(call, joint, program)

    def widening_kernels(self) -> WideningKernels:
        """Those of half precision, of bitmaps and of integers, on every level."""
        from mace_target_cpu.lower.widening import WIDENING  # read on first use, as the lowerings are

        return WIDENING


def is_x86(abi: str) -> bool:
    """Whether the ABI's processor is an x86-64; "host" is this machine."""
    from platform import machine

    return abi in ("amd64", "x86_64") or (abi == "host" and machine().lower() in ("x86_64", "amd64"))


@hookimpl
def mace_targets() -> Iterable[Target]:
    """Offer the CPU."""
    return (Cpu(takes_default_tiles=True),)

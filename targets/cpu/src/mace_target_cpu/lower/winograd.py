"""Conv of 3 x 3 windows by Winograd's tiles, where the deployment file allows their rounding errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from mace_core.candidates import Candidate
from mace_core.emit.text import Code
from mace_core.ir import DType, Node, Tensor
from mace_core.levels import Level
from mace_core.lowering import Lowering, Refused
from mace_core.ops.conv import ConvAttributes
from mace_core.program import Call, Kernel
from mace_core.winograd import ERROR, TILES, WINDOW, is_within, transform_filters, transforms
from mace_target_cpu.isa import KERNELS, MAX_LANES, panel_width
from mace_target_cpu.lower.conv import CLAMP, clamp, conv, spatial
from mace_target_cpu.lower.gemm import (
    GEMM,
    GEMM_TILES,
    MOST_ROWS,
    optional,
    pack,
    packed_size,
)

FIELDS = (
    ("batch", "i32"),
    ("channels", "i32"),
    ("in", "i32[3]"),
    ("out", "i32[3]"),
    ("pad", "i32[3]"),
    ("results", "i32"),
    ("panel", "i32"),
    ("rows", "i64"),
    *CLAMP,
)

TASK_FLOATS = 3 << 15
"""Floats of a task's transformed tiles: 384 KiB of them stay in a second-level cache of 512."""

MIN_CHANNELS = 16
"""Channels of both sides below which the transforms take as long as the products that they spare."""

MIN_TILES = 32
"""Tiles of a task that are worth more than that they stay in the cache: each reads all filters again."""

FETCH = 8
"""Multiply-adds that take as long as fetching a value of a factor, measured on processors with AVX2."""

TRANSFORM = {2: 6, 4: 10, 6: 13}
"""Tile -> multiply-adds that take as long as transforming one of its values, measured there too."""


@dataclass(frozen=True)
class SignPair:
    """Two lines of B for points that differ in their sign: the first is even + odd, the other even - odd."""

    even: Code
    odd: Code


@dataclass(frozen=True)
class DataLines:
    """The lines of B, as expressions of the vectors d[0], d[1] and so on."""

    first: Code
    pairs: tuple[SignPair, ...]
    last: Code


@dataclass(frozen=True)
class WinogradPlan:
    """Says by which tiles a convolution is computed.  tile: results of a side.  cost: in multiply-adds."""

    tile: int
    cost: float

    @property
    def side(self) -> int:
        """Values of a side of a transformed tile."""
        return self.tile + WINDOW - 1


@dataclass(frozen=True)
class Winograd:
    """Computes convolutions by tiles of `largest` x `largest` results at maximum.

    error: the largest that is allowed, see `measure_error` of `mace_core.winograd`; 0 for any.
    """

    largest: int
    error: float = 0.0

    def lower(self, node: Node, lowering: Lowering) -> None:
        """Append the call; raises Refused where it would take longer than the direct sum, or cannot be."""
        _call_winograd(node, lowering, self._plan(node, lowering))

    def estimate(self, node: Node, lowering: Lowering, level: Level) -> float:
        """Return the multiply-adds of the cheapest tile."""
        return self._plan(node, lowering).cost

    def _plan(self, node: Node, lowering: Lowering) -> WinogradPlan:
        x, w, y = (lowering.tensors[name] for name in (*node.inputs[:2], node.outputs[0]))
        attrs = node.attributes(ConvAttributes)
        is_square = w.shape[1:-1] == (WINDOW, WINDOW) and {*attrs.strides} == {*attrs.dilations} == {1}
        if not is_square or attrs.group != 1 or x.dtype is not DType.F32:
            raise Refused(
                "Winograd's tiles need windows of 3 x 3 that move by 1, one group, and f32", code="other"
            )
        if min(x.shape[-1], y.shape[-1]) < MIN_CHANNELS:
            raise Refused(
                f"Winograd's tiles take less time from {MIN_CHANNELS} channels of both sides on", code="other"
            )
        weights = lowering.constant(w.name)
        if weights is None:
            raise Refused("filters that are computed would have to be transformed in each run", code="other")
        plans = [WinogradPlan(tile, _estimate(x, y, tile)) for tile in TILES if tile <= self.largest]
        # Refused, and not just dearer: with `numerics: reproducible` the first candidate that takes a node is
        # chosen, the same one on every processor.
        direct = estimate_direct(node, lowering)
        faster = sorted((plan for plan in plans if plan.cost < direct), key=lambda plan: plan.cost)
        if not faster:
            raise Refused("Winograd's tiles would take longer than the direct sum", code="other")
        for plan in faster:
            if is_within(weights, plan.tile, self.error):
                return plan
        reason = f"the errors of Winograd's tiles are above {ERROR}: {self.error:g}"
        raise Refused(reason, code="other", remedy="state a larger one")


def offer_winograd(largest: int, error: float = 0.0) -> tuple[Candidate, ...]:
    """Return the ways to compute a convolution where tiles up to `largest` are allowed, with an error."""
    winograd = Winograd(largest, error)
    return (
        Candidate("winograd", winograd.lower, winograd.estimate),
        Candidate("direct", conv, lambda node, lowering, _: estimate_direct(node, lowering)),
    )


def _count_tiles(y: Tensor, tile: int) -> int:
    batch, height, width = y.shape[:-1]
    return batch * -(-height // tile) * -(-width // tile)


def _estimate(x: Tensor, y: Tensor, tile: int) -> float:
    """Return the multiply-adds that take as long as a convolution by tiles."""
    depth, results, tiles = x.shape[-1], y.shape[-1], _count_tiles(y, tile)
    places = (tile + WINDOW - 1) ** 2
    products = depth * (tiles * results + FETCH * (tiles + results))
    return float(places * (products + TRANSFORM[tile] * tiles * (depth + results)))


def estimate_direct(node: Node, lowering: Lowering) -> float:
    """Return the multiply-adds of the direct sum, with those that take as long as fetching its factors."""
    w, y = lowering.shape(node.inputs[1]), lowering.shape(node.outputs[0])
    pixels, results = prod(y[:-1]), y[-1]
    return float(prod(w[1:]) * (pixels * results + FETCH * (pixels + results)))


def _call_winograd(node: Node, lowering: Lowering, plan: WinogradPlan) -> None:
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    rows = _count_rows(x, y, plan)
    attrs = node.attributes(ConvAttributes)
    args = {
        "batch": x.shape[0],
        "channels": x.shape[-1],
        "in": spatial(x.shape[1:-1]),
        "out": spatial(y.shape[1:-1]),
        "pad": spatial(attrs.pads_before, 0),
        "results": y.shape[-1],
        "panel": panel_width(lowering),
        "rows": rows,
        **clamp(node),
    }
    reads = [node.inputs[0], _pack_filters(node, lowering, plan), optional(node, 2)]
    floats = _round_up(x.shape[-1]) + plan.side**2 * (rows * _floats_of_tile(x, y) + 2 * MAX_LANES)
    lowering.call(node, Call(_kernel(plan.tile), args, reads, node.outputs, scratch=4 * floats))


def _count_rows(x: Tensor, y: Tensor, plan: WinogradPlan) -> int:
    """Return the tiles of a task at maximum."""
    fitting = max(MIN_TILES, TASK_FLOATS // (plan.side**2 * _floats_of_tile(x, y)))
    return max(MOST_ROWS, min(fitting, _count_tiles(y, plan.tile)))


def _floats_of_tile(x: Tensor, y: Tensor) -> int:
    return _round_up(x.shape[-1]) + _round_up(y.shape[-1])


def _round_up(floats: int) -> int:
    """Return the floats of a row of the scratch, which whole vectors read."""
    return -(-floats // MAX_LANES) * MAX_LANES


def _pack_filters(node: Node, lowering: Lowering, plan: WinogradPlan) -> str:
    w, panel = node.inputs[1], panel_width(lowering)
    weights = lowering.constant(w)
    assert weights is not None
    shape = packed_size(plan.side**2, weights.shape[-1], weights.shape[0], panel)
    return lowering.once(
        (w, "winograd", shape),
        lambda: lowering.weight(
            f"{w}_winograd", shape, "float32", lambda: pack(transform_filters(weights, plan.tile), panel)
        ),
    )


def _kernel(tile: int) -> Kernel:
    matrices = transforms(tile)
    first, *middle, last = matrices.data
    pairs = tuple(
        SignPair(_spell(_every_other(row, 0), "d"), _spell(_every_other(row, 1), "d")) for row in middle[::2]
    )
    data = DataLines(_spell(first, "d"), pairs, _spell(last, "d"))
    params = {
        "tile": tile,
        "side": tile + WINDOW - 1,
        "data": data,
        "results": tuple(_spell_results(row, power) for power, row in enumerate(matrices.results)),
    }
    return Kernel(
        f"conv_winograd{tile}_f32", KERNELS / "conv_winograd.c.in", FIELDS, params, (*GEMM, GEMM_TILES)
    )


def _every_other(row: Sequence[Fraction], start: int) -> list[Fraction]:
    """Return a row with zeros in every second place."""
    return [factor if place % 2 == start else Fraction(0) for place, factor in enumerate(row)]


def _spell(row: Sequence[Fraction], name: str) -> Code:
    """Return the product of a row with the vectors NAME[0], NAME[1] and so on, as an expression of C."""
    # Zeros are left out: a product with 0 is NaN for an infinity.
    return _join([_spell_term(factor, f"{name}[{place}]") for place, factor in enumerate(row) if factor])


def _spell_results(row: Sequence[Fraction], power: int) -> Code:
    """Return a line of A, by sums and differences of the places of points that differ in their sign."""
    kind = "difference" if power % 2 else "sum"
    terms = [_spell_term(factor, f"{kind}_{pair}") for pair, factor in enumerate(row[1:-1:2])]
    unpaired = [_spell_term(row[place], f"m[{place}]") for place in (0, len(row) - 1) if row[place]]
    return _join([*unpaired, *terms])


def _spell_term(factor: Fraction, name: str) -> str:
    sign = "-" if factor < 0 else "+"
    return f"{sign} {name}" if abs(factor) == 1 else f"{sign} {float(abs(factor))!r}f * {name}"


def _join(terms: Sequence[str]) -> Code:
    return Code(" ".join(terms).removeprefix("+ "))

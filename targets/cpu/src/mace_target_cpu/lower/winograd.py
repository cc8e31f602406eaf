"""Conv of 3 x 3 windows by Winograd's tiles, where the deployment file allows their rounding errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from mace_core.candidates import Candidate
from mace_core.emit.text import Code
from mace_core.ir import Array, DType, Node, Tensor
from mace_core.levels import Level
from mace_core.lowering import Lowering, Refused
from mace_core.ops.conv import ConvAttributes
from mace_core.program import Call, Kernel
from mace_core.winograd import (
    ERROR,
    TILES,
    WINDOW,
    MeasuredErrors,
    is_within,
    transform_filters,
    transforms,
)
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
from mace_target_cpu.lower.winograd_costs import count_tiles, estimate_direct, estimate_tiles

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
class TileRules:
    """The tiles that a model allows.

    largest: results of a side at maximum.  error: the largest that is allowed, see `measure_error` of
    `mace_core.winograd`; 0 for any.  errors: those that were measured.
    """

    largest: int
    error: float = 0.0
    errors: MeasuredErrors = field(default_factory=MeasuredErrors)

    def choose(self, node: Node, lowering: Lowering) -> int:
        """Return the cheapest tile; raises Refused where none takes less time than the direct sum."""
        weights = read_filters(node, lowering)
        x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
        # Refused, and not just dearer: with `numerics: reproducible` the first candidate that takes a node is
        # chosen, the same one on every processor. So no level is asked here.
        direct = estimate_direct(node, lowering)
        costs = {tile: estimate_tiles(x, y, tile) for tile in TILES if tile <= self.largest}
        faster = sorted((tile for tile, cost in costs.items() if cost < direct), key=lambda tile: costs[tile])
        if not faster:
            raise Refused("Winograd's tiles would take longer than the direct sum", code="other")
        for tile in faster:
            if is_within(weights, tile, self.error, self.errors.measure):
                return tile
        raise self.refuse_errors()

    def refuse_errors(self) -> Refused:
        """Return the refusal of tiles that are not near enough to the direct sum."""
        reason = f"the errors of Winograd's tiles are above {ERROR}: {self.error:g}"
        return Refused(reason, code="other", remedy="state a larger one")


@dataclass(frozen=True)
class Winograd:
    """Computes convolutions by tiles of `tile` x `tile` results, 0 for the cheapest tile."""

    rules: TileRules
    tile: int = 0

    def lower(self, node: Node, lowering: Lowering) -> None:
        """Append the call; raises Refused where it cannot be."""
        call_winograd(node, lowering, self._choose(node, lowering))

    def estimate(self, node: Node, lowering: Lowering, level: Level) -> float:
        """Return the multiply-adds in whose time the tiles are computed at a level."""
        x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
        return estimate_tiles(x, y, self._choose(node, lowering))

    def _choose(self, node: Node, lowering: Lowering) -> int:
        if not self.tile:
            return self.rules.choose(node, lowering)
        weights = read_filters(node, lowering)
        if not is_within(weights, self.tile, self.rules.error, self.rules.errors.measure):
            raise self.rules.refuse_errors()
        if self.tile == self._cheapest(node, lowering):
            raise Refused(f"candidate winograd has tiles of {self.tile}", code="other")
        return self.tile

    def _cheapest(self, node: Node, lowering: Lowering) -> int:
        """Return the tile of the candidate for the cheapest one, 0 where that is refused."""
        try:
            return self.rules.choose(node, lowering)
        except Refused:
            return 0


def offer_winograd(rules: TileRules) -> tuple[Candidate, ...]:
    """Return the ways to compute a convolution where tiles are allowed.

    Tiles of each size stand behind the others: at a level the cheapest may be another one, and `mace tune`
    measures each.
    """
    cheapest = Winograd(rules)
    sizes = [Winograd(rules, tile) for tile in TILES if tile <= rules.largest]
    return (
        Candidate("winograd", cheapest.lower, cheapest.estimate),
        Candidate("direct", conv, estimate_direct),
        *(Candidate(f"winograd-{one.tile}", one.lower, one.estimate) for one in sizes),
    )


def read_filters(node: Node, lowering: Lowering) -> Array:
    """Return the filters of a convolution that tiles can compute; raises Refused for others."""
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
    return weights


def call_winograd(node: Node, lowering: Lowering, tile: int) -> None:
    """Append the call of a convolution that `read_filters` takes, by tiles of one size."""
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    rows = _count_rows(x, y, tile)
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
    reads = [node.inputs[0], _pack_filters(node, lowering, tile), optional(node, 2)]
    floats = _round_up(x.shape[-1]) + count_places(tile) * (rows * _floats_of_tile(x, y) + 2 * MAX_LANES)
    lowering.call(node, Call(_kernel(tile), args, reads, node.outputs, scratch=4 * floats))


def count_places(tile: int) -> int:
    """Return the values of a transformed tile."""
    return (tile + WINDOW - 1) ** 2


def _count_rows(x: Tensor, y: Tensor, tile: int) -> int:
    """Return the tiles of a task at maximum."""
    fitting = max(MIN_TILES, TASK_FLOATS // (count_places(tile) * _floats_of_tile(x, y)))
    return max(MOST_ROWS, min(fitting, count_tiles(y, tile)))


def _floats_of_tile(x: Tensor, y: Tensor) -> int:
    return _round_up(x.shape[-1]) + _round_up(y.shape[-1])


def _round_up(floats: int) -> int:
    """Return the floats of a row of the scratch, which whole vectors read."""
    return -(-floats // MAX_LANES) * MAX_LANES


def _pack_filters(node: Node, lowering: Lowering, tile: int) -> str:
    w, panel = node.inputs[1], panel_width(lowering)
    weights = lowering.constant(w)
    assert weights is not None
    shape = packed_size(count_places(tile), weights.shape[-1], weights.shape[0], panel)
    return lowering.once(
        (w, "winograd", shape),
        lambda: lowering.weight(
            f"{w}_winograd", shape, "float32", lambda: pack(transform_filters(weights, tile), panel)
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

"""Convolutions of bytes with 3 x 3 windows by Winograd's minimal filtering, exact in integers.

A tile of 4 x 4 results takes 36 products for each pair of channels instead of 144. Words of 16 bits are
multiplied, three quarters as many in the same time as bytes at AVX2. Weights are transformed when they are
used, because they would take eight times the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from mace_core.candidates import Candidate
from mace_core.ir import Node
from mace_core.levels import Level
from mace_core.lowering import Lowering, Refused
from mace_core.program import Arg, Call
from mace_target_cpu.isa import KERNELS, PANEL, X86, CpuLevel, packing
from mace_target_cpu.lower.conv import GEOMETRY
from mace_target_cpu.lower.geometry import read_axes
from mace_target_cpu.quantized.products import PRODUCT_RESULT
from mace_target_cpu.quantized.storage import CODES, EIGHT_BITS
from mace_target_cpu.quantized.winograd_check import RESULT_BITS, check_winograd

TEMPLATE = KERNELS / "conv_winograd_quantized.c.in"
HELPER = KERNELS / "winograd_words.h.in"
LEVELS = (*(str(level.name) for level in X86 if not level.byte_tiles), "neon")

FIELDS = (
    *GEOMETRY,
    *((name, "i32") for name in ("x_zero", "w_zero", "x_type", "results")),
    ("tile_rows", "i64"),
    *PRODUCT_RESULT,
)

SIDE, TILE = 6, 4
PLACES, GROUP_PLACES = SIDE * SIDE, 2 * SIDE
PAD = 32
"""Words behind the matrix of a place: WINOGRAD_PAD of winograd_words.h.in."""

CHANNELS = 256
"""Channels whose weights are transformed at a time: WINOGRAD_CHANNELS."""

ALIGNMENT = 64

MAX_TILES = 64
"""Tiles of a block. Each block transforms all weights, in the time of eight of its tiles."""

DATA_BYTES = 1 << 19
"""Data of a block at their places: as large as the second-level cache of the processors that are common."""

MAX_SCRATCH = 1 << 22

DATA_COST, WEIGHTS_COST, RESULTS_COST = 7, 4, 20
"""Time to transform a tile's datum, a weight, and a tile of one column's results, in products of words.

Measured at AVX2, where such a product (of a tile, a channel and a column) takes half a nanosecond.
"""

DIRECT_COST = {"pairs": 1.25, "quads": 1.25, "vnni": 0.43, "smull": 0.75}
"""Time of a product of bytes as kernels without tiles compute it, by `CpuLevel.dot`, beside that of words.

Measured at AVX2, and with AVX-512 on two processors. On a Xeon of the fifth generation 64 channels at 56 x 56
took 547 microseconds by tiles, 128 at 28 x 28 495, and as many products of 256 and 512 channels without tiles
520 to 540: 0.35. An EPYC (Zen 4) begins one product of 64 bytes in a cycle but two transforms, where the Xeon
shares its two pipes between both: 0.53 fits eight shapes there. A library cannot tell them apart when it is
built, so "vnni" is the geometric mean, by which each loses about as much as the other.
At NEON 27 instructions of smull, smlal and sadalp do 144 products of bytes, and one of smlal four of words.
"""

MakeCall = Callable[[Node, Lowering], Call]
"""Makes the call of conv_quantized for a node, or refuses it."""


@dataclass(frozen=True)
class Tiles:
    """How the results of a convolution are cut in tiles.

    rows, across: rows of tiles of all images, and the tiles of each.  block: rows that are computed together.
    """

    rows: int
    across: int
    block: int
    channels: int

    @classmethod
    def from_shape(cls, images: int, size: tuple[int, int], channels: int) -> Tiles:
        """For images of a size; blocks are as equal as they can be."""
        down, across = (-(-pixels // TILE) for pixels in size)
        room = min(MAX_TILES, DATA_BYTES // (2 * PLACES * channels)) // max(1, across)
        rows = images * down
        blocks = -(-rows // max(1, room))
        return cls(rows, across, -(-rows // max(1, blocks)), channels)

    @property
    def scratch(self) -> int:
        """Bytes of a worker: see conv_winograd_quantized.c.in."""
        tiles, pixel = self.block * self.across, -(-self.channels // ALIGNMENT) * ALIGNMENT
        sums = 4 * PLACES * PANEL * (tiles + 1)
        weights = 2 * GROUP_PLACES * (min(self.channels, CHANNELS) * PANEL + PAD)
        data = 2 * PLACES * (tiles * self.channels + PAD)
        return ALIGNMENT + sums + weights + data + (1 + PLACES) * pixel

    def compare_cost(self, columns: int, pixels: int, dot: str) -> float:
        """Return the time of the convolution beside that of one without tiles.

        dot: how that sums products of bytes.
        """
        tiles, blocks = self.rows * self.across, -(-self.rows // max(1, self.block))
        padded = -(-columns // PANEL) * PANEL
        transforms = tiles * self.channels * DATA_COST + tiles * padded * RESULTS_COST
        transforms += blocks * self.channels * padded * WEIGHTS_COST
        products = tiles * self.channels * padded
        direct = DIRECT_COST[dot] * 9 / PLACES * pixels * self.channels * padded
        return (products + transforms) / max(1.0, direct)


def use_winograd(call: Call, lowering: Lowering) -> Call:
    """Return a call of conv_quantized by tiles; Refused for other windows and for sums that are too large."""
    if call.args["x_type"] not in {CODES[dtype] for dtype in EIGHT_BITS}:
        raise Refused("its activations are not of eight bits", code="dtype")
    order = packing(lowering)
    if (order.panel, order.depth_step, order.by_scalar) != (PANEL, 4, False):
        raise Refused("its weights are packed for a level with another instruction", code="other")
    tiles = _cut_tiles(call.args)
    packed = lowering.weights[call.reads[1]].make()
    low, high = check_winograd(
        packed, _number(call.args["w_zero"]), _number(call.args["results"]), is_signed=order.is_signed
    )
    kernel = replace(
        call.kernel,
        name="conv_winograd_quantized",
        template=TEMPLATE,
        fields=FIELDS,
        params={},
        helpers=(*call.kernel.helpers, HELPER),
    )
    args = {name: call.args[name] for name, _ in FIELDS if name != "tile_rows"}
    proof = f"sums of products lie between {low} and {high}, so {RESULT_BITS} bits hold them"
    return replace(
        call,
        kernel=kernel,
        args={**args, "tile_rows": tiles.block},
        reads=call.reads[:4],
        scratch=tiles.scratch,
        proof=proof,
    )


def _cut_tiles(args: Mapping[str, Arg]) -> Tiles:
    """Return the tiles of a kernel's geometry; Refused if its windows or channels do not allow any."""
    kernel, stride, dilation, pad = (
        read_axes(args[name]) for name in ("kernel", "stride", "dilation", "pad")
    )
    inside, out, channels = read_axes(args["in"]), read_axes(args["out"]), _number(args["channels"])
    is_plane = inside[0] == out[0] == 1 and pad[0] == 0
    if not is_plane or kernel != (1, 3, 3) or stride != (1, 1, 1) or dilation != (1, 1, 1):
        raise Refused("its windows are not 3 x 3 neighbors at every pixel of a plane", code="shape")
    if args["group"] != 1 or channels % 4 or not channels:
        reason = f"it has {args['group']} groups and {channels} channels, not one group of whole quads"
        raise Refused(reason, code="shape")
    tiles = Tiles.from_shape(_number(args["batch"]), (out[1], out[2]), channels)
    if not tiles.rows or not tiles.across:
        raise Refused("it has no results", code="shape")
    if tiles.scratch > MAX_SCRATCH:
        raise Refused(f"a row of its tiles takes {tiles.scratch} bytes of scratch", code="too-large")
    return tiles


def _number(value: Arg) -> int:
    assert isinstance(value, int)
    return value


def offer_winograd(make: MakeCall, plain_cost: Callable[[Node, Lowering, Level], float]) -> Candidate:
    """Return the candidate that computes a node by tiles.

    plain_cost: of the candidate that takes every convolution.
    """

    def lower(node: Node, lowering: Lowering) -> None:
        lowering.call(node, use_winograd(make(node, lowering), lowering))

    def cost(node: Node, lowering: Lowering, level: Level) -> float:
        call, y = make(node, lowering.fork()), lowering.tensors[node.outputs[0]]
        columns = y.shape[-1]
        assert isinstance(level, CpuLevel)
        ratio = _cut_tiles(call.args).compare_cost(columns, y.elements // max(1, columns), level.dot)
        return plain_cost(node, lowering, level) * ratio

    return Candidate("winograd", lower, cost, LEVELS)

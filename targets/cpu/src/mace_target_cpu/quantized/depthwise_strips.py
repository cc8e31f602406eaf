"""Depthwise convolutions of bytes by pairs of taps in strips of the image, for AVX2."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from mace_core.candidates import Candidate
from mace_core.ir import Array, DType, Node
from mace_core.levels import Level
from mace_core.lowering import Lowering, Refused
from mace_core.program import Arg, Call
from mace_target_cpu.isa import KERNELS, X86
from mace_target_cpu.lower.geometry import read_axes
from mace_target_cpu.quantized.storage import EIGHT_BITS

TEMPLATE = KERNELS / "conv_depthwise_strips.c.in"
HELPERS = (KERNELS / "depthwise_pairs.h.in", KERNELS / "depthwise_columns.h.in")
LEVELS = tuple(str(level.name) for level in X86 if level.lanes == 8)

BLOCK = 32
"""Channels that are computed at a time."""

FEW_CHANNELS = (8, 16, 24)
"""Numbers of channels below a block that the kernel copies and stores in pieces of eight bytes."""

MAX_TAPS = 64

MIN_BYTE, MAX_BYTE = -128, 127

STRIP_BYTES = 1 << 15
"""Of a strip, unless one row of results needs more: as large as the first-level cache."""

MakeCall = Callable[[Node, Lowering], Call]
"""Makes the call of conv_depthwise_quantized, or refuses the node."""


def cut_strips(args: Mapping[str, Arg]) -> tuple[int, int]:
    """Return the rows of results that are computed from a strip, and the strip's bytes.

    args: of the kernel's geometry, of windows in a plane.
    """
    out, kernel, stride, dilation = (
        read_axes(args[name]) for name in ("out", "kernel", "stride", "dilation")
    )
    reach = [(size - 1) * step for size, step in zip(kernel, dilation, strict=True)]
    channels = int(str(args["channels"]))
    pitch = channels if BLOCK % channels == 0 else BLOCK
    # The columns of each remainder by the stride lie one after another.
    span = -(-((out[2] - 1) * stride[2] + reach[2] + 1) // stride[2])
    line = stride[2] * span * pitch
    rows = max(1, (STRIP_BYTES // line - reach[1] - 1) // stride[1] + 1)
    rows = min(rows, out[1])
    # The last block of a line may be read as a whole.
    return rows, ((rows - 1) * stride[1] + reach[1] + 1) * line + BLOCK


def count_shared_columns(args: Mapping[str, Arg], taps: Array) -> int:
    """Return how many columns of windows of 3 x 3 a block of results shares with the next one.

    0 where windows are others, and where depthwise_columns.h.in is not exact.

    taps: weights [taps, channels] less their zero point.
    """
    kernel, stride, dilation = (read_axes(args[name]) for name in ("kernel", "stride", "dilation"))
    if kernel[1:] != (3, 3) or dilation[2] != 1:
        return 0
    # A weight of the middle line may have to change its sign, and all of them must be bytes.
    middle = taps[kernel[2] : 2 * kernel[2]]
    if taps.min() < MIN_BYTE or taps.max() > MAX_BYTE or middle.min() == MIN_BYTE:
        return 0
    channels = int(str(args["channels"]))
    pixels = BLOCK // channels if BLOCK % channels == 0 else 1
    return max(0, kernel[2] - pixels * stride[2])


def use_strips(call: Call, lowering: Lowering) -> Call:
    """Return the call by strips; Refused for windows and channels that the kernel is not written for."""
    x, y = lowering.tensors[call.reads[0]], lowering.tensors[call.writes[0]]
    if x.dtype not in EIGHT_BITS or y.dtype not in EIGHT_BITS:
        raise Refused("its operands are not of eight bits", code="dtype")
    kernel, inside, out, pad = (read_axes(call.args[name]) for name in ("kernel", "in", "out", "pad"))
    is_plane = kernel[0] == 1 and inside[0] == out[0] and pad[0] == 0
    if not is_plane or kernel[1] * kernel[2] > MAX_TAPS or not y.elements:
        raise Refused(f"its windows do not lie in a plane, or have more than {MAX_TAPS} taps", code="shape")
    if x.shape[-1] < BLOCK and x.shape[-1] not in FEW_CHANNELS:
        raise Refused(f"it has {x.shape[-1]} channels", code="shape")
    rows, scratch = cut_strips(call.args)
    plain = call.kernel
    strips = replace(
        plain,
        name=plain.name.replace("depthwise", "depthwise_strips"),
        template=TEMPLATE,
        fields=(*plain.fields, ("flip", "i32"), ("shared", "i32"), ("strip_rows", "i64")),
        params={},
        helpers=(*plain.helpers, *HELPERS),
    )
    args = {
        **call.args,
        "flip": 128 if x.dtype is DType.I8 else 0,
        "shared": count_shared_columns(call.args, lowering.weights[call.reads[1]].make()),
        "strip_rows": rows,
    }
    return replace(call, kernel=strips, args=args, scratch=scratch)


def offer_strips(make: MakeCall) -> Candidate:
    """Return the candidate that computes a node by strips."""

    def lower(node: Node, lowering: Lowering) -> None:
        lowering.call(node, use_strips(make(node, lowering), lowering))

    return Candidate("depthwise-strips", lower, _cost, LEVELS)


def _cost(node: Node, lowering: Lowering, level: Level) -> float:
    """Return that a third of an instruction is needed for each product."""
    return lowering.tensors[node.outputs[0]].elements * lowering.tensors[node.inputs[1]].elements / 3

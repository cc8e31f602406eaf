"""Depthwise convolutions of bytes, for levels that multiply four bytes of a lane at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mace_core.candidates import Candidate
from mace_core.integer_storage import IntegerWeights
from mace_core.ir import Array, DType, Node
from mace_core.levels import Level
from mace_core.lowering import Lowering, Refused
from mace_core.ops.conv import ConvAttributes
from mace_core.ops.windows import Windows
from mace_core.program import Arg, Call, Kernel
from mace_target_cpu.isa import KERNELS, X86, packing
from mace_target_cpu.lower.conv import GEOMETRY, Filters, geometry
from mace_target_cpu.lower.geometry import read_axes
from mace_target_cpu.lower.igemm import INTEGER, REQUANTIZE
from mace_target_cpu.quantized.products import ColumnScales, factor
from mace_target_cpu.quantized.rounding import Rounding, choose_rounding
from mace_target_cpu.quantized.storage import EIGHT_BITS, RESULT, Scale, clamp, result

QUAD = 4
MAX_SLOTS = 64
"""Taps of the largest window, those counted twice that have large weights."""

FIELDS = (*GEOMETRY, ("x_zero", "i32"), *RESULT, ("quads", "i32"))


@dataclass(frozen=True)
class ChannelOrder:
    """How the weights of channels lie in the blocks that a kernel works on: [vectors][parts][rest].

    block: channels of a block, the bytes of a register.  parts: pieces of a register that its instructions
    keep apart: a part has the channels of four vectors one after another.
    """

    block: int
    parts: int

    def arrange(self, values: Array) -> Array:
        """Arrange [channels, ...] in blocks, padded by zeros."""
        channels, *rest = values.shape
        blocks = -(-channels // self.block)
        full = np.zeros((blocks * self.block, *rest), values.dtype)
        full[:channels] = values
        view = full.reshape(blocks, self.parts, 4, self.block // self.parts // 4, *rest)
        return np.ascontiguousarray(view.swapaxes(1, 2))

    def pack(self, summands: Array) -> Array:
        """Arrange int8 [channels, slots] for kernels: blocks, quads, channels of a block, QUAD of each.

        For 64 channels in parts of 128 bits, vector v of a block has in its part l the channels 16 l + 4 v to
        16 l + 4 v + 3.
        """
        channels, slots = summands.shape
        #                        block, vector, part, channel, quad, tap
        view = self.arrange(summands.reshape(channels, slots // QUAD, QUAD))
        return np.ascontiguousarray(view.transpose(0, 4, 1, 2, 3, 5))


LANES_OF_128_BITS = ChannelOrder(64, 4)
"""That of AVX: unpacking bytes works on each 128 bits of a register by itself."""


@dataclass(frozen=True)
class ByteWindows:
    """A depthwise convolution of eight bits whose weights are summands of eight bits.

    slots: the tap of each summand.  summands: int8 [channels, slots].  args: of the kernels' FIELDS.
    """

    kernel: tuple[int, ...]
    out: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pad: tuple[int, ...]
    slots: Array
    summands: Array
    columns: ColumnScales
    args: dict[str, Arg]

    @classmethod
    def from_node(cls, node: Node, lowering: Lowering) -> ByteWindows:
        """Read a node; Refused for what the kernels of bytes are not written for."""
        filters = Filters.from_node(node, lowering)
        x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
        if filters.group != x.shape[-1] or filters.columns != 1 or filters.group == 1:
            raise Refused("it is not depthwise", code="shape")
        if factor(node, lowering).dtype not in EIGHT_BITS or y.dtype not in EIGHT_BITS:
            raise Refused("its operands are not of eight bits", code="dtype")
        if choose_rounding(node, lowering) is not Rounding.SINGLE:
            raise Refused("its kernel rounds by factors in single precision", code="quantization")
        weights = IntegerWeights.from_constant(node.inputs[1], lowering)
        axes = tuple(range(1, weights.values.ndim))
        columns = ColumnScales.from_node(node, lowering, weights, weights.reach(axes))
        columns = columns.without_zero_point(x, weights.sums(axes), packing(lowering))
        taps = (weights.values.astype(np.int16) - weights.zero).reshape(y.shape[-1], -1)
        slots, summands = split_taps(taps)
        if len(slots) > MAX_SLOTS:
            raise Refused(f"its window has {len(slots)} taps, more than {MAX_SLOTS}", code="too-large")
        kernel_shape = lowering.shape(node.inputs[1])[1:-1]
        place = geometry(x, y, Windows.of(kernel_shape, node.attributes(ConvAttributes)))
        args = {
            **place,
            "x_zero": Scale.from_tensor(x).zero,
            "quads": len(slots) // QUAD,
            **result(y, *clamp(node)),
        }
        return cls(
            kernel=read_axes(place["kernel"]),
            out=read_axes(place["out"]),
            stride=read_axes(place["stride"]),
            dilation=read_axes(place["dilation"]),
            pad=read_axes(place["pad"]),
            slots=slots,
            summands=summands,
            columns=columns,
            args=args,
        )

    @property
    def reach(self) -> tuple[int, ...]:
        """How far the last tap lies from the first one, along each axis."""
        return tuple((size - 1) * step for size, step in zip(self.kernel, self.dilation, strict=True))

    def locate(self, slots: Array) -> Array:
        """Return int32 [slots, 3]: depth, height and width of the tap of each slot."""
        return np.stack(np.unravel_index(slots, self.kernel), axis=-1).astype(np.int32)


def lower_depthwise(node: Node, lowering: Lowering, order: ChannelOrder = LANES_OF_128_BITS) -> None:
    """Lower one filter for each channel of eight bits, to eight bits."""
    windows = ByteWindows.from_node(node, lowering)
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    packed, places = order.pack(windows.summands), windows.locate(windows.slots)
    reads = [
        x.name,
        lowering.weight(f"{node.inputs[1]}_quads", packed.shape, "int8", lambda: packed),
        channel_weight(lowering, f"{y.name}.bias_quads", order.arrange(windows.columns.bias)),
        channel_weight(lowering, f"{y.name}.factor_quads", order.arrange(windows.columns.factor)),
        lowering.weight(f"{y.name}.taps", places.shape, "int32", lambda: places),
    ]
    params = {"is_signed": x.dtype is DType.I8, "max_slots": MAX_SLOTS}
    kernel = Kernel(
        f"conv_depthwise_bytes_{x.dtype.value}",
        KERNELS / "conv_depthwise_bytes.c.in",
        FIELDS,
        params,
        (INTEGER, REQUANTIZE),
    )
    scratch = -(-x.shape[-1] // order.block) * order.block
    lowering.call(node, Call(kernel, windows.args, reads, [y.name], scratch=scratch))


def split_taps(taps: Array) -> tuple[Array, Array]:
    """Split weights of 9 bits into int8 summands, each with the tap that it belongs to; whole quads of them.

    taps: [channels, taps]. Returns taps [slots], summands int8 [channels, slots]. Slots without a weight
    belong to tap 0.
    """
    slots: list[int] = []
    summands: list[Array] = []
    rest = taps
    while not slots or rest.any():
        part = np.clip(rest, -128, 127)
        for tap in range(taps.shape[1]):
            # The first round takes every tap, so that a window whose weights are all 0 has slots too.
            if rest is taps or part[:, tap].any():
                slots.append(tap)
                summands.append(part[:, tap])
        rest = rest - part
    missing = -len(slots) % QUAD
    slots += [0] * missing
    summands += [np.zeros(taps.shape[0], taps.dtype)] * missing
    return np.array(slots), np.stack(summands, axis=1).astype(np.int8)


def channel_weight(lowering: Lowering, name: str, values: Array) -> str:
    """Make a weight of a number for each channel."""
    return lowering.weight(name, values.shape, str(values.dtype), lambda: values)


def _cost(node: Node, lowering: Lowering, level: Level) -> float:
    """Return that a quarter of an instruction is needed for each product."""
    return lowering.tensors[node.outputs[0]].elements * lowering.tensors[node.inputs[1]].elements / 4


DEPTHWISE = Candidate(
    "depthwise-bytes", lower_depthwise, _cost, tuple(str(level.name) for level in X86 if level.dot == "vnni")
)

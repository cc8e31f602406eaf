"""Conv of images of few channels, from copied lines of the image: of channels-last ones and of planes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from math import prod

from mace_core.ir import Tensor
from mace_core.ops.windows import Windows
from mace_core.program import Arg, Call, Kernel
from mace_target_cpu.isa import KERNELS, MAX_LANES
from mace_target_cpu.lower.geometry import read_axes

STRIP = (("parts", "i32"), ("pitch", "i64"), ("front", "i64"), ("strip", "i64"))
"""Fields of the arguments besides those of the matrix kernel's."""

MATRIX = ("group", "rows", "form")
"""Fields that the matrix kernel alone has."""

TEMPLATE = "conv_lines.c.in"

MAX_CHANNELS = 4
"""Channels of an image.  With more, the matrix kernel reads runs that are long enough in place."""

MAX_STRIDE = 4

MIN_WIDTH = 4
"""Results of a line: of 4 the matrix kernel takes up to twice as long, and no tile is lower."""

NARROW = 8
"""Results up to which half of the widest vector holds all of them."""

STRIP_BYTES = 1 << 14
"""Of a strip, unless two lines of results need more: half of a first-level cache."""

MAX_STRIP_BYTES = 1 << 20
"""Of a worker's scratch: a larger strip leaves the second-level cache.  Without a bound a hostile model whose
filters have lines far apart asks for gigabytes of padding, and for offsets of taps beyond 32 bits."""

HALF = MAX_LANES // 2
"""Floats at multiples of which pieces begin: half of a line of the cache, which holds as many as a vector."""


@dataclass(frozen=True)
class _Strip:
    """How lines of an image are copied.

    parts: pieces of a line, of floats that lie together: 1, or one for each channel of planes.
    pitch: floats from piece to piece.  front: floats before the first of the image.  lines: of results.
    scratch: bytes of a worker.
    """

    parts: int
    pitch: int
    front: int
    lines: int
    scratch: int

    @property
    def args(self) -> dict[str, Arg]:
        """The arguments of a call."""
        return {"parts": self.parts, "pitch": self.pitch, "front": self.front, "strip": self.lines}


@dataclass(frozen=True)
class LineForm:
    """What a kernel is generated for: the parameters of its template.

    step: floats from one window to the next.  is_narrow: half of the widest vector holds all results.
    is_low: lines have as few results as `reads_lines` takes.
    """

    step: int
    is_narrow: bool
    is_low: bool

    @property
    def name(self) -> str:
        """The kernel's name."""
        return f"conv_lines{self.step}{'_narrow' * self.is_narrow}{'_low' * self.is_low}_f32"


def reads_lines(x: Tensor, y: Tensor, windows: Windows) -> bool:
    """Tell whether the kernel takes a convolution of one group, and computes it faster than others."""
    if len(x.shape) not in (3, 4) or not x.elements or not y.elements or prod(windows.kernel) == 1:
        return False
    return x.shape[-1] <= MAX_CHANNELS and windows.strides[-1] <= MAX_STRIDE and y.shape[-2] >= MIN_WIDTH


def use_lines(call: Call) -> Call:
    """Return the call from copied lines for a call of the matrix kernel; that one if a strip is too large."""
    strip = _plan_strip(call.args, 1)
    if strip.scratch > MAX_STRIP_BYTES:
        return call
    step = read_axes(call.args["stride"])[2] * _number(call.args["channels"])
    fields = (*(field for field in call.kernel.fields if field[0] not in MATRIX), *STRIP)
    is_low = read_axes(call.args["out"])[2] == MIN_WIDTH
    form = LineForm(step, is_narrow=_number(call.args["results"]) <= NARROW, is_low=is_low)
    kernel = Kernel(form.name, KERNELS / TEMPLATE, fields, asdict(form))
    args = {name: value for name, value in call.args.items() if name not in MATRIX}
    return replace(call, kernel=kernel, args={**args, **strip.args}, scratch=strip.scratch)


def read_planes(first: Call, second: Call, tensor: str) -> Call | None:
    """Return a convolution from lines that reads the planes which `first` makes channels-last, or None.

    tensor: what `first` writes, which must be the image: an operand of an epilogue can have its shape.
    """
    if second.kernel.template.name != TEMPLATE or second.reads[0] != tensor or second.args["parts"] != 1:
        return None
    channels, inside = _number(second.args["channels"]), read_axes(second.args["in"])
    if channels == 1 or not _makes_channels_last(
        first, _number(second.args["batch"]), prod(inside), channels
    ):
        return None
    strip = _plan_strip(second.args, channels)
    if strip.scratch > MAX_STRIP_BYTES:
        return None
    old, step = second.kernel, read_axes(second.args["stride"])[2]
    name = old.name.replace(f"conv_lines{old.params['step']}_", f"conv_lines{step}_", 1)
    kernel = replace(old, name=name, params={**old.params, "step": step})
    args = {**second.args, **strip.args}
    reads = (first.reads[0], *second.reads[1:])
    return replace(second, kernel=kernel, args=args, reads=reads, scratch=strip.scratch)


def _makes_channels_last(call: Call, images: int, pixels: int, channels: int) -> bool:
    """Tell whether a call turns [images][channels][pixels] floats into [images][pixels][channels]."""
    if call.kernel.name != "copy_tiles_32" or call.args["offset"] != 0:
        return False
    matrix = {"n": channels, "m": pixels, "step": pixels, "down": channels}
    if any(call.args[name] != value for name, value in matrix.items()):
        return False
    *outer, count = read_axes(call.args["count"])
    last_steps = {read_axes(call.args[name])[-1] for name in ("read", "write")}
    return set(outer) == {1} and count == images and (images == 1 or last_steps == {pixels * channels})


def _plan_strip(args: Mapping[str, Arg], parts: int) -> _Strip:
    inside, out, kernel, stride, dilation, pad = (
        read_axes(args[name]) for name in ("in", "out", "kernel", "stride", "dilation", "pad")
    )
    channels = _number(args["channels"])
    reach = [(size - 1) * step + 1 for size, step in zip(kernel, dilation, strict=True)]
    columns = max(inside[2], (out[2] - 1) * stride[2] + reach[2] - pad[2])
    front = _round_up(max(0, pad[2]) * (channels // parts), HALF)
    pitch = _round_up(front + columns * (channels // parts), HALF)
    # Whole lines of the cache apart, pieces would lie in few of its sets: 12.5 and 16 us where measured.
    pitch += HALF if pitch % MAX_LANES == 0 else 0
    fitting = (STRIP_BYTES // (4 * parts * pitch) - reach[1]) // stride[1] + 1
    lines = min(out[1], max(2, fitting))
    depth = kernel[1] * kernel[2] * channels
    # A vector of zeros may reach beyond the last piece.
    floats = _round_up(depth, MAX_LANES) + ((lines - 1) * stride[1] + reach[1]) * parts * pitch + MAX_LANES
    return _Strip(parts, pitch, front, lines, 4 * floats)


def _round_up(floats: int, step: int) -> int:
    return -(-floats // step) * step


def _number(value: Arg) -> int:
    assert isinstance(value, int)
    return value

"""Resize of bytes by HVX, along two axes, by weights that few bits hold exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mace_core.integer_storage import EIGHT_BITS, Scale, need_stored
from mace_core.ir import Array, DType, Node, Shape
from mace_core.lowering import Lowering, Refused
from mace_core.ops.resize import ResizeAttributes, Taps, axis_taps
from mace_core.program import Arg, Call, Kernel
from mace_target_cpu.lower.resize import plan_passes, plane_args
from mace_target_cpu.lower.strided import MOVE
from mace_target_hexagon.isa import KERNELS

MAX_BITS = 7
"""Of the weights of both axes together: with a byte, 15 bits, and a weight of 1 is a byte too."""

SIZES = ("in_height", "out_height", "in_width", "out_width", "channels", "rows", "grain")
FIELDS = (*((name, "i64") for name in SIZES), ("bits", "i32"), ("x_zero", "i32"))


def count_bits(weights: Array) -> int:
    """Return the bits behind the point that hold weights exactly; Refused for more than MAX_BITS."""
    for bits in range(MAX_BITS + 1):
        if np.array_equal(np.ldexp(weights, bits), np.rint(np.ldexp(weights, bits))):
            return bits
    raise Refused(f"its weights are no multiples of 2^-{MAX_BITS}", code="attribute")


@dataclass(frozen=True)
class ByteResize:
    """A resize that the kernel of bytes takes.

    axis: the first of two.  taps, bits: of each, and those behind the point of its weights.
    """

    axis: int
    taps: tuple[Taps, Taps]
    bits: tuple[int, int]

    @classmethod
    def of(cls, attrs: ResizeAttributes, before: Shape, after: Shape) -> ByteResize:
        """Return the resize of a shape; Refused where bytes do not suffice."""
        taps = [axis_taps(attrs, axis, size) for axis, size in enumerate(before)]
        changed = [axis for axis, size in enumerate(before) if not taps[axis].is_identity(size)]
        passes = plan_passes(changed, before, after)
        if len(passes) != 1 or len(passes[0].axes) != 2:
            raise Refused("resizes other axes than two neighboring ones", code="shape")
        down, across = (taps[axis] for axis in passes[0].axes)
        if any(axis.indices.shape[1] != 2 or axis.outside.any() for axis in (down, across)):
            raise Refused("its elements are no sums of two along each axis", code="attribute")
        bits = (count_bits(down.weights), count_bits(across.weights))
        if not 0 < sum(bits) <= MAX_BITS:
            raise Refused(f"its weights are no multiples of 2^-{MAX_BITS}", code="attribute")
        return cls(passes[0].axes[0], (down, across), bits)


def lower_resize(node: Node, lowering: Lowering) -> None:
    """Lower a linear resize of two neighboring axes that keeps the storage."""
    x, y = (need_stored(lowering, name, EIGHT_BITS) for name in (node.inputs[0], node.outputs[0]))
    if x.storage != y.storage or not y.elements:
        raise Refused("its result is stored in another way than its input, or empty", code="quantization")
    resize = ByteResize.of(node.attributes(ResizeAttributes), x.shape, y.shape)
    planes = plane_args(x, y, resize.axis, True)
    zero = Scale.from_tensor(x).zero
    args: dict[str, Arg] = {
        **{name: planes[name] for name in SIZES},
        "bits": sum(resize.bits),
        "x_zero": zero,
    }
    params = {"is_signed": x.dtype is DType.I8}
    kernel = Kernel(f"resize_bytes_{x.dtype.value}", KERNELS / "resize_bytes.c.in", FIELDS, params, (MOVE,))
    lines = _make_tables(lowering, f"{y.name}.down", resize.taps[0], resize.bits[0])
    columns = _make_tables(lowering, f"{y.name}.across", resize.taps[1], resize.bits[1])
    reads = [x.name, lines[0], columns[0], lines[1], columns[1]]
    lowering.call(node, Call(kernel, args, reads, [y.name]))


def _make_tables(lowering: Lowering, stem: str, taps: Taps, bits: int) -> tuple[str, str]:
    """Return the names of the positions and of the weights of an axis, as integers."""
    positions, weights = taps.indices.astype(np.int32), np.ldexp(taps.weights, bits).astype(np.int32)
    return (
        lowering.weight(f"{stem}.positions", positions.shape, "i4", lambda: positions),
        lowering.weight(f"{stem}.steps", weights.shape, "i4", lambda: weights),
    )

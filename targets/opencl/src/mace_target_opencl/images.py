"""CL_RGBA images in place of buffers: four elements in a pixel, which small GPUs read through a cache.

The layouts are those of MACE. An activation of [N, H, W, C] has a pixel for four channels of a place, in
row n * H + h and column c / 4 * W + w. A filter of [O, H, W, I] has its four outputs o ... o + 3 of input i
and tap t in row o / 4 * H * W + t and column i; one of a depthwise convolution its four channels of tap t in
row c / 4 and column t.
"""

from __future__ import annotations

from collections.abc import Mapping

from mace_core.emit.text import Code
from mace_target_opencl.kernel_operand import KernelOperand
from mace_target_opencl.types import HALF_VALUE

IMAGES = "images"
"""The parameter of a kernel that a candidate asked for: it reads what it multiplies from images."""

PRELUDE = Code(
    """\
__constant sampler_t mace_nearest = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;

/* Column and row of the pixel with the elements from `at` on of a tensor [rows][columns][4 * quads]. */
int2 mace_pixel(int at, int columns, int quads);
int2 mace_pixel(int at, int columns, int quads)
{
    const int quad = at / 4;
    const int row = quad / (columns * quads);
    const int rest = quad % (columns * quads);
    return (int2)(rest % quads * columns + rest / quads, row);
}
"""
)
"""What stands before kernels that read or write images."""


def declare_image(operand: KernelOperand) -> str:
    """Return the declaration of a kernel's argument."""
    return f"{'__write_only' if operand.is_written else '__read_only'} image2d_t {operand.name}"


def list_image_macros(operand: KernelOperand, kind: Code | None) -> Mapping[str, str]:
    """Return the macros that reach an image by the index of an element, and by column and row of a pixel.

    kind: type of the kernel's sums, where the operand is one of their factors.
    """
    form, name = operand.image, operand.name
    assert form is not None, operand
    # read_imagef and write_imagef convert the halves of an image from and to floats by themselves.
    to_value = "TO_HALF4" if kind == HALF_VALUE else ""
    place = f"mace_pixel((int)(i), {form.columns}, {form.quads})"
    # No LOAD and no LOADU4: `image_storage` takes only operands that are reached by whole pixels.
    return {
        f"LOAD4_{name}(i)": f"{to_value}(read_imagef({name}, mace_nearest, {place}))",
        f"PIXEL_{name}(column, row)": f"{to_value}(read_imagef({name}, mace_nearest, (int2)(column, row)))",
        f"STORE4_{name}(v, i)": f"write_imagef({name}, {place}, v)",
    }

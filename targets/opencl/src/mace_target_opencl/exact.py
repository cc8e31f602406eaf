"""Floats that every device rounds alike: what kernels of quantized tensors need beside IEEE 754's operations.

OpenCL rounds sums, products, `fma` and conversions correctly, but divides with an error of up to 2.5 units in
the last place, and may join a product and a sum to one rounding unless a pragma forbids it.
"""

from __future__ import annotations

from collections.abc import Mapping

from mace_core.emit.text import Code
from mace_core.program import Kernel

EXACT = "exact"
"""The parameter of a kernel whose floats are rounded so."""

PRELUDE = Code(
    """\
float mace_limit(float v, float low, float high);
float mace_limit(float v, float low, float high)
{
    /* NaN becomes low, as on the CPU. */
    v = v > low ? v : low;
    return v < high ? v : high;
}

/* a / b for b > 0, rounded to the nearest. Quotients outside of 2^-60 ... 2^60 are as the device rounds them:
 * they become 0 or the end of a range. */
float mace_divide(float a, float b);
float mace_divide(float a, float b)
{
    const float magnitude = fabs(a);
    float q = magnitude / b;
    if (!(q > 0x1p-60f && q < 0x1p60f))
        return copysign(q, a);
    /* The remainder of a quotient that is off by a few units is exact, and leads to within one unit. */
    q = fma(fma(-q, b, magnitude), 1.0f / b, q);
    const float rest = 2.0f * fma(-q, b, magnitude);
    const float up = as_float(as_int(q) + 1);
    const float down = as_float(as_int(q) - 1);
    /* Products with a power of two, as neighbors are apart, are exact. No quotient lies in the middle. */
    if (rest > (up - q) * b)
        q = up;
    else if (-rest > (q - down) * b)
        q = down;
    return copysign(q, a);
}
"""
)
"""Functions that stand before kernels whose floats are exact."""


DOT_PRELUDE = Code(
    """\
#if defined(MACE_DEVICE_HAS_KHR_DOT) && defined(cl_khr_integer_dot_product)
/* Every device with the extension has the packed form. */
#define mace_dot(a, b) dot_4x8packed_ss_int(as_uint(a), as_uint(b))
#elif defined(MACE_DEVICE_HAS_ARM_DOT) && defined(cl_arm_integer_dot_product_int8)
#pragma OPENCL EXTENSION cl_arm_integer_dot_product_int8 : enable
#define mace_dot(a, b) arm_dot(a, b)
#elif defined(MACE_DEVICE_HAS_NVIDIA_DOT)
int mace_dot(char4 a, char4 b);
int mace_dot(char4 a, char4 b)
{
    int sum;
    /* Compilers from clang have the plain word as a keyword of GNU C alone. */
    __asm__("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(sum) : "r"(as_int(a)), "r"(as_int(b)), "r"(0));
    return sum;
}
#else
int mace_dot(char4 a, char4 b);
int mace_dot(char4 a, char4 b) { return a.s0 * b.s0 + a.s1 * b.s1 + a.s2 * b.s2 + a.s3 * b.s3; }
#endif
"""
)
"""Four products of bytes and their sum: one instruction where the device has it, the same bits elsewhere.

The driver defines MACE_DEVICE_HAS_... where the device lists the extension, or is an NVIDIA device whose
instruction set (PTX) has dp4a, and compiles without where the compiler does not take it. The compiler's
macro alone proves nothing: clang's generic targets, which simulators use, define those of all extensions that
clang can spell.
"""


def mark_exact(exact: bool) -> Mapping[str, object]:
    """Return the parameter of a kernel; none where it need not round alike everywhere."""
    return {EXACT: True} if exact else {}


def is_exact(kernel: Kernel) -> bool:
    """Tell whether the floats of a kernel are rounded alike on every device."""
    return bool(kernel.params.get(EXACT))


def forbid_contraction(source: str) -> Code:
    """Return the source of a kernel whose products and sums stay two roundings."""
    return Code(f"#pragma OPENCL FP_CONTRACT OFF\n{source}#pragma OPENCL FP_CONTRACT DEFAULT\n")

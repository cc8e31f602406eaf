"""Floats that every device rounds alike: what kernels need where an integer depends on a float.

OpenCL rounds sums, products, `fma` and conversions correctly, but divides with an error of up to 2.5 units in
the last place, and may join a product and a sum to one rounding unless a pragma forbids it. An element that
lies at a tie and is rounded to an integer behind that, as in dynamic quantization, becomes the next one.
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

/* a / b, rounded to the nearest. Quotients outside of 2^-60 ... 2^60, NaN too, are as the device rounds them:
 * as steps of a scale they become 0 or the end of a range. */
float mace_divide(float dividend, float divisor);
float mace_divide(float dividend, float divisor)
{
    const float device = dividend / divisor;
    float q = fabs(device);
    if (!(q > 0x1p-60f && q < 0x1p60f))
        return device;
    float b = fabs(divisor);
    /* So that neither 1 / b nor a remainder leaves the range of floats. Powers of two change no digit. */
    const float power = b < 0x1p-30f ? 0x1p96f : b > 0x1p60f ? 0x1p-64f : 1.0f;
    const float a = fabs(dividend) * power;
    b *= power;
    /* The remainder of a quotient that is off by a few units is exact, and leads to within one unit. */
    q = fma(fma(-q, b, a), 1.0f / b, q);
    const float rest = 2.0f * fma(-q, b, a);
    const float up = as_float(as_int(q) + 1);
    const float down = as_float(as_int(q) - 1);
    /* Products with a power of two, as neighbors are apart, are exact. No quotient lies in the middle. */
    if (rest > (up - q) * b)
        q = up;
    else if (-rest > (q - down) * b)
        q = down;
    return copysign(q, device);
}
"""
)
"""Functions that stand before kernels that call one of them."""


ROUNDS = "rounds"
"""The parameter of a kernel that makes integers of floats, by Round, a conversion or a comparison.

Its products and sums stay two roundings, as in an exact kernel. A matrix product or convolution takes over
such steps all the same, without that: the order of its sums is free.
"""

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


def needs_functions(source: str) -> bool:
    """Tell whether a kernel's source calls a function of PRELUDE."""
    return "mace_divide(" in source or "mace_limit(" in source


def is_contracted(kernel: Kernel) -> bool:
    """Tell whether a product and a sum of a kernel may be one rounding."""
    return not is_exact(kernel) and not kernel.params.get(ROUNDS)


def forbid_contraction(source: str) -> Code:
    """Return the source of a kernel whose products and sums stay two roundings."""
    return Code(f"#pragma OPENCL FP_CONTRACT OFF\n{source}#pragma OPENCL FP_CONTRACT DEFAULT\n")

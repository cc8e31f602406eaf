"""Tests in every kernel whether it stays inside its tensors: a check build, for whoever looks for a fault.

An access outside is noted for the driver, which says kernel, tensor and index, and goes to memory of its own
in the place of the tensor. The driver's side is opencl_check.c.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mace_core.emit.text import Code
from mace_target_opencl.kernel_operand import KernelOperand
from mace_target_opencl.types import UNITS

CHECKS = "checks_bounds"
"""The parameter of kernels that test."""

ARGUMENTS = ("__global int *mace_faults", "const int mace_call")
"""What such kernels take behind their operands."""

PRELUDE = Code("""__global char *mace_reach(__global int *faults, int call, int operand,
                          __global const char *tensor, long index, int width, long elements, int unit);
__global char *mace_reach(__global int *faults, int call, int operand,
                          __global const char *tensor, long index, int width, long elements, int unit)
{
    if (index >= 0 && index + width <= elements)
        return (__global char *)tensor + index * unit;
    if (atomic_cmpxchg(faults, 0, call + 1) == 0) {
        faults[1] = operand;
        faults[2] = (int)index;
        faults[3] = (int)(index >> 32);
    }
    return (__global char *)(faults + 16);
}
""")
"""Returns the address of `width` elements; outside of the tensor, notes it and returns other memory."""

# The digits say how many elements a macro reaches: four for LOADU4_x, one for LOAD_x.
_HEAD = re.compile(r"[A-Z]+(\d*)_")


def check_macros(macros: Mapping[str, str], operand: KernelOperand, position: int) -> dict[str, str]:
    """Return the macros of an operand with a test of the index `i` in each.

    position: of the operand among the kernel's.
    """
    const = "" if operand.is_written else "const "
    checked = {}
    for head, body in macros.items():
        match = _HEAD.match(head)
        assert match, head
        numbers = f"(long)(i), {match[1] or 1}, {operand.elements}, {UNITS[operand.type]}"
        tensor = f"(__global const char *){operand.name}"
        address = f"mace_reach(mace_faults, mace_call, {position}, {tensor}, {numbers})"
        pointer = f"((__global {const}{operand.type} *){address})"
        # The index is in the address now; the body keeps the form of its load or store.
        first = re.sub(r"\bi\b", "0", body)
        checked[head] = re.sub(rf"\b{operand.name}\b", pointer, first)
    return checked

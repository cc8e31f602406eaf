"""Turns a program into one for a check build: kernels that test their accesses, and labels for messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mace_core.program import Call, Kernel, Program
from mace_target_opencl.bounds import CHECKS
from mace_target_opencl.enqueue import make_kernel
from mace_target_opencl.kernel_operand import KernelOperand

MAX_LABEL = 120
"""Characters of an operand's label: names of tensors may be long, and messages are short."""


def check_bounds(program: Program) -> Program:
    """Return the program with kernels that test every access."""
    return replace(program, calls=tuple(map(_check_call, program.calls)))


def is_checked(kernel: Kernel) -> bool:
    """Tell whether a kernel tests its accesses."""
    return bool(kernel.params.get(CHECKS))


def _check_call(call: Call) -> Call:
    template = call.kernel.template.name.removesuffix(".cl.in")
    params: Mapping[str, object] = {**call.kernel.params, CHECKS: True}
    return replace(call, kernel=make_kernel(template, params))


def label_operand(operand: KernelOperand, tensor: str) -> str:
    """Return what messages call an operand: the kernel's name for it, and the tensor.

    A name from a model may hold anything, also what would end the text or steer a terminal.
    """
    return f"{operand.name}, tensor {tensor!a}"[:MAX_LABEL]

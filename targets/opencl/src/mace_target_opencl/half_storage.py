"""Stores the floats of a program in half precision: half of the memory and of its traffic, sums in float.

Kernels reach every operand through macros that convert where it is stored in half precision, with core
functions of OpenCL (vload_half, vstore_half) that need no extension of the device. What passes between parts
keeps its type: the first kernel that reads an input stores its result in half precision.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from mace_core.ir import Array, DType
from mace_core.program import Call, Program, Weight
from mace_target_opencl.enqueue import make_kernel, operands_of
from mace_target_opencl.types import FLOAT, HALF

FACTORS = ("w", "r", "x", "f")
"""Operands of templates that are filters, matrices and tables: others are few numbers, and stay exact."""

MAX_HALF = 65504.0
"""The largest number of half precision."""


def store_in_half(program: Program) -> Program:
    """Return the program with inner floats, and the weights that fit, in half precision."""
    weights = _convert_weights(program)
    halves = {*_list_inner(program), *weights}
    tensors = {
        name: replace(tensor, dtype=DType.F16) if name in halves else tensor
        for name, tensor in program.tensors.items()
    }
    calls = tuple(_convert_call(call, halves) for call in program.calls)
    return replace(program, calls=calls, tensors=tensors, weights={**program.weights, **weights})


def _list_inner(program: Program) -> set[str]:
    """Return the tensors of floats whose bytes are no port's, no constant's, and under no other type."""
    ports = {program.root(name) for name in (*program.inputs, *program.outputs)}
    groups: dict[str, set[str]] = defaultdict(set)
    for name in program.tensors:
        groups[program.root(name)].add(name)
    inner = set()
    for root, names in groups.items():
        is_float = all(program.tensors[name].dtype is DType.F32 for name in names)
        if is_float and root not in ports and root not in program.weights:
            inner |= names
    return inner


def _convert_weights(program: Program) -> dict[str, Weight]:
    """Return the weights that are stored in half precision."""
    readers: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for call in program.calls:
        for operand, tensor in zip(operands_of(call), call.reads, strict=False):
            readers[tensor].add((str(operand.name), str(operand.type)))
    # A name for a constant's bytes is a tensor of its own type, which is left as it is.
    shared = {program.root(name) for name in (*program.aliases, *program.outputs)}
    weights = {}
    for name, weight in program.weights.items():
        is_factor = all(operand in FACTORS and kind == FLOAT for operand, kind in readers[name])
        if is_factor and readers[name] and name not in shared and len(weight.shape) > 1 and _fits(weight):
            weights[name] = _round(weight)
    return weights


def _fits(weight: Weight) -> bool:
    """Tell whether no finite number of a weight becomes infinite."""
    # An infinity stays what it is in half precision.
    array = weight.make()
    return bool(np.abs(array, where=np.isfinite(array), out=np.zeros_like(array)).max(initial=0) <= MAX_HALF)


def _round(weight: Weight) -> Weight:
    def make() -> Array:
        return weight.make().astype(np.float16)

    return Weight(weight.shape, weight.bytes // 2, make)


def _convert_call(call: Call, halves: set[str]) -> Call:
    """Return the call with the kernel for the types of its operands."""
    pairs = zip(operands_of(call), (*call.reads, *call.writes), strict=True)
    operands = tuple(
        replace(operand, type=HALF) if tensor in halves and operand.type == FLOAT else operand
        for operand, tensor in pairs
    )
    params: Mapping[str, object] = {**call.kernel.params, "operands": operands}
    template = call.kernel.template.name.removesuffix(".cl.in")
    return replace(call, kernel=make_kernel(template, params))

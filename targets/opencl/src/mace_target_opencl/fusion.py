"""Fusion: a kernel computes the element-wise op that would be the only reader of its result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, count

from mace_core.emit.text import CIdentifier
from mace_core.program import Call
from mace_target_opencl.enqueue import MAX_OPERANDS, make_kernel
from mace_target_opencl.exact import EXACT, ROUNDS, is_exact
from mace_target_opencl.kernel_operand import KernelOperand
from mace_target_opencl.steps import ElementStep, Lookup
from mace_target_opencl.types import HALF, value_type
from mace_target_opencl.views import View

MAP = "map.cl.in"

MAX_STEPS = 16
"""Steps of a kernel; more would need more registers than small GPUs have."""


def fuse(first: Call, second: Call, tensor: str) -> Call | None:
    """Return `first` with the element-wise op `second` as steps before its store; None if it cannot be."""
    params = first.kernel.params
    if (
        not params["is_fusible"]
        or not _agree_on_rounding(first, second)
        # No other template computes nothing but its steps.
        or second.kernel.template.name != MAP
        or len(first.writes) != 1
    ):
        return None
    operands: Sequence[KernelOperand] = params["operands"]  # type: ignore[assignment]
    steps: tuple[ElementStep, ...] = params["steps"]  # type: ignore[assignment]
    theirs: Sequence[KernelOperand] = second.kernel.params["operands"]  # type: ignore[assignment]
    if not _agree_on_type(operands[-1], theirs[second.reads.index(tensor)]):
        return None
    extension = _extend(second, tensor, operands[-1].elements)
    if extension is None or len(steps) + len(extension) > MAX_STEPS:
        return None
    names = choose_names(operands, theirs)
    pairs = [
        (replace(operand, name=names[operand.name]), read)
        # The last operand is the result, which is not read.
        for operand, read in zip(theirs, second.reads, strict=False)
        if read != tensor
    ]
    if len(operands) + len(pairs) > MAX_OPERANDS:
        return None
    result = replace(operands[-1], type=theirs[-1].type)
    fused_params = {
        **params,
        "operands": (*operands[:-1], *(operand for operand, _ in pairs), result),
        "steps": (*steps, *(rename_operands(step, names) for step in extension)),
        # What the template computes keeps its type, whatever type the result is stored in.
        "value_type": params.get("value_type") or value_type(operands[-1].type),
    }
    if is_exact(second.kernel):
        fused_params[EXACT] = True
    if second.kernel.params.get(ROUNDS) and first.kernel.template.name == MAP:
        fused_params[ROUNDS] = True
    template = first.kernel.template.name.removesuffix(".cl.in")
    return replace(
        first,
        kernel=make_kernel(template, fused_params),
        reads=(*first.reads, *(read for _, read in pairs)),
        writes=second.writes,
        # Safe only if neither reads other elements than the one that it writes.
        inplace=first.inplace and second.inplace,
    )


def choose_names(
    operands: Sequence[KernelOperand], theirs: Sequence[KernelOperand]
) -> dict[CIdentifier, CIdentifier]:
    """Return for each operand of the second kernel a name that none of the first one's has."""
    # Kernels of one template call their operands alike, and the first may have taken over others before.
    taken = {operand.name for operand in operands}
    names = (CIdentifier(f"e{number}") for number in count())
    free = (name for name in names if name not in taken)
    return {operand.name: name for operand, name in zip(theirs, free, strict=False)}


def _agree_on_type(result: KernelOperand, operand: KernelOperand) -> bool:
    """Tell whether the second kernel would load the number that the first has before its store."""
    # Kernels that move half precision take its bits for integers, which no conversion makes of a float. Where
    # both take it for floats, the store rounds.
    return result.type == operand.type and result.type != HALF


def _agree_on_rounding(first: Call, second: Call) -> bool:
    """Tell whether the rounding of the second would not slow the first.

    Products and sums of a kernel with exact floats are two roundings, which take twice as many operations.
    """
    return is_exact(first.kernel) or first.kernel.template.name == MAP or not is_exact(second.kernel)


def _extend(second: Call, tensor: str, elements: int) -> tuple[ElementStep, ...] | None:
    """Return the steps of a map that begin with a tensor's element; None where the map moves it."""
    params = second.kernel.params
    operands: Sequence[KernelOperand] = params["operands"]  # type: ignore[assignment]
    steps: tuple[ElementStep, ...] = params["steps"]  # type: ignore[assignment]
    view: View = params["view"]  # type: ignore[assignment]
    # The view of a part that begins at the first element is the identity as well.
    if operands[-1].elements != elements:
        return None
    name = operands[second.reads.index(tensor)].name
    if name == "x":
        return steps if view.is_identity else None
    # The tensor is looked up by a step: only the first one's result so far is an operand, and not a result.
    head, *others = steps
    later = chain.from_iterable(step.arguments for step in others)
    is_elsewhere = any(a is not None and a.operand == name for a in later)
    if is_elsewhere or head.arguments.count(None) != 1:
        return None
    arguments: list[Lookup | None] = []
    for argument in head.arguments:
        if argument is None:
            arguments.append(Lookup(CIdentifier("x"), view))
        elif argument.operand == name:
            if not argument.view.is_identity:
                return None
            arguments.append(None)
        else:
            arguments.append(argument)
    return (replace(head, arguments=tuple(arguments)), *others)


def rename_operands(step: ElementStep, names: Mapping[CIdentifier, CIdentifier]) -> ElementStep:
    """Return a step that looks up operands under other names."""
    arguments = (a and replace(a, operand=names[a.operand]) for a in step.arguments)
    return replace(step, arguments=tuple(arguments))

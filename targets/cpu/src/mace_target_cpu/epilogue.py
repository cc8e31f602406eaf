"""Epilogues: element-wise ops that a product computes on its results while they are still in the cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from mace_core.emit.render import render
from mace_core.emit.text import CIdentifier, Code
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS

FINISH = KERNELS / "finish.c.in"

FINISH_QUANTIZED = KERNELS / "finish_quantized.c.in"

EIGHT_BITS = ("int8_t", "uint8_t")

PRODUCTS = ("conv.c.in", "conv_lines.c.in", "conv_winograd.c.in", "matmul.c.in")
"""Templates of kernels that call `NAME_finish` if their parameters have one."""

GEMM_PRODUCT = "conv_quantized.c.in"

QUANTIZED_PRODUCTS = (GEMM_PRODUCT, "conv_winograd_quantized.c.in")
"""Templates of kernels that add another tensor to what they store."""

COMMUTATIVE = ("add", "mul")
"""Ops whose operands may change places, so that one kernel serves both orders."""


@dataclass(frozen=True)
class StepAttribute:
    """A number of a step: its name in the expression, and the field of the arguments that holds it."""

    name: CIdentifier
    field: CIdentifier


@dataclass(frozen=True)
class EpilogueStep:
    """One element-wise op of an epilogue.

    number: how many operands the steps before it read.  expression: of `vf` x, and y for a binary op.
    result: which of them the result so far is.  other: which is read from memory; "" if none is.
    """

    op: str
    number: int
    expression: Code
    attrs: tuple[StepAttribute, ...]
    result: Code
    other: Code


def fuse(first: Call, second: Call, tensor: str) -> Call | None:
    """Return the product `first` with the element-wise op `second` as its epilogue; None if it cannot be."""
    if first.kernel.template.name in QUANTIZED_PRODUCTS:
        return _fuse_stored_sum(first, second, tensor)
    if first.kernel.template.name not in PRODUCTS:
        return None
    steps: Sequence[EpilogueStep] = first.kernel.params.get("steps", ())  # type: ignore[assignment]
    number = sum(bool(step.other) for step in steps)
    step = _read_step(second, tensor, len(steps), number)
    if step is None:
        return None
    steps = (*steps, step)
    kernel, helpers = first.kernel, second.kernel.helpers
    name, operands = f"{kernel.name}_{step.op}", number + bool(step.other)
    finish = render(FINISH, name=CIdentifier(name), steps=steps, operands=operands)
    params: dict[str, object] = dict(kernel.params)
    params.update(steps=steps, operands=operands, finish=finish)
    kernel = replace(
        kernel,
        name=name,
        fields=(*kernel.fields, *((str(attr.field), "f32") for attr in step.attrs)),
        params=params,
        helpers=(*kernel.helpers, *(helper for helper in helpers if helper not in kernel.helpers)),
    )
    args = dict(first.args)
    args.update((attr.field, second.args[attr.name]) for attr in step.attrs)
    reads = [*first.reads, *(name for name in second.reads if name != tensor)]
    return replace(first, kernel=kernel, args=args, reads=tuple(reads), writes=second.writes)


def _fuse_stored_sum(first: Call, second: Call, tensor: str) -> Call | None:
    """Return a product of integers that adds another tensor of its type; None for any other epilogue."""
    kernel, types = second.kernel, second.kernel.params
    is_sum = kernel.template.name == "binary_quantized.c.in" and kernel.name.startswith("add_")
    if not is_sum or "finish" in first.kernel.params or not _is_dense(second):
        return None
    # The sum takes the place of the product, so all three must have elements of one size; the product's has
    # the type of the operand that it is.
    if not types["xtype"] == types["ytype"] == types["result"] or types["result"] not in EIGHT_BITS:
        return None
    is_first = second.reads[0] == tensor
    name = f"{first.kernel.name}_{kernel.name}" + ("" if is_first else "_swapped")
    roles = ("out", "other") if is_first else ("other", "out")
    finish = render(
        FINISH_QUANTIZED,
        name=CIdentifier(name),
        ctype=types["result"],
        x=Code(roles[0]),
        y=Code(roles[1]),
        reads=len(first.reads),
        is_cut_by_gemm=first.kernel.template.name == GEMM_PRODUCT,
    )
    scalars = [(field, kind) for field, kind in kernel.fields if "[" not in kind]
    params: dict[str, object] = dict(first.kernel.params)
    params.update(finish=finish, reads=len(first.reads), ctype=types["result"])
    args = dict(first.args)
    args.update((f"sum_{field}", second.args[field]) for field, _ in scalars)
    fused = replace(
        first.kernel,
        name=name,
        fields=(*first.kernel.fields, *((f"sum_{field}", kind) for field, kind in scalars)),
        params=params,
    )
    reads = (*first.reads, *(name for name in second.reads if name != tensor))
    return replace(first, kernel=fused, args=args, reads=reads, writes=second.writes)


def _read_step(call: Call, tensor: str, position: int, number: int) -> EpilogueStep | None:
    """Read an element-wise call on floats; None for any other, and for one that repeats an operand."""
    kernel, params = call.kernel, call.kernel.params
    expression = params.get("vector")
    op, _, dtype = kernel.name.rpartition("_")
    if not isinstance(expression, Code) or not expression or dtype != "f32" or params["result"] != "float":
        return None
    if kernel.template.name == "unary.c.in":
        attrs = [StepAttribute(name, CIdentifier(f"{name}_{position}")) for name in _names(kernel)]
        return EpilogueStep(op, number, expression, tuple(attrs), Code("x"), Code(""))
    if kernel.template.name != "binary.c.in" or not _is_dense(call):
        return None
    is_first = call.reads[0] == tensor or op in COMMUTATIVE
    roles = (Code("x"), Code("y")) if is_first else (Code("y"), Code("x"))
    return EpilogueStep(op if is_first else f"{op}_from", number, expression, (), *roles)


def _names(kernel: Kernel) -> list[CIdentifier]:
    return [CIdentifier(name) for name, _ in kernel.fields if name != "n"]


def _is_dense(call: Call) -> bool:
    """Tell whether both operands have the result's shape, so that all elements are one axis."""
    dims, xs, ys = (call.args[name] for name in ("dims", "xs", "ys"))
    assert isinstance(dims, tuple)
    assert isinstance(xs, tuple)
    assert isinstance(ys, tuple)
    return prod(dims) == dims[-1] and xs[-1] == ys[-1] == 1

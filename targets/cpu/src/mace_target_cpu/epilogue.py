"""Epilogues: element-wise ops that a call computes on its results while they are still in the cache.

Products have them, and element-wise ops of floats, which become one chain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources.abc import Traversable
from math import prod

from mace_core.emit.render import render
from mace_core.emit.text import CIdentifier, Code
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS

FINISH = KERNELS / "finish.c.in"

FINISH_QUANTIZED = KERNELS / "finish_quantized.c.in"

EIGHT_BITS = ("int8_t", "uint8_t")

INTEGER_PRODUCT = "matmul_integer.c.in"

MATRIX_PRODUCTS = ("matmul.c.in", INTEGER_PRODUCT)
"""Templates of kernels that call `NAME_finish_rows`, so that operands of a step may repeat."""

PRODUCTS = ("conv.c.in", "conv_lines.c.in", "conv_winograd.c.in", *MATRIX_PRODUCTS)
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
    spread: what that has: "all" elements of the result, those of its "columns", or "one".
    """

    op: str
    number: int
    expression: Code
    attrs: tuple[StepAttribute, ...]
    result: Code
    other: Code
    spread: str = "all"


def fuse(first: Call, second: Call, tensor: str) -> Call | None:
    """Return a call that computes `second` on what `first` computes; None if none can.

    A product has it as its epilogue; an element-wise op of floats begins or continues a chain.
    """
    if first.kernel.template.name in QUANTIZED_PRODUCTS:
        return _fuse_stored_sum(first, second, tensor)
    if first.kernel.template.name not in PRODUCTS:
        chain = first if first.kernel.template.name == FINISH.name else _begin_chain(first)
        if chain is None or chain.kernel.params["result"] != "float":
            return None
        first = chain
        if second.kernel.template.name == "cast.c.in":
            return _store_integers(chain, second)
    if first.kernel.template.name == INTEGER_PRODUCT and "finish" not in first.kernel.params:
        return _convert_sums(first, second)
    steps = list_steps(first.kernel)
    step = _read_step(second, tensor, len(steps), _count_operands(steps))
    if step is None or not _takes_spread(first, second, step.spread):
        return None
    finished = _finish(first.kernel, f"_{step.op}", (*steps, step), second.kernel.helpers)
    kernel = replace(finished, fields=(*finished.fields, *((str(attr.field), "f32") for attr in step.attrs)))
    args = dict(first.args)
    args.update((attr.field, second.args[attr.name]) for attr in step.attrs)
    reads = [*first.reads, *(name for name in second.reads if name != tensor)]
    return replace(first, kernel=kernel, args=args, reads=tuple(reads), writes=second.writes)


def _convert_sums(first: Call, second: Call) -> Call | None:
    """Return a product of plain integers that stores floats; None for any other epilogue."""
    types = second.kernel.params
    is_cast = second.kernel.template.name == "cast.c.in"
    if not is_cast or types["ctype"] != "int32_t" or types["result"] != "float":
        return None
    return replace(first, kernel=_finish(first.kernel, "_f32", (), ()), writes=second.writes)


def _begin_chain(call: Call) -> Call | None:
    """Return an element-wise call of floats as a chain of one step; None for any other call."""
    # The operand from which the chain begins must have all elements.
    for tensor in dict.fromkeys(call.reads):
        step = _read_step(call, tensor, 0, 0)
        if step is None or step.spread == "columns":
            continue
        dims = call.args.get("dims")
        n = prod(dims) if isinstance(dims, tuple) else call.args["n"]
        fields = (("n", "i64"), *((str(attr.field), "f32") for attr in step.attrs))
        kernel = Kernel("chain_f32", FINISH, fields, {}, call.kernel.helpers)
        others = list(call.reads)
        others.remove(tensor)
        return replace(
            call,
            kernel=_finish(kernel, f"_{step.op}", (step,), ()),
            args={"n": n, **{attr.field: call.args[attr.name] for attr in step.attrs}},
            reads=(tensor, *others),
        )
    return None


def _store_integers(chain: Call, second: Call) -> Call | None:
    """Return a chain that stores narrow integers; None for any other conversion."""
    types = second.kernel.params
    if types["ctype"] != "float" or not types["narrow"]:
        return None
    kernel = chain.kernel
    params = {**kernel.params, **{key: types[key] for key in ("result", "low", "high")}}
    name = f"{kernel.name}_{second.kernel.name.rpartition('_')[2]}"
    added = tuple(helper for helper in second.kernel.helpers if helper not in kernel.helpers)
    kernel = replace(kernel, name=name, params=params, helpers=(*kernel.helpers, *added))
    return replace(chain, kernel=kernel, writes=second.writes, inplace=False)


def _finish(
    kernel: Kernel, suffix: str, steps: Sequence[EpilogueStep], helpers: Sequence[Traversable]
) -> Kernel:
    """Return the kernel with the steps behind it."""
    name = f"{kernel.name}{suffix}"
    added = tuple(helper for helper in helpers if helper not in kernel.helpers)
    kernel = replace(kernel, name=name, helpers=(*kernel.helpers, *added))
    if kernel.template.name == FINISH.name:
        return replace(kernel, params=_describe(steps, is_chain=True))
    finish = render_finish(name, steps, from_sums=kernel.template.name == INTEGER_PRODUCT)
    return replace(
        kernel,
        params={**kernel.params, "steps": steps, "operands": _count_operands(steps), "finish": finish},
    )


def _count_operands(steps: Sequence[EpilogueStep]) -> int:
    return sum(bool(step.other) for step in steps)


def list_steps(kernel: Kernel) -> Sequence[EpilogueStep]:
    """Return the steps behind a kernel."""
    return kernel.params.get("steps", ())  # type: ignore[return-value]


def render_finish(name: str, steps: Sequence[EpilogueStep], *, from_sums: bool = False) -> Code:
    """Return the C functions of a kernel's epilogue."""
    return render(FINISH, name=CIdentifier(name), **_describe(steps, from_sums=from_sums))


def _describe(
    steps: Sequence[EpilogueStep], *, from_sums: bool = False, is_chain: bool = False
) -> dict[str, object]:
    """Return the parameters of the template of epilogues and chains."""
    return {
        "steps": steps,
        "operands": _count_operands(steps),
        "from_sums": from_sums,
        "repeats_rows": any(step.spread == "columns" for step in steps),
        "is_chain": is_chain,
        "result": Code("float"),
    }


def _takes_spread(product: Call, second: Call, spread: str) -> bool:
    """Tell whether a product can read the other operand of a call behind it as that is spread."""
    template = product.kernel.template.name
    if spread == "all" or (spread == "one" and template == FINISH.name):
        return True
    dims = second.args["dims"]
    assert isinstance(dims, tuple)
    # Neighboring axes are one here: the operand may be longer than a row of the product.
    is_row = spread == "one" or dims[-1] == product.args.get("columns")
    return is_row and template in MATRIX_PRODUCTS


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
    spread = _find_spread(call, tensor) if kernel.template.name == "binary.c.in" else ""
    if not spread:
        return None
    is_first = call.reads[0] == tensor or op in COMMUTATIVE
    roles = (Code("x"), Code("y")) if is_first else (Code("y"), Code("x"))
    # Kernels of one name are one, so all that tells steps apart is in it.
    name = op + ("" if is_first else "_from") + ("" if spread == "all" else f"_{spread}")
    return EpilogueStep(name, number, expression, (), *roles, spread)


def _names(kernel: Kernel) -> list[CIdentifier]:
    return [CIdentifier(name) for name, _ in kernel.fields if name != "n"]


def _find_spread(call: Call, tensor: str) -> str:
    """Return what the other operand of a binary call has, see `EpilogueStep`; "" for anything else.

    tensor: the operand that must have all elements of the result.
    """
    dims, mine, other = (call.args[name] for name in ("dims", "xs", "ys"))
    assert isinstance(dims, tuple)
    assert isinstance(mine, tuple)
    assert isinstance(other, tuple)
    if call.reads[0] != tensor:
        mine, other = other, mine
    long = [axis for axis, dim in enumerate(dims) if dim != 1] or [len(dims) - 1]
    if any(mine[axis] != prod(dims[axis + 1 :]) for axis in long):
        return ""
    steps = [other[axis] for axis in long]
    if steps == [mine[axis] for axis in long]:
        return "all"
    if not any(steps):
        return "one"
    return "columns" if steps[-1] == 1 and not any(steps[:-1]) else ""


def _is_dense(call: Call) -> bool:
    """Tell whether both operands have the result's shape, so that all elements are one axis."""
    dims, xs, ys = (call.args[name] for name in ("dims", "xs", "ys"))
    assert isinstance(dims, tuple)
    assert isinstance(xs, tuple)
    assert isinstance(ys, tuple)
    return prod(dims) == dims[-1] and xs[-1] == ys[-1] == 1

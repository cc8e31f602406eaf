"""Element-wise ops of one eight-bit operand: a table of what each of its 256 values becomes, exact by construction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mace_core.ir import Array, DType, Node, Tensor
from mace_core.kernel_target import Lower
from mace_core.program import Call, Kernel, Lowering, Refused
from mace_core.quantization import compute
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.binary import OPS as BINARY
from mace_target_cpu.lower.unary import OPS as UNARY
from mace_target_cpu.quantized.binary import binary
from mace_target_cpu.quantized.storage import EIGHT_BITS, need_stored


def table(node: Node, to: Lowering) -> None:
    """Any op that makes of every element of one operand one element, whatever its other operands, single constants, are."""
    x, y = _operand(node, to), to.tensors[node.outputs[0]]
    if y.shape != x.shape:
        raise Refused(f"{y.name} has other elements than {x.name}")
    values = _values(node, to, x, y)
    kernel = Kernel(f"table_{8 * y.dtype.size}", KERNELS / "table.c.in", (("n", "i64"),), {"ytype": f"uint{8 * y.dtype.size}_t"})
    name = to.weight(f"{y.name}.table", values.shape, values.dtype.str[1:], lambda: values)
    to.call(node, Call(kernel, {"n": x.elements}, [x.name, name], [y.name], inplace=y.dtype.size == 1))


def _operand(node: Node, to: Lowering) -> Tensor:
    """The one that is computed."""
    computed = {name for name in node.inputs if name and to.constant(name) is None}
    others = [name for name in node.inputs if name and name not in computed]
    if len(computed) != 1 or any(to.tensors[name].elements != 1 for name in others):
        raise Refused(f"{node.op.name} of several operands")
    return need_stored(to, computed.pop(), EIGHT_BITS)


def _values(node: Node, to: Lowering, x: Tensor, y: Tensor) -> Array:
    """What each value becomes, in the order of its bits as an unsigned number."""
    every = np.arange(256, dtype=np.uint8).view(x.dtype.numpy)
    inputs = [_input(name, to, replace(x, shape=(256,)), every) if name else None for name in node.inputs]
    (made,) = compute(node.op, node.attrs, inputs, [replace(y, shape=(256,))])
    return made.view(np.uint8) if y.dtype is DType.BOOL else made


def _input(name: str, to: Lowering, x: Tensor, every: Array) -> tuple[Tensor, Array]:
    constant = to.constant(name)
    return (x, every) if constant is None else (to.tensors[name], constant)


def either(node: Node, to: Lowering) -> None:
    """A table where one operand is computed, else the kernel of two."""
    try:
        table(node, to)
    except Refused:
        binary(node, to)


LOWERINGS: dict[str, Lower] = {**dict.fromkeys(sorted(UNARY), table), **dict.fromkeys(sorted(BINARY), either)}

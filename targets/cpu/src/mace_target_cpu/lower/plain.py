"""Double precision, and products of integers: plain kernels, or steps of other ops.

Models in them are rare, so they are made right and not fast.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from mace_core.attributes import Attributes
from mace_core.emit.text import Code
from mace_core.ir import DType, Node, Tensor
from mace_core.lowering import Lowering
from mace_core.ops import core_ops
from mace_core.ops.conv import ConvAttributes
from mace_core.ops.norm import EpsilonAttributes, LayerNormAttributes
from mace_core.ops.reduce import ReduceAttributes
from mace_core.ops.softmax import SoftmaxAttributes
from mace_core.program import Arg, Call, Kernel
from mace_core.tables import rows
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.types import CONVERT, c_type, need_type, operands, refuse_type, wrap_type

CLAMP = (("low", "f64"), ("high", "f64"))


def plain_product(dtype: DType, like: Kernel, axes: int) -> Kernel:
    """A matrix product of doubles or integers, with another kernel's arguments less those of its packing."""
    ctype = c_type(Tensor("factor", dtype, ()))
    params: dict[str, object] = {
        "ctype": ctype,
        "axes": axes,
        "total": ctype,
        "low": Code("a->low"),
        "high": Code("a->high"),
    }
    if not dtype.is_float:  # infinite limits become the ends of the type
        params |= {"total": wrap_type(dtype), "low": Code(f"mace_to_{ctype}(ceil(a->low))")}
        params["high"] = Code(f"mace_to_{ctype}(floor(a->high))")
    fields = (*(f for f in like.fields if f[0] not in ("panel", "block", "low", "high")), *CLAMP)
    return Kernel(f"matmul_plain_{dtype.value}", KERNELS / "matmul_plain.c.in", fields, params, (CONVERT,))


def plain_conv(
    node: Node, lowering: Lowering, fields: tuple[tuple[str, str], ...], args: Mapping[str, Arg]
) -> None:
    """A convolution of doubles; fields, args: its geometry."""
    need_type(node, *operands(node, lowering), dtype=DType.F64)
    attrs = node.attributes(ConvAttributes)
    low, high = attrs.low, attrs.high
    fields = (*fields, ("results", "i32"), ("group", "i32"), *CLAMP)
    kernel = Kernel("conv_plain_f64", KERNELS / "conv_plain.c.in", fields, {"ctype": Code("double")})
    more = {
        "results": lowering.shape(node.outputs[0])[-1],
        "group": attrs.group,
        "low": low,
        "high": high,
    }
    bias = node.inputs[2] if len(node.inputs) > 2 else ""
    lowering.call(node, Call(kernel, {**args, **more}, [*node.inputs[:2], bias], node.outputs))


class OpSequence:
    """A node computed by other ops in its own precision, one after another."""

    def __init__(self, node: Node, lowering: Lowering) -> None:
        self.node, self.lowering = node, lowering

    def op(
        self, name: str, inputs: Sequence[str], attrs: Attributes | None = None, *, last: bool = False
    ) -> str:
        """Append the calls of one op.

        Returns the name of its result, which is the node's own for the last one.
        """
        op = core_ops()[name]
        complete = attrs or Attributes()
        ((dtype, shape),) = op.infer([self.lowering.tensors[i] for i in inputs], complete)
        result = (
            self.node.outputs[0]
            if last
            else self.lowering.temporary(Tensor(f"{self.node.outputs[0]}.{name}", dtype, tuple(shape)))
        )
        step = Node(self.node.name, op, tuple(inputs), (result,), complete, self.node.sources)
        rows("mace_target_cpu.lower", "LOWERINGS")[name](step, self.lowering)
        return result

    def number(self, value: float) -> str:
        """A constant."""
        return self.lowering.add_folded(f"{self.node.outputs[0]}.number", np.array(value, np.float64))


def softmax(node: Node, lowering: Lowering) -> None:
    """exp(x - max) / sum, or its logarithm x - max - log(sum)."""
    steps, x = OpSequence(node, lowering), node.inputs[0]
    axes = ReduceAttributes((node.attributes(SoftmaxAttributes).axis,))
    # Less the maximum, exp cannot overflow, and the sum is at least 1.
    shifted = steps.op("Sub", [x, steps.op("ReduceMax", [x], axes)])
    powers = steps.op("Exp", [shifted])
    total = steps.op("ReduceSum", [powers], axes)
    if node.op.name == "Softmax":
        steps.op("Div", [powers, total], last=True)
    else:
        steps.op("Sub", [shifted, steps.op("Log", [total])], last=True)


def batch_norm(node: Node, lowering: Lowering) -> None:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, each of them along the last axis."""
    steps, (x, scale, bias, mean, variance) = OpSequence(node, lowering), node.inputs
    epsilon = node.attributes(EpsilonAttributes).epsilon
    deviation = steps.op("Sqrt", [steps.op("Add", [variance, steps.number(epsilon)])])
    normal = steps.op("Div", [steps.op("Sub", [x, mean]), deviation])
    steps.op("Add", [steps.op("Mul", [normal, scale]), bias], last=True)


def layer_norm(node: Node, lowering: Lowering) -> None:
    """(x - mean) / sqrt(mean of squares + epsilon) * scale + bias, over the axes from `axis` on."""
    steps, x = OpSequence(node, lowering), node.inputs[0]
    rank = len(lowering.shape(x))
    attrs = node.attributes(LayerNormAttributes)
    axes = ReduceAttributes(tuple(range(attrs.axis % rank, rank)))
    # The variance of centered elements: the difference of two large means would lose digits.
    centered = steps.op("Sub", [x, steps.op("ReduceMean", [x], axes)])
    variance = steps.op("ReduceMean", [steps.op("Mul", [centered, centered])], axes)
    deviation = steps.op("Sqrt", [steps.op("Add", [variance, steps.number(attrs.epsilon)])])
    bias = node.inputs[2] if len(node.inputs) > 2 else ""
    normal = steps.op("Mul", [steps.op("Div", [centered, deviation]), node.inputs[1]], last=not bias)
    if bias:
        steps.op("Add", [normal, bias], last=True)


COMPOSED: Mapping[str, Callable[[Node, Lowering], None]] = {
    "Softmax": softmax,
    "LogSoftmax": softmax,
    "BatchNorm": batch_norm,
    "LayerNorm": layer_norm,
}
"""Ops in double precision that are steps of others."""


def compose(node: Node, lowering: Lowering) -> None:
    """Compute a node of doubles by other ops; Refused where that is not known."""
    if node.op.name not in COMPOSED:
        raise refuse_type(node.op.name, lowering.tensors[node.inputs[0]].dtype)
    need_type(node, *operands(node, lowering), dtype=DType.F64)
    COMPOSED[node.op.name](node, lowering)

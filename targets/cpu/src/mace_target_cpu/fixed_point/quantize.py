"""Quantize and Dequantize."""

from __future__ import annotations

from mace_core.ir import DType, Node
from mace_core.lowering import Lower, Lowering
from mace_core.program import Call, Kernel
from mace_target_cpu.fixed_point.rules import LIMITS, limits
from mace_target_cpu.fixed_point.table import lower_table
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.igemm import INTEGER, REQUANTIZE
from mace_target_cpu.lower.view import view
from mace_target_cpu.quantized import quantize as quantized
from mace_target_cpu.quantized.rounding import refuse_rule
from mace_target_cpu.quantized.storage import C_TYPES, Scale


def quantize(node: Node, lowering: Lowering) -> None:
    """From floats, or from one storage of eight bits to another."""
    x, y = (lowering.tensors[name] for name in (node.inputs[0], node.outputs[0]))
    if x.storage == y.storage:
        view(node, lowering)
    elif x.quant:
        lower_table(node, lowering)
    elif x.dtype is DType.F32 and y.dtype in C_TYPES:
        kernel = Kernel(
            f"quantize_fixed_point_{y.dtype.value}",
            KERNELS / "quantize_fixed_point.c.in",
            (("n", "i64"), ("step", "f32"), *LIMITS),
            {"ytype": C_TYPES[y.dtype]},
            helpers=(INTEGER, REQUANTIZE),
        )
        args = {"n": x.elements, "step": Scale.from_tensor(y).step, **limits(y)}
        lowering.call(node, Call(kernel, args, node.inputs, node.outputs))
    else:
        raise refuse_rule(lowering, f"Quantize of {x.dtype.value} to {y.dtype.value} is not imitated")


def dequantize(node: Node, lowering: Lowering) -> None:
    """To floats: one product, which both rules round alike."""
    y = lowering.tensors[node.outputs[0]]
    if y.quant:
        quantize(node, lowering)
    else:
        quantized.dequantize(node, lowering)


LOWERINGS: dict[str, Lower] = {"Quantize": quantize, "Dequantize": dequantize}

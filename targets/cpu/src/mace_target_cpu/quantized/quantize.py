"""Quantize and Dequantize."""

from __future__ import annotations

import numpy as np

from mace_core.emit.text import Code
from mace_core.ir import DType, Node, Tensor
from mace_core.kernel_target import Lower
from mace_core.lowering import Lowering, Refused
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.types import c_type
from mace_target_cpu.lower.view import view
from mace_target_cpu.quantized.storage import C_TYPES, EIGHT_BITS, INTEGER, Scale, result
from mace_target_cpu.quantized.table import table

N = ("n", "i64")
DIRECT = (
    N,
    ("x_zero", "i32"),
    ("factor", "f32"),
    ("y_scale", "f32"),
    ("low", "f32"),
    ("high", "f32"),
    ("y_zero", "i32"),
)
WIDE = (N, ("x_zero", "i32"), ("factor", "f64"), ("y_zero", "i32"))


def quantize(node: Node, to: Lowering) -> None:
    """From floats or another storage to eight, sixteen or thirty-two bits."""
    x, y = to.tensors[node.inputs[0]], to.tensors[node.outputs[0]]
    if x.storage == y.storage:
        view(node, to)
    elif x.quant and x.dtype in EIGHT_BITS:
        table(node, to)
    elif x.dtype in (DType.F32, *C_TYPES) and y.dtype in C_TYPES:
        _direct(node, to, x, y)
    else:
        _wide(node, to, x, y)


def _direct(node: Node, to: Lowering, x: Tensor, y: Tensor) -> None:
    source, made = Scale.of(x), Scale.of(y)
    args = {
        "n": x.elements,
        "x_zero": source.zero,
        "factor": source.step / made.step,
        "y_scale": made.step,
        **result(y),
    }
    args.pop("y_type")
    kernel = Kernel(
        f"quantize_{x.dtype.value}_{y.dtype.value}",
        KERNELS / "quantize.c.in",
        DIRECT,
        {"xtype": c_type(x), "ytype": C_TYPES[y.dtype]},
        helpers=(INTEGER,),
    )
    to.call(node, Call(kernel, args, node.inputs, node.outputs))


def _wide(node: Node, to: Lowering, x: Tensor, y: Tensor) -> None:
    if y.quant is None:
        raise Refused(f"{y.name} is not stored as integers", code="quantization")
    source, made, limits = Scale.of(x), Scale.of(y), np.iinfo(y.dtype.numpy)
    params = {
        "xtype": c_type(x),
        "ytype": c_type(y),
        "least": Code(f"{limits.min}.0"),
        "most": Code(f"{limits.max}.0"),
    }
    kernel = Kernel(
        f"quantize_wide_{x.dtype.value}_{y.dtype.value}", KERNELS / "quantize_wide.c.in", WIDE, params
    )
    args = {"n": x.elements, "x_zero": source.zero, "factor": source.step / made.step, "y_zero": made.zero}
    to.call(node, Call(kernel, args, node.inputs, node.outputs))


def dequantize(node: Node, to: Lowering) -> None:
    """From any storage to floats, or where the result is stored as integers as well, to those."""
    x, y = to.tensors[node.inputs[0]], to.tensors[node.outputs[0]]
    if y.quant:
        quantize(node, to)
        return
    if x.quant is None:
        view(node, to)
        return
    scale, vector = Scale.of(x), x.dtype in C_TYPES
    fields = (N, ("x_zero", "i32"), ("x_scale", "f32" if vector else "f64"))
    params = {"xtype": c_type(x), "vector": vector}
    kernel = Kernel(
        f"dequantize_{x.dtype.value}",
        KERNELS / "dequantize.c.in",
        fields,
        params,
        helpers=(INTEGER,) if vector else (),
    )
    to.call(
        node,
        Call(
            kernel, {"n": x.elements, "x_zero": scale.zero, "x_scale": scale.step}, node.inputs, node.outputs
        ),
    )


LOWERINGS: dict[str, Lower] = {"Quantize": quantize, "Dequantize": dequantize}

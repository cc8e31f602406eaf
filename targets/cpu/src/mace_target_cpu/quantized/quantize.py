"""Quantize and Dequantize."""

from __future__ import annotations

import numpy as np

from mace_core.emit.text import Code
from mace_core.ir import DType, Node, Tensor
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.igemm import INTEGER
from mace_target_cpu.lower.types import c_type
from mace_target_cpu.lower.view import view
from mace_target_cpu.quantized.storage import C_TYPES, EIGHT_BITS, Scale, result
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


def quantize(node: Node, lowering: Lowering) -> None:
    """From floats or another storage to eight, sixteen or thirty-two bits."""
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    if x.storage == y.storage:
        view(node, lowering)
    # 256 values: a table is exact, and faster than arithmetic.
    elif x.quant and x.dtype in EIGHT_BITS:
        table(node, lowering)
    elif x.dtype in (DType.F32, *C_TYPES) and y.dtype in C_TYPES:
        _lower_direct(node, lowering, x, y)
    else:
        _lower_wide(node, lowering, x, y)


def _lower_direct(node: Node, lowering: Lowering, x: Tensor, y: Tensor) -> None:
    source, target = Scale.from_tensor(x), Scale.from_tensor(y)
    args = {
        "n": x.elements,
        "x_zero": source.zero,
        "factor": source.step / target.step,
        "y_scale": target.step,
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
    lowering.call(node, Call(kernel, args, node.inputs, node.outputs))


def _lower_wide(node: Node, lowering: Lowering, x: Tensor, y: Tensor) -> None:
    if y.quant is None:
        raise Refused(f"{y.name} is not stored as integers", code="quantization")
    source, target, limits = Scale.from_tensor(x), Scale.from_tensor(y), np.iinfo(y.dtype.numpy)
    params = {
        "xtype": c_type(x),
        "ytype": c_type(y),
        "least": Code(f"{limits.min}.0"),
        "most": Code(f"{limits.max}.0"),
    }
    kernel = Kernel(
        f"quantize_wide_{x.dtype.value}_{y.dtype.value}", KERNELS / "quantize_wide.c.in", WIDE, params
    )
    args = {
        "n": x.elements,
        "x_zero": source.zero,
        "factor": source.step / target.step,
        "y_zero": target.zero,
    }
    lowering.call(node, Call(kernel, args, node.inputs, node.outputs))


def dequantize(node: Node, lowering: Lowering) -> None:
    """From any storage to floats, or where the result is stored as integers as well, to those."""
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    if y.quant:
        quantize(node, lowering)
        return
    if x.quant is None:
        view(node, lowering)
        return
    scale, vector = Scale.from_tensor(x), x.dtype in C_TYPES
    fields = (N, ("x_zero", "i32"), ("x_scale", "f32" if vector else "f64"))
    params = {"xtype": c_type(x), "vector": vector}
    kernel = Kernel(
        f"dequantize_{x.dtype.value}",
        KERNELS / "dequantize.c.in",
        fields,
        params,
        helpers=(INTEGER,) if vector else (),
    )
    lowering.call(
        node,
        Call(
            kernel, {"n": x.elements, "x_zero": scale.zero, "x_scale": scale.step}, node.inputs, node.outputs
        ),
    )


LOWERINGS: dict[str, Lower] = {"Quantize": quantize, "Dequantize": dequantize}

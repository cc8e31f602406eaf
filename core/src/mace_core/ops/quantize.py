"""Quantize, Dequantize: the same real numbers in the storage that the output tensor states.

The references compute nothing: they see real numbers, and `mace_core.quantization` converts around them.
"""

from __future__ import annotations

from mace_core.attributes import Attributes
from mace_core.ir import Array, DType
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs, keep, need, present


def _infer(inputs: Inputs, attrs: Attributes) -> list[Spec]:
    (x,) = present(inputs)
    need(x.dtype.is_float, f"its input is {x.dtype.value}; it must be real numbers")
    return [(DType.F32, x.shape)]


def _same(x: Array) -> Array:
    return x


OPS = (
    Op("Quantize", ("x",), ("y",), _infer, _same, move=keep),
    Op("Dequantize", ("x",), ("y",), _infer, _same, move=keep),
)

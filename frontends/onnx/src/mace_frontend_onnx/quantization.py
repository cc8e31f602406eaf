"""Represents ONNX's quantized tensors: integers whose scale and zero point are other inputs of a node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mace_core import quantization
from mace_core.ir import Array, DType, Quant, Shape, Storage
from mace_frontend_onnx.model_file import element_type
from mace_frontend_onnx.node import OnnxNode


def find_storage(
    node: OnnxNode, scale: int, zero: int, dtype: DType, axis: int | None = None
) -> Storage | None:
    """Return the storage that the inputs number `scale` and `zero` describe for integers of this type.

    None if they are computed at run time, or if the IR cannot represent them.

    axis: the axis for several scales; None where one scale is expected.
    """
    is_known = node.is_constant(scale) and (not node.has(zero) or node.is_constant(zero))
    if not is_known or dtype not in quantization.STORED:
        return None
    scales = node.constant(scale, "scale")
    zeros = node.constant(zero, "zero point") if node.has(zero) else np.zeros(scales.shape, np.int64)
    if max(scales.ndim, zeros.ndim) > 1 or not ((scales > 0) & np.isfinite(scales)).all():
        return None
    is_per_axis = scales.size > 1
    if is_per_axis and axis is None:
        return None
    points = np.broadcast_to(zeros.reshape(-1), scales.size)
    quant = Quant(
        tuple(scales.astype(np.float64).reshape(-1).tolist()),
        tuple(int(point) for point in points),
        axis if is_per_axis else None,
    )
    return Storage(dtype, quant)


def quantized_input(node: OnnxNode, index: int, storage: Storage, perm: Sequence[int] | None = None) -> str:
    """Return input `index`, integers, as the quantized tensor of the real numbers that they stand for.

    perm: a permutation of the axes; for constants only.
    """
    if node.is_constant(index):
        order = tuple(perm or range(len(node.shape(index))))
        quant = storage.quant
        if quant.axis is not None:
            quant = Quant(quant.scale, quant.zero_point, order.index(quant.axis))
        key = ("quantized", order, quant)
        return node.derive_constant(index, key, lambda a: np.transpose(a, order), quant)
    tensor = node.raw_input(index)
    if node.builder.tensors[tensor].storage == storage:
        return tensor
    # Another scale, or integers that a node computed: the real numbers are computed and quantized again.
    shape = node.shape(index)
    values = node.emit("Cast", [node.input(index)], {"to": DType.F32.value}, tag="float")
    zero_point = node.add_constant(_for_broadcast(storage.quant.zero_point, storage.quant, shape))
    steps = node.emit("Sub", [values, zero_point], tag="shift")
    scale = node.add_constant(_for_broadcast(storage.quant.scale, storage.quant, shape))
    numbers = node.emit("Mul", [steps, scale], tag="scale")
    return node.emit_quantized("Quantize", [numbers], storage, tag="stored")


def quantized_bias(node: OnnxNode, index: int, unit: Sequence[float]) -> list[str]:
    """Return input `index` as a bias in units of the sums that it is added to; nothing if it is absent."""
    if not node.has(index):
        return []
    count = node.shape(index)[0]
    scale = tuple(np.broadcast_to(unit, (count,)).tolist())
    return [quantized_input(node, index, Storage(DType.I32, Quant(scale, (0,) * count, 0)))]


def output_dtype(node: OnnxNode, zero: int) -> DType:
    """Return the element type of a quantized result: that of its zero point, else that of `output_dtype`."""
    if node.has(zero):
        return node.dtype(zero)
    code = node.attr("output_dtype")
    # QuantizeLinear, operator set 21: 0 says that the attribute is not set; then and before, uint8 is the
    # default.
    return element_type(code) if code else DType.U8


def _for_broadcast(values: Sequence[float], quant: Quant, shape: Shape) -> Array:
    """Return a scale or zero point as an array that broadcasts with a tensor of this shape."""
    array: Array = np.asarray(values, np.float32)
    if quant.axis is None:
        return array.reshape(())
    return array.reshape([-1 if i == quant.axis else 1 for i in range(len(shape))])

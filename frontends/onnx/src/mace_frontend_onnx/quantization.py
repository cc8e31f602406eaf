"""What stores real numbers in an ONNX graph: integers with a scale and a zero point that other inputs of a node give."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mace_core import quantization
from mace_core.ir import Array, DType, Quant, Storage
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.source import element_type


def storage(node: OnnxNode, scale: int, zero: int, dtype: DType, axis: int | None = None) -> Storage | None:
    """The storage that inputs `scale` and `zero` describe.

    None if they are computed at run time or no tensor can have it.

    axis: along which several scales lie.
    """
    if (
        not node.array_is_constant(scale)
        or (node.has(zero) and not node.array_is_constant(zero))
        or dtype not in quantization.STORED
    ):
        return None
    scales = node.constant(scale, "scale")
    zeros = node.constant(zero, "zero point") if node.has(zero) else np.zeros(scales.shape, np.int64)
    if max(scales.ndim, zeros.ndim) > 1 or not ((scales > 0) & np.isfinite(scales)).all():
        return None
    several = scales.size > 1
    if several and axis is None:
        return None
    points = np.broadcast_to(zeros.reshape(-1), scales.size)
    quant = Quant(
        tuple(scales.astype(np.float64).reshape(-1).tolist()),
        tuple(int(z) for z in points),
        axis if several else None,
    )
    return Storage(dtype, quant)


def real(node: OnnxNode, index: int, how: Storage, perm: Sequence[int] | None = None) -> str:
    """Input `index`, integers, as the tensor of real numbers that they store.

    A constant with its axes reordered.
    """
    if node.array_is_constant(index):
        order = tuple(perm or range(len(node.shape(index))))
        axis = how.quant.axis
        quant = how.quant if axis is None else Quant(how.quant.scale, how.quant.zero_point, order.index(axis))
        return node.derived(index, ("stored", order, quant), lambda a: np.transpose(a, order), quant)
    held = node.stored_input(index)
    if node.builder.tensors[held].storage == how:
        return held
    values = node.emit("Cast", [node.input(index)], {"to": DType.F32.value}, tag="float")
    steps = node.emit(
        "Sub", [values, _along(node, how.quant.zero_point, how, len(node.shape(index)))], tag="shift"
    )
    numbers = node.emit(
        "Mul", [steps, _along(node, how.quant.scale, how, len(node.shape(index)))], tag="scale"
    )
    return node.emit_stored("Quantize", [numbers], how, tag="stored")


def bias(node: OnnxNode, index: int, unit: Sequence[float]) -> list[str]:
    """Input `index` as a bias in units of the sums that it is added to; none if it is absent."""
    if not node.has(index):
        return []
    count = node.shape(index)[0]
    scale = tuple(np.broadcast_to(unit, (count,)).tolist())
    return [real(node, index, Storage(DType.I32, Quant(scale, (0,) * count, 0)))]


def output_type(node: OnnxNode, zero: int) -> DType:
    """The element type of a quantized result: that of its zero point, else what an attribute says."""
    code = node.attr("output_dtype")
    return node.dtype(zero) if node.has(zero) else element_type(code) if code else DType.U8


def _along(node: OnnxNode, values: Sequence[float], how: Storage, rank: int) -> str:
    array: Array = np.asarray(values, np.float32)
    return node.add_constant(
        array.reshape([-1 if i == how.quant.axis else 1 for i in range(rank)])
        if how.quant.axis is not None
        else array.reshape(())
    )

"""Ops that move stored integers, where storages of operands may differ or padding stands for a number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mace_core.ir import Node, Tensor
from mace_core.kernel_target import conversion
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.ops.resize import ResizeAttributes, axis_taps
from mace_core.ops.scatter import ScatterElementsAttributes, ScatterNDAttributes
from mace_target_opencl.lower import join
from mace_target_opencl.lower.binary import where
from mace_target_opencl.lower.resize import resize as plain_resize
from mace_target_opencl.lower.scatter import LOWERINGS as SCATTER
from mace_target_opencl.quantized.elements import quantize


def concat(node: Node, lowering: Lowering) -> None:
    """Join tensors, after those that are stored otherwise have been stored as the result."""
    y = lowering.tensors[node.outputs[0]]
    if y.quant is None:
        raise Refused("its result is stored as floats", code="quantization")
    inputs = tuple(_convert_storage(y, name, node, lowering) for name in node.inputs)
    join.concat(replace(node, inputs=inputs), lowering)


def _convert_storage(y: Tensor, name: str, node: Node, lowering: Lowering) -> str:
    x = lowering.tensors[name]
    if x.storage == y.storage or not x.elements:
        return name
    converted = lowering.temporary(replace(x, dtype=y.dtype, quant=y.quant))
    quantize(conversion("Quantize", node, (name, converted)), lowering)
    return converted


def pad(node: Node, lowering: Lowering) -> None:
    """Add elements that store the padding's number."""
    if lowering.tensors[node.inputs[0]].storage != lowering.tensors[node.outputs[0]].storage:
        raise Refused("its result is stored otherwise than its operand", code="quantization")
    join.pad(node, lowering)


def resize(node: Node, lowering: Lowering) -> None:
    """Copy the nearest elements as they are stored; what interpolates is computed in floats."""
    x, y = (lowering.tensors[name] for name in (node.inputs[0], node.outputs[0]))
    attrs = node.attributes(ResizeAttributes)
    if x.storage != y.storage or attrs.mode != "nearest" or _leaves(attrs, x):
        raise Refused("it interpolates, or pads", code="quantization")
    plain_resize(node, lowering)


def _leaves(attrs: ResizeAttributes, x: Tensor) -> bool:
    """Tell whether a result lies outside of x, and is a number that would have to be stored."""
    return any(axis_taps(attrs, axis, size).outside.any() for axis, size in enumerate(x.shape))


def keep_storage(node: Node, lowering: Lowering) -> None:
    """Move what is stored, where all operands are stored alike."""
    tensors = [lowering.tensors[name] for name in (*node.inputs, *node.outputs) if name]
    storages = {tensor.storage for tensor in tensors if tensor.quant}
    numbers = [tensor for tensor in tensors if tensor.quant is not None or tensor.dtype.is_float]
    if len(storages) != 1 or any(tensor.quant is None for tensor in numbers) or _combines(node):
        raise Refused("its operands are stored differently, or are combined", code="quantization")
    PLAIN[node.op.name](node, lowering)


def _combines(node: Node) -> bool:
    """Tell whether a scatter computes numbers of those that meet, instead of replacing them."""
    attrs = node.attrs
    return isinstance(attrs, ScatterElementsAttributes | ScatterNDAttributes) and attrs.reduction != "none"


PLAIN: Mapping[str, Lower] = {
    "Where": where,
    **{name: SCATTER[name] for name in ("ScatterElements", "ScatterND")},
}
LOWERINGS: Mapping[str, Lower] = {
    "Concat": concat,
    "Pad": pad,
    "Resize": resize,
    **dict.fromkeys(PLAIN, keep_storage),
}

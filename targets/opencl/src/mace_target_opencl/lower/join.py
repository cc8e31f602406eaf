"""Concat and Pad: elements of the operands beside others."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from mace_core.emit.text import CIdentifier, Code
from mace_core.ir import DType, Node, Tensor
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.ops.pad import PadAttributes
from mace_core.ops.shapes import AxisAttributes, axis_of
from mace_core.quantization import quantize
from mace_target_opencl.enqueue import GROUP, MAX_OPERANDS, Launch, enqueue
from mace_target_opencl.types import RAW_TYPES, integer_literal, literal, refuse_type, storage_type
from mace_target_opencl.views import dense


def concat(node: Node, lowering: Lowering) -> None:
    """Join tensors along an axis; more than a kernel reads are joined in several steps."""
    y = lowering.tensors[node.outputs[0]]
    axis = axis_of(node.attributes(AxisAttributes).axis, len(y.shape))
    parts = [lowering.tensors[name] for name in node.inputs]
    # A tensor without elements may have no buffer.
    parts = [part for part in parts if part.elements]
    max_parts = MAX_OPERANDS - 1
    while len(parts) > max_parts:
        first, parts = parts[:max_parts], parts[max_parts:]
        length = sum(part.shape[axis] for part in first)
        shape = (*y.shape[:axis], length, *y.shape[axis + 1 :])
        name = lowering.temporary(Tensor(f"{y.name}.begin", y.dtype, shape))
        _join(lowering, node, (first, lowering.tensors[name]), axis)
        parts = [lowering.tensors[name], *parts]
    _join(lowering, node, (parts, y), axis)


def _join(lowering: Lowering, node: Node, through: tuple[list[Tensor], Tensor], axis: int) -> None:
    parts, y = through
    inner = prod(y.shape[axis + 1 :])
    lengths = [part.shape[axis] * inner for part in parts]
    width = 4 if all(length % 4 == 0 for length in lengths) else 1
    table, begin = [], 0
    for number, length in enumerate(lengths):
        table.append((CIdentifier(f"x{number}"), begin, length))
        begin += length
    constants = {
        "count": y.elements,
        "row": begin,
        "parts": tuple(table),
        "width": width,
        "value_type": storage_type(y),
    }
    reads = {f"x{number}": part.name for number, part in enumerate(parts)}
    launch = Launch("concat", reads, {"y": y.name}, (y.elements // width,), constants, (GROUP,), ())
    enqueue(lowering, node, launch)


def pad(node: Node, lowering: Lowering) -> None:
    """Add elements: a constant, or elements of x."""
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    attrs = node.attributes(PadAttributes)
    behind, steps = dense(y.shape), dense(x.shape)
    axes = tuple(zip(behind, y.shape, attrs.before, x.shape, steps, strict=True))
    constants = {
        "count": y.elements,
        "axes": axes,
        "mode": Code(attrs.mode),
        "fill": constant_of(_store(attrs.value, x), x.dtype, node.op.name),
        "value_type": storage_type(x),
    }
    launch = Launch("pad", {"x": x.name}, {"y": y.name}, (y.elements,), constants, (GROUP,), ())
    enqueue(lowering, node, launch)


def _store(value: float, tensor: Tensor) -> float:
    """Return a real number as a tensor stores it; raises Refused if that differs from channel to channel."""
    storage = tensor.storage
    if storage is None:
        return value
    if storage.quant.axis is not None:
        raise Refused(f"{tensor.name} stores the padding differently in each channel", code="quantization")
    return float(quantize(np.array(value), storage).item())


def constant_of(value: float, dtype: DType, op: str) -> Code:
    """Return a constant of an element type; raises Refused for one that OpenCL C cannot write."""
    if dtype in RAW_TYPES:
        # These types are moved as bits, which for 0 are the same in every type.
        if value == 0:
            return Code("0")
        raise refuse_type(op, dtype)
    if dtype.is_float:
        return literal(float(value))
    if dtype is DType.BOOL:
        return Code("1" if value else "0")
    return integer_literal(int(value), dtype)


LOWERINGS: Mapping[str, Lower] = {"Concat": concat, "Pad": pad}

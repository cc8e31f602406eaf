"""Ops that move or compare stored integers.

They need lowerings of their own where the storages of their operands may differ, or padding must stand for a
real number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from mace_core.ir import Node, Tensor
from mace_core.kernel_target import conversion
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.ops.pad import PadAttributes
from mace_core.ops.scatter import ScatterElementsAttributes, ScatterNDAttributes
from mace_target_cpu.lower import concat as plain
from mace_target_cpu.lower.binary import LOWERINGS as BINARY
from mace_target_cpu.lower.lookup import pad as plain_pad
from mace_target_cpu.lower.scatter import LOWERINGS as SCATTER
from mace_target_cpu.quantized.quantize import quantize
from mace_target_cpu.quantized.storage import Scale


def pad(node: Node, lowering: Lowering) -> None:
    """With what stores the value."""
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    attrs = node.attributes(PadAttributes)
    value = attrs.value
    if x.storage != y.storage:
        raise Refused("its result is stored otherwise than its operand", code="quantization")
    scale, limits = Scale.from_tensor(x), np.iinfo(x.dtype.numpy)
    # The padding is a real number: it is stored as an element would be.
    padding = float(np.clip(np.rint(value / scale.step) + scale.zero, limits.min, limits.max))
    plain_pad(replace(node, attrs=replace(attrs, value=padding)), lowering)


def concat(node: Node, lowering: Lowering) -> None:
    """After the operands that are stored otherwise have been stored as the result."""
    y = lowering.tensors[node.outputs[0]]
    if y.quant is None:
        raise Refused("its result is stored as floats", code="quantization")
    inputs = [_convert_storage(y, name, node, lowering) for name in node.inputs]
    plain.concat(replace(node, inputs=tuple(inputs)), lowering)


def _convert_storage(y: Tensor, name: str, node: Node, lowering: Lowering) -> str:
    x = lowering.tensors[name]
    # Already stored as the result is, or nothing to store.
    if x.storage == y.storage or not x.elements:
        return name
    converted = lowering.temporary(replace(x, name=name, dtype=y.dtype, quant=y.quant))
    quantize(conversion("Quantize", node, (name, converted)), lowering)
    return converted


def as_stored(node: Node, lowering: Lowering) -> None:
    """What is stored stands for its numbers, where all are stored alike."""
    storages = {
        lowering.tensors[name].storage
        for name in (*node.inputs, *node.outputs)
        if name and lowering.tensors[name].quant
    }
    data = [
        lowering.tensors[name]
        for name in (*node.inputs, *node.outputs)
        if name and _holds_numbers(lowering.tensors[name])
    ]
    if len(storages) != 1 or any(t.quant is None for t in data) or _combines(node):
        raise Refused("its operands are stored differently, or are combined", code="quantization")
    PLAIN[node.op.name](node, lowering)


def _combines(node: Node) -> bool:
    """Whether it computes numbers of those that meet, instead of putting one in the other's place."""
    attrs = node.attrs
    return isinstance(attrs, ScatterElementsAttributes | ScatterNDAttributes) and attrs.reduction != "none"


def _holds_numbers(tensor: Tensor) -> bool:
    """Whether it is no condition and holds no places."""
    return tensor.quant is not None or tensor.dtype.is_float


PLAIN: Mapping[str, Lower] = {
    "Where": BINARY["Where"],
    **{n: SCATTER[n] for n in ("ScatterElements", "ScatterND")},
}
LOWERINGS: dict[str, Lower] = {"Pad": pad, "Concat": concat, **dict.fromkeys(PLAIN, as_stored)}

"""What the tests of channels share: graphs of one node on images of four channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from mace_core.attributes import Attribute
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Quant, Storage

EACH = Quant((0.1, 0.2, 0.3, 0.4), (0, 0, 0, 0), 3)
"""A scale for each channel."""

Constant: TypeAlias = tuple[np.generic | Array, Quant | None]
"""The elements of a weight and their quantization."""

FLOAT, INTEGER, STORED = (
    Storage(DType.F32, None),
    Storage(DType.I32, None),
    Storage(DType.I8, Quant.of(0.5, 3)),
)
IMAGE = (1, 2, 2, 4)

PLAIN: dict[str, Attribute] = {
    "strides": (1, 1),
    "pads_before": (0, 0),
    "pads_after": (0, 0),
    "dilations": (1, 1),
}


def node(
    op: str,
    *shapes: tuple[int, ...],
    kind: Storage = FLOAT,
    constants: Sequence[Constant] = (),
    **attrs: Attribute,
) -> Graph:
    """Return a graph of one node: computed operands of these shapes, then constants."""
    new = Builder("g")
    names = [new.input(f"x{i}", kind.dtype, shape, kind.quant) for i, shape in enumerate(shapes)]
    for array, quant in constants:
        names.append(new.weight("c", np.asarray(array), quant))
    outputs: int | list[str] = 2 if op == "Split" else 1
    if kind.quant:
        outputs = [new.reserve_output("y", kind)]
    return new.finish(new.add(op, names, attrs, outputs=outputs))


def weights(*shape: int, dtype: str = "f4") -> Array:
    numbers: Array = np.arange(1, np.prod(shape) + 1).reshape(shape) % 9
    return numbers.astype(dtype)

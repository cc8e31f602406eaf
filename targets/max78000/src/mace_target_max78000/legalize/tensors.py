"""Describes tensors as the hardware sees them: steps of a power of two, and views of other tensors.

All that the hardware does after a sum is to shift, so powers of two are the only scales that it knows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mace_core.ir import Array, DType, Graph, Node, Quant, Storage, Tensor

VIEW_OPS = ("Reshape", "Transpose", "Identity")
"""Ops that only count the elements of their input in another way; no layer computes them."""


@dataclass(frozen=True, eq=False)
class ElementView:
    """A tensor as the elements of another.

    order: the position in the base's memory of each element, in the shape of the view.
    """

    base: str
    order: Array

    @property
    def in_order(self) -> bool:
        """Whether the elements follow each other as they do in the base."""
        return bool(np.array_equal(self.order.reshape(-1), np.arange(self.order.size)))


def find_producers(graph: Graph) -> dict[str, Node]:
    """Map each computed tensor to its node."""
    producers: dict[str, Node] = {}
    for node in graph.nodes:
        producers.update(dict.fromkeys(node.outputs, node))
    return producers


def find_view(graph: Graph, tensor: str, producers: Mapping[str, Node]) -> ElementView:
    """Find the tensor that another is a view of; itself if it is computed."""
    path = []
    while (node := producers.get(tensor)) and _is_view(graph, node):
        path.append(node)
        tensor = node.inputs[0]
    order = np.arange(graph.tensors[tensor].elements).reshape(graph.tensors[tensor].shape)
    for node in reversed(path):
        order = node.op.compute([order], node.attrs)[0]
    return ElementView(tensor, order)


def _is_view(graph: Graph, node: Node) -> bool:
    """Whether a node only moves elements; with another storage it would round them as well."""
    before, after = graph.tensors[node.inputs[0]], graph.tensors[node.outputs[0]]
    return node.op.name in VIEW_OPS and before.storage == after.storage


def find_exponent(quant: Quant | None) -> int | None:
    """Return the k of a storage whose one scale is 2 ** k and whose zero point is 0; None for any other."""
    if quant is None or len(set(quant.scale)) != 1 or any(quant.zero_point):
        return None
    mantissa, power = math.frexp(quant.scale[0])
    return power - 1 if mantissa == 0.5 else None  # frexp gives a mantissa from 0.5 to 1


def make_storage(power: int) -> Storage:
    """Return the storage of signed bytes that count steps of 2 ** power."""
    return Storage(DType.I8, Quant.of(2.0**power))


def is_native(tensor: Tensor) -> bool:
    """Whether a tensor is stored as the accelerator stores data."""
    return tensor.dtype is DType.I8 and find_exponent(tensor.quant) is not None

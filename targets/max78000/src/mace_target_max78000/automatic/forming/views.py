"""Tensors that are others in another order or shape: what Reshape, Transpose and Identity make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mace_core.ir import Array, Graph, Node

VIEWS = ("Reshape", "Transpose", "Identity")


@dataclass(frozen=True, eq=False)
class View:
    """A tensor as the elements of another.

    order: the position in the base's memory of each element, in the shape of the view.
    """

    base: str
    order: Array

    @property
    def in_order(self) -> bool:
        """Whether the elements follow each other as they do in the base."""
        return bool(np.array_equal(self.order.reshape(-1), np.arange(self.order.size)))


def producers(graph: Graph) -> dict[str, Node]:
    """The node that computes each tensor."""
    return {name: node for node in graph.nodes for name in node.outputs}


def view_of(graph: Graph, tensor: str, made: Mapping[str, Node]) -> View:
    """What a tensor is a view of; of itself if it is computed."""
    steps = []
    while (
        (node := made.get(tensor))
        and node.op.name in VIEWS
        and graph.tensors[node.inputs[0]].storage == graph.tensors[tensor].storage
    ):
        steps.append(node)
        tensor = node.inputs[0]
    shape = graph.tensors[tensor].shape
    order = np.arange(graph.tensors[tensor].elements).reshape(shape)
    for node in reversed(steps):
        order = node.op.compute([order], node.attrs)[0]
    return View(tensor, order)

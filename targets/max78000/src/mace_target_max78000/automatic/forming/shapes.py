"""Refuses data of shapes that no layer of the accelerator has, before rules and layers rely on theirs."""

from __future__ import annotations

from mace_core.ir import Graph, Tensor
from mace_target_max78000.automatic.forming.refusal import Faults
from mace_target_max78000.automatic.forming.views import VIEWS

RANKS = range(2, 5)
"""Axes of a row [1, channels], a line [1, length, channels] and an image [1, rows, columns, channels]."""


def refuse_shapes(graph: Graph, faults: Faults) -> None:
    """Note the network's input, and every node, whose data is not one row, line or image.

    The results of views are not looked at: data that is only counted in another way may have any shape on its
    way to a node that computes.
    """
    for name in graph.inputs:
        if problem := _problem(graph.tensors[name]):
            faults.add(f"input {name!r}", problem)
    computed = {*graph.inputs, *(output for node in graph.nodes for output in node.outputs)}
    for node in graph.nodes:
        if node.op.name in VIEWS:
            continue
        problems = (_problem(graph.tensors[name]) for name in node.inputs if name in computed)
        for problem in filter(None, problems):
            faults.add(f"layer {node.name!r} ({node.op.name})", problem)


def _problem(tensor: Tensor) -> str:
    """Return what is wrong with a shape and what to do; an empty string if nothing is."""
    shape = list(tensor.shape)
    if len(shape) not in RANKS:
        return f"its data has the shape {shape}; give it one image, line or row, [1, ..., channels] of 2 to 4 axes"
    if shape[0] != 1:
        return f"its data has a batch of {shape[0]}, and the accelerator computes one sample at a time; give the model a batch of 1"
    return ""

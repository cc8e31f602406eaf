"""Calls of the island as bytes; `driver/island_driver.c` reads them and has the same numbers.

A header: the magic number, the version, how many calls there are, and how many bindings a run gets. Then one
record for each call: the number of its kernel, its elements, and three operands: the result, then what is
read. An operand is the number of a binding (inputs of the part, then outputs, then scratch; -1: the weights;
-2: none) and an offset into that.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

from mace_core.ir import Graph, Node

MAGIC = 0x444E4C49
VERSION = 1
KERNELS = {"Abs": 1, "Add": 2, "Maximum": 3, "Minimum": 4, "Mul": 5, "Neg": 6, "Relu": 7, "Sub": 8}
ALIGNMENT = 256
BLOCK = 64
WEIGHTS = -1
NOTHING = (-2, 0)

Operand = tuple[int, int]


@dataclass(frozen=True)
class Encoded:
    """A region for the device; scratch: bytes for what passes between its calls."""

    code: bytes
    weights: bytes
    scratch: int


class _Encoder:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.weights = bytearray()
        self.scratch = 0
        self.places: dict[str, Operand] = {
            name: (number, 0) for number, name in enumerate((*graph.inputs, *graph.outputs))
        }

    def operand(self, name: str, shape: tuple[int, ...]) -> Operand:
        """Return where a tensor lies; a constant is stored in the shape in which it is read."""
        if name in self.graph.weights:
            offset = len(self.weights)
            data = np.broadcast_to(self.graph.weights[name], shape).astype("<f4").tobytes()
            self.weights += data + bytes(-len(data) % ALIGNMENT)
            return WEIGHTS, offset
        if name not in self.places:
            self.places[name] = (len(self.graph.inputs) + len(self.graph.outputs), self.scratch)
            size = self.graph.tensors[name].bytes
            self.scratch += -(-size // ALIGNMENT) * ALIGNMENT
        return self.places[name]

    def call(self, node: Node) -> bytes:
        (result,) = self.graph.outputs_of(node)
        reads = [self.operand(name, result.shape) for name in node.inputs]
        operands = [self.operand(result.name, result.shape), *reads, NOTHING][:3]
        words = [word for operand in operands for word in operand]
        return struct.pack("<8q", KERNELS[node.op.name], result.elements, *words)


def encode(graph: Graph) -> Encoded:
    """Return the calls of a graph whose nodes the island takes."""
    encoder = _Encoder(graph)
    calls = b"".join(encoder.call(node) for node in graph.nodes)
    bindings = len(graph.inputs) + len(graph.outputs) + (1 if encoder.scratch else 0)
    header = struct.pack("<IIII", MAGIC, VERSION, len(graph.nodes), bindings)
    # The kernels read whole blocks, also of the last constant.
    weights = bytes(encoder.weights) + (bytes(BLOCK) if encoder.weights else b"")
    return Encoded(header + calls, weights, encoder.scratch)

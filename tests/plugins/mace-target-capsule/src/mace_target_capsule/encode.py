"""Networks as the bytes of a capsule; `runtime/capsule_runtime.c` reads them and has the same numbers.

All numbers have 64 bits. A header: magic, version, how many inputs, outputs, values, calls and constant
floats there are. Then each
value: its elements, and where its constant begins (-1: none); inputs come first, then outputs. Then each
call: kernel, result, left, right (-1: none), as numbers of values. Then the constants, as floats.
"""

from __future__ import annotations

import struct

import numpy as np

from mace_core.ir import Graph

MAGIC = 0x5350_4143
VERSION = 2
KERNELS = {"Abs": 1, "Add": 2, "Maximum": 3, "Mul": 4, "Neg": 5, "Relu": 6, "Sub": 7}


def encode(graph: Graph) -> bytes:
    """Return the capsule of a graph whose nodes the target takes."""
    numbers = {name: number for number, name in enumerate((*graph.inputs, *graph.outputs))}
    values = [(graph.tensors[name].elements, -1) for name in numbers]
    constants: list[np.ndarray] = []
    size = 0
    calls: list[tuple[int, ...]] = []
    for node in graph.nodes:
        (result,) = graph.outputs_of(node)
        operands = []
        for name in (result.name, *node.inputs):
            if name in graph.weights:
                data = np.broadcast_to(graph.weights[name], result.shape).ravel()
                operands.append(len(values))
                values.append((data.size, size))
                constants.append(data)
                size += data.size
                continue
            if name not in numbers:
                numbers[name] = len(values)
                values.append((graph.tensors[name].elements, -1))
            operands.append(numbers[name])
        calls.append((KERNELS[node.op.name], *operands, -1, -1)[:4])
    header = (MAGIC, VERSION, len(graph.inputs), len(graph.outputs), len(values), len(calls), size)
    words = [*header, *(word for pair in (*values, *calls) for word in pair)]
    floats = b"".join(data.astype("<f4").tobytes() for data in constants)
    return struct.pack(f"<{len(words)}q", *words) + floats

"""Small graphs of int8 convolutions.

Their scales cancel each other, so that no sum is rounded: LiteRT rounds twice and MACE's references once.
"""

from __future__ import annotations

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Quant, Storage

STORED = Storage(DType.I8, Quant.of(0.0625, 3))
WINDOWS = {"strides": (1, 1), "pads_before": (1, 1), "pads_after": (1, 1), "dilations": (1, 1)}


def add_input(builder: Builder, name: str) -> str:
    """Add an input of shape (1, 4, 4, 4)."""
    return builder.input(name, STORED.dtype, (1, 4, 4, 4), STORED.quant)


def convolve(builder: Builder, x: str, seed: int, name: str = "y") -> str:
    """Append a convolution that keeps the shape and the quantization of x."""
    rng = np.random.default_rng(seed)
    filters = rng.choice([-1, 0, 0, 0, 1], (4, 3, 3, 4)).astype(np.int8)
    weights = builder.weight(f"{name} weight", filters, Quant.of(1.0))
    return builder.one("Conv", [x, weights], WINDOWS, outputs=[builder.reserve_output(name, STORED)])


def chain(length: int, name: str = "chain") -> Graph:
    """Return convolutions one after another; two tensors between them are outputs as well."""
    builder = Builder(name)
    values = [add_input(builder, "x")]
    for number in range(length):
        values.append(convolve(builder, values[-1], number))
    return builder.finish(list(dict.fromkeys([values[-1], *values[2:3], *values[5:6]])))

"""Networks for tests of images: convolutions of all kinds, pools, and operands that stay in buffers."""

from __future__ import annotations

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Shape

RNG_SEED = 7


def window(pad: int = 0, stride: int = 1, dilation: int = 1) -> dict[str, object]:
    """Return the attributes of square windows."""
    return {
        "pads_before": (pad, pad),
        "pads_after": (pad, pad),
        "strides": (stride, stride),
        "dilations": (dilation, dilation),
    }


def build_network(batch: int = 1, rows: int = 9, columns: int = 7, name: str = "images") -> Graph:
    """Return a network whose inner tensors have multiples of four channels, but for the last."""
    builder = Builder(name)
    x = builder.input("x", DType.F32, (batch, rows, columns, 3))
    return builder.finish(add_network(builder, x))


def add_network(builder: Builder, x: str) -> list[str]:
    """Add the network's nodes behind an image of three channels; return its outputs."""
    rng = np.random.default_rng(RNG_SEED)

    def weight(*shape: int) -> str:
        values = rng.normal(0, shape[-1] ** -0.5 / 2, shape).astype(np.float32)
        return builder.weight("w", values)

    first = builder.one("Conv", [x, weight(8, 3, 3, 3), weight(8)], window(1))
    pointwise = builder.one("Conv", [first, weight(12, 1, 1, 8), weight(12)], window())
    depthwise = builder.one("Conv", [pointwise, weight(12, 3, 3, 1)], {**window(1), "group": 12})
    total = builder.one("Add", [builder.one("Tanh", [depthwise]), pointwise])
    strided = builder.one("Conv", [total, weight(20, 3, 3, 12)], window(1, 2))
    pooled = builder.one("MaxPool", [strided], {"kernel": (2, 2), **window()})
    means = builder.one("AveragePool", [pooled], {"kernel": (2, 2), **window(1)})
    dilated = builder.one("Conv", [means, weight(8, 3, 3, 20)], window(2, 1, 2))
    odd = builder.one("Conv", [first, weight(5, 1, 1, 8)], window())
    return [builder.one("Mul", [dilated, dilated]), odd]


def build_pair(shape: Shape, outputs: int, stride: int = 1) -> Graph:
    """Return a block whose operand, residual and result lie in images, between ops on each element."""
    channels = shape[-1]
    builder, rng = Builder(f"pair_{channels}_{outputs}_{stride}"), np.random.default_rng(0)

    def weight(*shape: int) -> str:
        return builder.weight("w", rng.normal(0, 0.3, shape).astype(np.float32))

    x = builder.one("Tanh", [builder.input("x", DType.F32, shape)])
    attrs = {**window(1, stride), "group": channels, "low": -0.9, "high": 1.5}
    y = builder.one("Conv", [x, weight(channels, 3, 3, 1), weight(channels)], attrs)
    if stride == 1:
        # The depthwise kernel adds it: an operand of its steps in an image.
        y = builder.one("Add", [y, x])
    y = builder.one("Conv", [y, weight(outputs, 1, 1, channels), weight(outputs)], window())
    if stride == 1 and outputs == channels:
        y = builder.one("Add", [y, x])
    # Another convolution, so that the result lies in an image too.
    return builder.finish([builder.one("Conv", [y, weight(4, 1, 1, outputs)], window())])

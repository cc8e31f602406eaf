"""For every rule of every generation, a node just inside its limit and one just outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mace_core.attributes import Attribute
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Quant, Shape, Storage

F16, F32, I8, I16, I32, U8 = DType.F16, DType.F32, DType.I8, DType.I16, DType.I32, DType.U8
HALF = Quant.of(0.5)
CHANNELS = Quant((0.5,) * 16, (0,) * 16, 0)
"""A scale for each of the 16 filters."""

Case = tuple[str, Callable[[], Graph], Callable[[], Graph]]
"""Generation; a graph whose first node keeps to the rule; one whose first node breaks it."""


def quant_of(dtype: DType, zero_point: int = 0) -> Quant | None:
    return None if dtype.is_float else Quant.of(0.5, zero_point)


def one(
    op: str,
    shapes: Sequence[Shape],
    attrs: Mapping[str, Any] | None = None,
    dtype: DType = F32,
    *,
    zero_point: int = 0,
    result: Quant | None = None,
    constant: tuple[int, ...] = (),
) -> Graph:
    """Return a graph of one node whose operands have one type; those numbered `constant` are weights."""
    builder = Builder(op)
    quant = quant_of(dtype, zero_point)
    names = [
        builder.weight(f"w{n}", np.ones(shape, dtype.numpy), quant)
        if n in constant
        else builder.input(f"x{n}", dtype, shape, quant)
        for n, shape in enumerate(shapes)
    ]
    stored = result or quant
    output = builder.reserve_output("y", Storage(dtype, stored) if stored else None)
    return builder.finish(builder.add(op, names, attrs or {}, outputs=[output]))


def conv(
    x: DType = F32,
    w: DType | None = None,
    *,
    weight_quant: Quant | None = None,
    result: Quant | None = None,
    channels: int = 16,
    group: int = 1,
    **attrs: Attribute,
) -> Graph:
    """Return a 1x1 convolution of 16 filters."""
    builder = Builder("conv")
    kind = w or x
    filters = np.ones((16, 1, 1, channels // group), kind.numpy)
    names = [
        builder.input("x", x, (1, 8, 8, channels), quant_of(x)),
        builder.weight("w", filters, weight_quant or quant_of(kind)),
    ]
    window = {"strides": (1, 1), "pads_before": (0, 0), "pads_after": (0, 0), "dilations": (1, 1)}
    stored = result or quant_of(x)
    output = builder.reserve_output("y", Storage(x, stored) if stored else None)
    return builder.finish(builder.add("Conv", names, {**window, "group": group, **attrs}, outputs=[output]))


def computed_filter(*, constant: bool) -> Graph:
    window = {"strides": (1, 1), "pads_before": (0, 0), "pads_after": (0, 0), "dilations": (1, 1)}
    return one("Conv", [(1, 8, 8, 16), (16, 1, 1, 16)], window, constant=(1,) if constant else ())


def product(rows: int, dtype: DType = F32, result: float = 16.0) -> Graph:
    quant = None if dtype.is_float else Quant.of(result)
    return one("MatMul", [(rows, 16), (16, 16)], dtype=dtype, constant=(1,), result=quant)


def pad(amount: int, axis: int = 1, mode: str = "constant", channels: int = 16, rank: int = 4) -> Graph:
    sizes = tuple(amount if n == axis else 0 for n in range(rank))
    shape = (1, *(24,) * (rank - 2), channels)
    return one("Pad", [shape], {"before": sizes, "after": (0,) * rank, "mode": mode})


def resize(size: int, channels: int = 16, mode: str = "linear") -> Graph:
    attrs = {"sizes": (1, size, 8, channels), "scales": (1.0, size / 8, 1.0, 1.0), "mode": mode}
    return one("Resize", [(1, 8, 8, channels)], attrs)


def pool(op: str, dtype: DType = F32, kernel: int = 2, pads: int = 0, spatial: int = 2) -> Graph:
    window = {"strides": (1,) * spatial, "dilations": (1,) * spatial, "kernel": (kernel,) * spatial}
    window |= {"pads_before": (pads,) * spatial, "pads_after": (0,) * spatial}
    return one(op, [(1, *(4,) * spatial, 16)], window, dtype)


def strided(axis: int, channels: int) -> Graph:
    steps = tuple(2 if n == axis else 1 for n in range(4))
    shape = (1, 8, 8, channels)
    sizes = tuple(length // step for length, step in zip(shape, steps, strict=True))
    return one("Slice", [shape], {"starts": (0,) * 4, "sizes": sizes, "steps": steps})


def per_channel_activation(scales: int) -> Graph:
    builder = Builder("channels")
    quant = Quant((0.5,) * scales, (0,) * scales, 3 if scales > 1 else None)
    x = builder.input("x", I8, (1, 4, 4, 16), quant)
    output = builder.reserve_output("y", Storage(I8, HALF))
    return builder.finish(builder.add("Relu", [x], outputs=[output]))


def add_weight(scales: int) -> Graph:
    builder = Builder("channels")
    x = builder.input("x", I8, (1, 4, 4, 16), HALF)
    quant = Quant((0.5,) * scales, (0,) * scales, 0 if scales > 1 else None)
    w = builder.weight("w", np.ones(16, np.int8), quant)
    output = builder.reserve_output("y", Storage(I8, HALF))
    return builder.finish(builder.add("Add", [x, w], outputs=[output]))


def widened(scales: int) -> Graph:
    """Return a Dequantize of a constant too large to be folded."""
    builder = Builder("widened")
    quant = Quant((0.5,) * scales, (0,) * scales, 0 if scales > 1 else None)
    w = builder.weight("w", np.ones((16, 256, 128), np.int8), quant)
    return builder.finish(builder.add("Dequantize", [w]))


def concat(users: int) -> Graph:
    builder = Builder("concat")
    x, y = (builder.input(name, F32, (1, 4, 4, 16)) for name in "xy")
    joined = builder.one("Concat", [x, y], {"axis": 3})
    more = [builder.one("Relu", [x]) for _ in range(users - 1)]
    return builder.finish([joined, *more])


def transposed() -> Graph:
    window = {"strides": (2, 2), "pads_before": (0, 0), "pads_after": (0, 0), "dilations": (1, 1)}
    attrs = {**window, "output_padding": (0, 0)}
    return one("ConvTranspose", [(1, 8, 8, 16), (16, 2, 2, 16)], attrs, constant=(1,))


def power(*, constant: bool) -> Graph:
    return one("Pow", [(1, 4, 4, 16), (1,)], constant=(1,) if constant else ())


def relu(shape: Shape = (1, 8, 8, 16), dtype: DType = F32, zero_point: int = 0) -> Graph:
    return one("Relu", [shape], dtype=dtype, zero_point=zero_point)


CASES: Mapping[str, Sequence[Case]] = {
    "activation-type": [
        ("1.5", lambda: relu(dtype=I16), lambda: relu(dtype=I16, zero_point=1)),
        ("1.5", lambda: relu(dtype=U8, zero_point=3), lambda: one("Add", [(1, 8), (1, 8)], dtype=I32)),
    ],
    "float32": [("1.5", lambda: relu(dtype=F16), relu)],
    "asymmetric-int8": [("1.5", lambda: relu(dtype=U8), lambda: relu(dtype=I8))],
    "per-channel-activation": [
        ("1.5", lambda: per_channel_activation(1), lambda: per_channel_activation(16))
    ],
    "weight-type": [
        ("1.5", lambda: conv(U8, I8), lambda: conv(U8, I16)),
        ("1.5", lambda: conv(I16, I16), lambda: conv(I16, I8)),
        ("3.0", lambda: conv(I16, I8), lambda: conv(I16, U8)),
    ],
    "hybrid": [
        ("1.5", lambda: conv(F32, F32), lambda: conv(F32, I8)),
        ("2.0", lambda: conv(I8, I8), lambda: conv(F32, I8)),
    ],
    "per-channel-operator": [
        ("1.5", lambda: add_weight(1), lambda: add_weight(16)),
        ("1.5", lambda: conv(I8, I8, weight_quant=CHANNELS), lambda: add_weight(16)),
        ("2.0", lambda: add_weight(1), lambda: add_weight(16)),
    ],
    "computed-filter": [
        ("1.5", lambda: computed_filter(constant=True), lambda: computed_filter(constant=False))
    ],
    "rank": [
        ("1.5", lambda: relu((1, 2, 3, 4)), lambda: relu((1, 2, 3, 4, 5))),
        ("2.0", lambda: relu((1, 2, 3, 4)), lambda: relu((1, 2, 3, 4, 5))),
        ("3.0", lambda: pool("MaxPool", spatial=3), lambda: relu((1, 2, 3, 4, 5))),
    ],
    "dimension": [
        (generation, lambda: relu((1, 65535, 1, 16)), lambda: relu((1, 65536, 1, 16)))
        for generation in ("1.5", "2.0")
    ],
    "batch": [
        ("1.5", lambda: relu((255, 1, 1, 16)), lambda: relu((256, 1, 1, 16))),
        ("2.0", lambda: relu((255, 1, 1, 16)), lambda: relu((256, 1, 1, 16))),
        ("3.0", lambda: relu((65535, 1, 1, 16)), lambda: relu((65536, 1, 1, 16))),
    ],
    "channel-alignment": [
        ("1.5", lambda: relu((1, 2, 2, 4)), lambda: relu((1, 2, 2, 5))),
        ("1.5", lambda: relu((1, 2, 2, 16)), lambda: relu((1, 2, 2, 17))),
    ],
    "layout-16c": [("1.5", lambda: resize(16, 5), lambda: resize(16, 4))],
    "strided-slice-4c": [
        ("1.5", lambda: strided(2, 4), lambda: strided(1, 4)),
        ("1.5", lambda: strided(1, 5), lambda: strided(1, 4)),
    ],
    "grouped-convolution": [("1.5", lambda: conv(group=16), lambda: conv(group=2))],
    "dilation": [("1.5", conv, lambda: conv(dilations=(1, 2)))],
    "transposed-convolution": [("1.5", conv, transposed)],
    "broadcast": [
        (
            generation,
            lambda: one("Maximum", [(1, 4, 4, 16), (16,)], constant=(1,)),
            lambda: one("Maximum", [(1, 4, 4, 16), (16,)]),
        )
        for generation in ("1.5", "2.0")
    ],
    "broadcast-arithmetic": [
        ("1.5", lambda: one("Mul", [(1, 4, 4, 16)] * 2), lambda: one("Mul", [(1, 4, 4, 16), (1, 1, 1, 16)]))
    ],
    "requantization": [("1.5", lambda: product(1, I8, 0.251), lambda: product(1, I8, 0.25))],
    "delegate-scale-product": [
        ("1.5", lambda: conv(U8, result=Quant.of(0.251)), lambda: conv(U8, result=Quant.of(0.25)))
    ],
    "l2-pool-float": [("1.5", lambda: pool("LpPool", U8), lambda: pool("LpPool", F16))],
    "average-pool-1x1": [
        (generation, lambda: pool("AveragePool", kernel=1), lambda: pool("AveragePool", kernel=1, pads=1))
        for generation in ("1.5", "2.0")
    ],
    "pad-size": [("1.5", lambda: pad(15), lambda: pad(16)), ("1.5", lambda: pad(15, 2), lambda: pad(16, 2))],
    "pad-axes": [("1.5", lambda: pad(1, 2), lambda: pad(1, 3))],
    "concatenation": [("1.5", lambda: concat(1), lambda: concat(2))],
    "resize-down": [("1.5", lambda: resize(8), lambda: resize(7))],
    "quantize-operator": [("1.5", relu, lambda: widened(1))],
    "fully-connected-batch": [("3.0", lambda: product(8), lambda: product(9))],
    "dequantize-per-channel": [("3.0", lambda: widened(1), lambda: widened(16))],
    "mirror-pad": [
        ("3.0", lambda: pad(1, 2, "reflect"), lambda: pad(1, 3, "reflect")),
        ("3.0", lambda: pad(1, 1, "reflect"), lambda: pad(1, 1, "reflect", rank=3)),
    ],
    "mirror-pad-16c": [("3.0", lambda: pad(1, 1, "reflect", 5), lambda: pad(1, 1, "reflect", 4))],
    "power-exponent": [("3.0", lambda: power(constant=True), lambda: power(constant=False))],
}
"""By the identifier of the rule; the generation is one whose own table states the rule."""

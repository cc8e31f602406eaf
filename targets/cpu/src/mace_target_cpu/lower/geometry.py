"""The arguments that all window kernels share."""

from __future__ import annotations

from mace_core.ir import Node
from mace_core.lowering import Lowering
from mace_core.ops.conv import ConvAttributes
from mace_core.ops.windows import Ints
from mace_core.program import Arg

AXES = 3
"""Spatial axes that the kernels loop over; absent ones count 1."""

GEOMETRY = (
    ("in", "i32[4]"),
    ("out", "i32[3]"),
    *((name, "i32[3]") for name in ("kernel", "stride", "pad", "dilation")),
    ("images", "i32"),
    ("low", "f32"),
    ("high", "f32"),
)


def three(values: tuple[int, ...], fill: int) -> tuple[int, ...]:
    """Values for each spatial axis, with `fill` for the leading axes that are absent."""
    return (fill,) * (AXES - len(values)) + values


def read_axes(value: Arg) -> Ints:
    """Return the numbers of an argument that has one for each axis."""
    assert isinstance(value, tuple)
    return tuple(int(number) for number in value)


def geometry(node: Node, lowering: Lowering) -> dict[str, Arg]:
    """The arguments that all window kernels share."""
    x, w, y = lowering.shape(node.inputs[0]), lowering.shape(node.inputs[1]), lowering.shape(node.outputs[0])
    attrs = node.attributes(ConvAttributes)
    return {
        "in": (*three(x[1:-1], 1), x[-1]),
        "out": three(y[1:-1], 1),
        "kernel": three(w[1:-1], 1),
        "stride": three(attrs.strides, 1),
        "pad": three(attrs.pads_before, 0),
        "dilation": three(attrs.dilations, 1),
        "images": x[0],
        "low": float(attrs.low),
        "high": float(attrs.high),
    }

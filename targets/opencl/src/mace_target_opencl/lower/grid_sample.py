"""GridSample: elements at coordinates, interpolated."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from mace_core.emit.text import Code
from mace_core.ir import Node
from mace_core.lowering import Lower, Lowering
from mace_core.ops.grid_sample import CUBIC_A, FAR, GridSampleAttributes
from mace_target_opencl.enqueue import GROUP, Launch, enqueue
from mace_target_opencl.exact import ROUNDS
from mace_target_opencl.types import c_type, literal, need_floats
from mace_target_opencl.views import dense

TAPS: Mapping[str, int] = {"nearest": 1, "linear": 2, "cubic": 4}


def grid_sample(node: Node, lowering: Lowering) -> None:
    """Any mode and padding, over one to three spatial axes."""
    x, grid, y = (lowering.tensors[name] for name in (*node.inputs, node.outputs[0]))
    attrs = node.attributes(GridSampleAttributes)
    need_floats(grid)
    if attrs.mode != "nearest":
        need_floats(x)
    sizes, steps = x.shape[1:-1], dense(x.shape)[1:-1]
    # A coordinate is written (x, y, z): its last number belongs to the first spatial axis.
    axes = tuple(
        (size, step, len(sizes) - 1 - axis, *_limits(size, attrs.align_corners))
        for axis, (size, step) in enumerate(zip(sizes, steps, strict=True))
    )
    constants = {
        "count": y.elements,
        "channels": x.shape[-1],
        "pixels": prod(grid.shape[1:-1]),
        "image": prod(x.shape[1:]),
        "axes": axes,
        "taps": TAPS[attrs.mode],
        "mode": Code(attrs.mode),
        "padding": Code(attrs.padding),
        "corners": attrs.align_corners,
        "cubic": Code(f"({literal(CUBIC_A)})"),
        "far": literal(float(FAR)),
        # A coordinate at the middle of two elements would be rounded to the other one.
        ROUNDS: True,
        "value_type": c_type(x),
        # Integers are only looked up; a weight of 1 of their own type keeps all bits.
        "weight_type": c_type(x),
    }
    launch = Launch(
        "grid_sample", {"x": x.name, "grid": grid.name}, {"y": y.name}, (y.elements,), constants, (GROUP,), ()
    )
    enqueue(lowering, node, launch)


def _limits(size: int, corners: bool) -> tuple[Code, Code]:
    """Return the borders of an axis."""
    # Without corners the border is that of the outermost elements, and not their centers.
    low, high = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
    return literal(low), literal(high)


LOWERINGS: Mapping[str, Lower] = {"GridSample": grid_sample}

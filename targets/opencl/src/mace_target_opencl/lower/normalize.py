"""Ops that divide the elements of a row by what they have in common: softmax and norms."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from mace_core.emit.text import CIdentifier, Code
from mace_core.ir import Node
from mace_core.lowering import Lower, Lowering
from mace_core.ops.norm import (
    MVN_EPSILON,
    EpsilonAttributes,
    GroupNormAttributes,
    LayerNormAttributes,
    MeanVarianceNormAttributes,
)
from mace_core.ops.shapes import axis_of
from mace_core.ops.softmax import LpNormAttributes, SoftmaxAttributes
from mace_target_opencl.lower.reduce import MAXIMUM, SUM
from mace_target_opencl.lower.rows import RowPass, Rows, enqueue_rows
from mace_target_opencl.steps import ElementStep, Lookup
from mace_target_opencl.types import literal, need_floats
from mace_target_opencl.views import View

MOST = RowPass("most", "float", "-INFINITY", "v", MAXIMUM)
TOTAL = RowPass("total", "float", "0.0f", "v", SUM)

SOFTMAX: Mapping[str, tuple[tuple[RowPass, ...], str]] = {
    # Less the maximum, no exponential overflows, and the sum is at least 1.
    "Softmax": ((MOST, RowPass("total", "float", "0.0f", "exp(v - most)", SUM)), "exp(v - most) / total"),
    "LogSoftmax": ((MOST, RowPass("total", "float", "0.0f", "exp(v - most)", SUM)), "v - most - log(total)"),
    "Hardmax": (
        (MOST, RowPass("place", "int", "INT_MAX", "v == most || v != v ? (int)k : INT_MAX", "min(a, b)")),
        "(int)k == place ? 1.0f : 0.0f",
    ),
}


def softmax(node: Node, lowering: Lowering) -> None:
    """Softmax, its logarithm, and the place of the maximum as a vector."""
    x = lowering.tensors[node.inputs[0]]
    need_floats(x)
    passes, result = SOFTMAX[node.op.name]
    axis = axis_of(node.attributes(SoftmaxAttributes).axis, len(x.shape))
    enqueue_rows(lowering, node, Rows({axis}, passes, result, each=True))


def lp_norm(node: Node, lowering: Lowering) -> None:
    """Divide x by its norm; the result is 0 where that is 0."""
    x, attrs = lowering.tensors[node.inputs[0]], node.attributes(LpNormAttributes)
    need_floats(x)
    norm = "sqrt(total)" if attrs.p == 2 else "total"
    entry = RowPass("total", "float", "0.0f", "v * v" if attrs.p == 2 else "fabs(v)", SUM)
    result = f"total == 0.0f ? 0.0f : v / {norm}"
    enqueue_rows(lowering, node, Rows({axis_of(attrs.axis, len(x.shape))}, (entry,), result, each=True))


def layer_norm(node: Node, lowering: Lowering) -> None:
    """LayerNorm and RMSNorm, over the axes from `axis` on."""
    x, attrs = lowering.tensors[node.inputs[0]], node.attributes(LayerNormAttributes)
    need_floats(x)
    axes = range(axis_of(attrs.axis, len(x.shape)), len(x.shape))
    count = prod(x.shape[axis] for axis in axes)
    if node.op.name == "RMSNorm":
        entry = RowPass("total", "float", "0.0f", "v * v", SUM)
        root = f"sqrt(total / {literal(count)} + {literal(attrs.epsilon)})"
        rows = Rows(axes, (entry,), f"v / {root}", each=True)
    else:
        rows = _center(axes, count, f"sqrt(square / {literal(count)} + {literal(attrs.epsilon)})")
    _enqueue_scaled(node, lowering, rows)


def group_norm(node: Node, lowering: Lowering) -> None:
    """GroupNorm, and InstanceNorm as one group for each channel."""
    x, attrs = lowering.tensors[node.inputs[0]], node.attrs
    need_floats(x)
    groups = attrs.groups if isinstance(attrs, GroupNormAttributes) else x.shape[-1]
    epsilon = attrs.epsilon if isinstance(attrs, GroupNormAttributes | EpsilonAttributes) else 0.0
    # The channels of a group lie together, so that the last axis splits into two.
    shape = (x.shape[0], prod(x.shape[1:-1]), groups, x.shape[-1] // max(1, groups))
    count = shape[1] * shape[3]
    rows = _center((1, 3), count, f"sqrt(square / {literal(count)} + {literal(epsilon)})")
    _enqueue_scaled(node, lowering, rows, shape)


def mean_variance(node: Node, lowering: Lowering) -> None:
    """(x - mean) / (deviation + epsilon) over some axes."""
    x, attrs = lowering.tensors[node.inputs[0]], node.attributes(MeanVarianceNormAttributes)
    need_floats(x)
    axes = {axis_of(axis, len(x.shape)) for axis in attrs.axes}
    count = prod(x.shape[axis] for axis in axes)
    root = f"(sqrt(square / {literal(count)}) + {literal(MVN_EPSILON)})"
    enqueue_rows(lowering, node, _center(axes, count, root))


def _center(axes: range | tuple[int, ...] | set[int], count: int, root: str) -> Rows:
    """Return rows whose elements, less their mean, are divided by `root`, an expression of `square`."""
    mean = f"total / {literal(count)}"
    # The mean is subtracted before squaring: the difference of two large means would lose digits.
    centered = f"(v - {mean})"
    square = RowPass("square", "float", "0.0f", f"{centered} * {centered}", SUM)
    return Rows(axes, (TOTAL, square), f"{centered} / {root}", each=True)


def _enqueue_scaled(node: Node, lowering: Lowering, rows: Rows, shape: tuple[int, ...] | None = None) -> None:
    """Append a norm with the node's scale and bias, which broadcast, as steps."""
    y = lowering.tensors[node.outputs[0]]
    steps, others = [], {}
    for name, operand, expression in zip(
        ("scale", "bias"), node.inputs[1:], ("x * y", "x + y"), strict=False
    ):
        if operand:
            view = View.broadcast(lowering.shape(operand), y.shape)
            steps.append(
                ElementStep(Code(expression), (None, Lookup(CIdentifier(name), view)), Code("float"))
            )
            others[name] = operand
    scaled = Rows(
        rows.axes, rows.passes, rows.result, each=True, shape=shape, steps=tuple(steps), others=others
    )
    enqueue_rows(lowering, node, scaled)


def batch_norm(node: Node, lowering: Lowering) -> None:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, each of them along the last axis."""
    from mace_target_opencl.lower.maps import Map, enqueue_map

    x = lowering.tensors[node.inputs[0]]
    need_floats(x)
    epsilon = literal(node.attributes(EpsilonAttributes).epsilon)
    names = ("scale", "bias", "mean", "variance")
    expressions = {
        "mean": "x - y",
        "variance": f"x / sqrt(y + {epsilon})",
        "scale": "x * y",
        "bias": "x + y",
    }
    operands = dict(zip(names, node.inputs[1:], strict=True))
    view = View.broadcast(x.shape[-1:], x.shape)
    steps = tuple(
        ElementStep(Code(text), (None, Lookup(CIdentifier(name), view)), Code("float"))
        for name, text in expressions.items()
    )
    enqueue_map(lowering, node, Map(x.name, View.of([(x.elements, 1)]), steps, operands))


LOWERINGS: Mapping[str, Lower] = {
    **dict.fromkeys(SOFTMAX, softmax),
    "LpNorm": lp_norm,
    "LayerNorm": layer_norm,
    "RMSNorm": layer_norm,
    "GroupNorm": group_norm,
    "InstanceNorm": group_norm,
    "MeanVarianceNorm": mean_variance,
    "BatchNorm": batch_norm,
}

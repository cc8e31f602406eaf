"""Converts operations along axes: reductions, matrix products and normalizations.

NNEF's reductions keep the reduced axes as 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from mace_core.ir import Shape
from mace_frontend_nnef.node import NnefNode
from mace_frontend_nnef.ops import Handler
from mace_frontend_nnef.ops.elementwise import square

REDUCTIONS: Mapping[str, str] = MappingProxyType(
    {"max_reduce": "ReduceMax", "min_reduce": "ReduceMin", "mean_reduce": "ReduceMean"}
)
"""Operation -> the op of the IR that computes the same."""


def reduce_axes(node: NnefNode, op: str, x: str, axes: Shape) -> str:
    """Return a tensor reduced along axes, which stay as 1."""
    return node.emit(op, [x], {"axes": axes, "keepdims": True}, tag="reduced")


def _reduce(op: str) -> Handler:
    def handle(node: NnefNode) -> Sequence[str]:
        axes = node.axes("axes", len(node.shape("input")))
        return node.done(op, [node.input("input")], {"axes": axes, "keepdims": True})

    return handle


def _sum_reduce(node: NnefNode) -> Sequence[str]:
    return _reduce("ReduceMean" if node.attribute("normalize") else "ReduceSum")(node)


def _arg_reduce(op: str) -> Handler:
    def handle(node: NnefNode) -> Sequence[str]:
        axes = node.axes("axes", len(node.shape("input")))
        node.refuse_unless(len(axes) == 1, f"the index along axes {list(axes)}; reshape them into one")
        return node.done(op, [node.input("input")], {"axis": axes[0], "keepdims": True})

    return handle


def _logical_reduce(op: str) -> Handler:
    """Return the handler of any_reduce or all_reduce: a maximum or minimum of 0 and 1.

    The IR reduces numbers only.
    """

    def handle(node: NnefNode) -> Sequence[str]:
        axes = node.axes("axes", len(node.shape("input")))
        numbers = node.emit("Cast", [node.input("input")], {"to": "i32"}, tag="numbers")
        return node.done("Cast", [reduce_axes(node, op, numbers, axes)], {"to": "bool"})

    return handle


def _moments(node: NnefNode) -> Sequence[str]:
    x, axes = node.input("input"), node.axes("axes", len(node.shape("input")))
    mean_name, variance_name = node.output_names(node.builder.ops["Identity"], None)
    attrs = {"axes": axes, "keepdims": True}
    (mean,) = node.add("ReduceMean", [x], attrs, [mean_name], node.origin)
    # By the centered values: the mean of squares minus the squared mean loses digits where the mean is large.
    squares = square(node, node.emit("Sub", [x, mean], tag="centered"))
    return [mean, node.add("ReduceMean", [squares], attrs, [variance_name], node.origin)[0]]


def _softmax(node: NnefNode) -> Sequence[str]:
    x, shape = node.input("x"), node.shape("x")
    axes = node.axes("axes", len(shape))
    if len(axes) == 1:
        return node.done("Softmax", [x], {"axis": axes[0]})
    # The largest element is subtracted first, so that no power overflows; the quotient stays the same.
    below = node.emit("Sub", [x, reduce_axes(node, "ReduceMax", x, axes)], tag="below")
    powers = node.emit("Exp", [below], tag="powers")
    return node.done("Div", [powers, reduce_axes(node, "ReduceSum", powers, axes)])


def _matmul(node: NnefNode) -> Sequence[str]:
    a, b = (_read_factor(node, name) for name in "AB")
    return node.done("MatMul", [a, b])


def _read_factor(node: NnefNode, name: str) -> str:
    """Return a factor, its last two axes swapped if the operation asks for it."""
    x, rank = node.input(name), len(node.shape(name))
    if not node.attribute(f"transpose{name}"):
        return x
    node.refuse_unless(rank >= 2, f"a factor of rank {rank} is transposed")
    return node.emit("Transpose", [x], {"perm": (*range(rank - 2), rank - 1, rank - 2)}, tag="transposed")


def _linear(node: NnefNode) -> Sequence[str]:
    """Compute input [N, I] times the transpose of filter [O, I], plus bias [1, O]."""
    shape = node.shape("filter")
    node.refuse_unless(
        len(shape) == 2 and len(node.shape("input")) == 2, f"its filter has shape {list(shape)}"
    )
    matrix = node.emit("Transpose", [node.input("filter")], {"perm": (1, 0)}, tag="matrix")
    return node.done("MatMul", [node.input("input"), matrix, *bias_of(node, shape[0])])


def bias_of(node: NnefNode, channels: int) -> list[str]:
    """Return the bias as [O], in a list; nothing for a bias of 0, which is the default.

    NNEF states it as [1, O], or as one number for all channels.
    """
    if node.literal("bias") == 0:
        return []
    bias, shape = node.input("bias"), node.shape("bias")
    if shape in ((), (1,), (1, 1)) and channels > 1:
        one = node.emit("Reshape", [bias], {"shape": (1,)}, tag="bias")
        return [node.emit("Expand", [one], {"shape": (channels,)}, tag="bias")]
    node.refuse_unless(
        shape in ((), (1, channels), (channels,)), f"its bias has shape {list(shape)} for {channels} channels"
    )
    return [node.emit("Reshape", [bias], {"shape": (channels,)}, tag="bias")]


def _batch_normalization(node: NnefNode) -> Sequence[str]:
    """Compute offset + scale * (input - mean) / sqrt(variance + epsilon).

    The four parameters have the shape [1, C], or are one number.
    """
    shape = node.shape("input")
    node.refuse_unless(len(shape) >= 2, f"its input has rank {len(shape)}")
    names = ("input", "mean", "variance", "offset", "scale")
    x, mean, variance, offset, scale = node.align_ranks([node.input(name) for name in names])
    epsilon = node.add_float(node.number("epsilon"), "epsilon")
    deviation = node.emit("Sqrt", [node.emit("Add", [variance, epsilon], tag="sum")], tag="deviation")
    # Factor and shift are made of constants, which the builder computes: a Mul and an Add are left.
    factor = node.emit("Div", [scale, deviation], tag="factor")
    shift = node.emit("Sub", [offset, node.emit("Mul", [mean, factor], tag="moved")], tag="shift")
    return node.done("Add", [node.emit("Mul", [x, factor], tag="scaled"), shift])


def _normalization(length: str) -> Handler:
    """Return the handler of input / max(length + bias, epsilon).

    length: the op for the length of vectors along the axes: ReduceL1 or ReduceL2.
    """

    def handle(node: NnefNode) -> Sequence[str]:
        x, axes = node.input("input"), node.axes("axes", len(node.shape("input")))
        return node.done("Div", [x, divisor(node, reduce_axes(node, length, x, axes))])

    return handle


def divisor(node: NnefNode, sigma: str) -> str:
    """Return max(sigma + bias, epsilon) with the bias and epsilon of the node."""
    bias, epsilon = node.number("bias"), node.number("epsilon")
    if bias:
        sigma = node.emit("Add", [sigma, node.add_float(bias, "bias")], tag="biased")
    return node.emit("Maximum", [sigma, node.add_float(epsilon, "epsilon")], tag="divisor")


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **{name: _reduce(op) for name, op in REDUCTIONS.items()},
        "sum_reduce": _sum_reduce,
        "argmax_reduce": _arg_reduce("ArgMax"),
        "argmin_reduce": _arg_reduce("ArgMin"),
        "any_reduce": _logical_reduce("ReduceMax"),
        "all_reduce": _logical_reduce("ReduceMin"),
        "moments": _moments,
        "softmax": _softmax,
        "matmul": _matmul,
        "linear": _linear,
        "batch_normalization": _batch_normalization,
        "l1_normalization": _normalization("ReduceL1"),
        "l2_normalization": _normalization("ReduceL2"),
    }
)

"""Norms and softmax."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops import Handler
from mace_frontend_tensorflow.ops.window import axis_order, channels_last, done_in_order
from mace_frontend_tensorflow.values import OptionalValue


def _fused_batch_norm(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add a batch norm; operands are the input, scale, offset, mean and variance.

    The other outputs are the statistics that training would have updated, twice: some graphs pass them on.
    """
    node.refuse_unless(
        not node.attr("is_training", True), "it works in training mode", "export the model for inference"
    )
    order = axis_order(node)
    # An input of half precision comes with statistics of single precision (FusedBatchNormV2).
    operands = [node.cast(node.input(i), node.dtype(0)) for i in (1, 2, 3, 4)]
    # Without the attribute epsilon is 1e-4, where Keras and most frameworks have 1e-3 or 1e-5.
    attrs = {"epsilon": node.attr("epsilon", 1e-4)}
    x = channels_last(node, node.input(0), order)
    (y,) = done_in_order(node, "BatchNorm", [x, *operands], attrs, order)
    return [y, node.input(3), node.input(4), node.input(3), node.input(4), ""]


def _global_batch_norm(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add an older batch norm; operands are the input, mean, variance, offset and scale."""
    x, mean, variance, offset, scale = (node.input(i) for i in range(5))
    # The scale is an operand also where the attribute says that it has no effect.
    if not node.attr("scale_after_normalization", True):
        one = node.add_constant([1], node.dtype(0))
        scale = node.emit("Expand", [one], {"shape": node.shape(1)}, tag="ones")
    attrs = {"epsilon": node.attr("variance_epsilon", 1e-3)}
    return node.done("BatchNorm", [x, scale, offset, mean, variance], attrs)


def _lrn(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add a local response normalization over channels.

    TensorFlow multiplies the sum of the window's squares by alpha, the IR and Caffe multiply their mean: its
    alpha is that times the window's size. Its radius does not count the element itself.
    """
    size = 2 * node.attr("depth_radius", 5) + 1
    attrs = {
        "size": size,
        "alpha": node.attr("alpha", 1.0) * size,
        "beta": node.attr("beta", 0.5),
        "bias": node.attr("bias", 1.0),
    }
    return node.done("LRN", [node.input(0)], attrs)


def _softmax(op: str) -> Handler:
    # tf.nn.softmax transposes another axis to the last one before it adds the operator.
    return lambda node: node.done(op, [node.input(0)], {"axis": -1})


def _l2_loss(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add half the sum of all squares, without the root that the name may suggest."""
    axes = tuple(range(node.rank(0)))
    total = node.emit("ReduceSumSquare", [node.input(0)], {"axes": axes, "keepdims": False}, tag="sum")
    return node.done("Mul", [total, node.add_constant(0.5, node.dtype(0), "half")])


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), _fused_batch_norm),
        "BatchNormWithGlobalNormalization": _global_batch_norm,
        "L2Loss": _l2_loss,
        "LRN": _lrn,
        "LogSoftmax": _softmax("LogSoftmax"),
        "Softmax": _softmax("Softmax"),
    }
)

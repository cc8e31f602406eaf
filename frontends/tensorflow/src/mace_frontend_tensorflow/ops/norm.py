"""Normalisations and softmax."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from mace_frontend_tensorflow.held import Held
from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops import Handler
from mace_frontend_tensorflow.ops.window import channels_last, finished, layout


def _batch(node: TensorFlowNode) -> Sequence[Held]:
    """Operands are scale, offset, mean, variance.

    The statistics that training would update are what they were.
    """
    node.refuse_unless(
        not node.attr("is_training", True), "it works in training mode; export the model for inference"
    )
    how = layout(node)
    inputs = [node.cast(node.input(i), node.dtype(0)) for i in (1, 2, 3, 4)]
    attrs = {"epsilon": node.attr("epsilon", 1e-4)}
    made = finished(node, "BatchNorm", [channels_last(node, node.input(0), how), *inputs], attrs, how)
    return [made[0], node.input(3), node.input(4), node.input(3), node.input(4), ""]


def _batch_global(node: TensorFlowNode) -> Sequence[Held]:
    """Operands are input, mean, variance, offset, scale."""
    x, mean, variance, offset, scale = (node.input(i) for i in range(5))
    if not node.attr("scale_after_normalization", True):
        scale = node.emit(
            "Expand", [node.add_constant([1], node.dtype(0))], {"shape": node.shape(1)}, tag="ones"
        )
    return node.done(
        "BatchNorm", [x, scale, offset, mean, variance], {"epsilon": node.attr("variance_epsilon", 1e-3)}
    )


def _lrn(node: TensorFlowNode) -> Sequence[Held]:
    """TensorFlow's alpha is for each element of the window, the IR's for its mean."""
    size = 2 * node.attr("depth_radius", 5) + 1
    attrs = {
        "size": size,
        "alpha": node.attr("alpha", 1.0) * size,
        "beta": node.attr("beta", 0.5),
        "bias": node.attr("bias", 1.0),
    }
    return node.done("LRN", [node.input(0)], attrs)


def _softmax(op: str) -> Handler:
    return lambda node: node.done(op, [node.input(0)], {"axis": -1})


def _l2_loss(node: TensorFlowNode) -> Sequence[Held]:
    axes = tuple(range(node.rank(0)))
    total = node.emit("ReduceSumSquare", [node.input(0)], {"axes": axes, "keepdims": False}, tag="sum")
    return node.done("Mul", [total, node.add_constant(0.5, node.dtype(0), "half")])


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"), _batch),
        "BatchNormWithGlobalNormalization": _batch_global,
        "L2Loss": _l2_loss,
        "LRN": _lrn,
        "LogSoftmax": _softmax("LogSoftmax"),
        "Softmax": _softmax("Softmax"),
    }
)

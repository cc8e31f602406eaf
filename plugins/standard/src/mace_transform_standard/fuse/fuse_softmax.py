"""fuse-softmax: Softmax, LogSoftmax and LpNorm, spelled out, as one node each."""

from __future__ import annotations

from collections.abc import Sequence

from mace_core.ir import Graph, Node
from mace_core.ops.reduce import ReduceAttributes
from mace_core.ops.softmax import LpNormAttributes, SoftmaxAttributes
from mace_core.rewrite import Match, rewrite
from mace_transform_standard.patterns import Fused, find_maker, fuse, is_square


def fuse_softmax(graph: Graph) -> Graph:
    """Fuse exp(x) / sum(exp(x)) -> Softmax(x), its logarithm -> LogSoftmax(x), x / |x| -> LpNorm(x).

    With the maximum subtracted or not, along one axis. The fused op subtracts it always, so that it does not
    overflow where the spelled-out form does; x / |x| of zeros is not a number and becomes zero. x / max(|x|,
    epsilon) stays, since no op computes that.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    op = match.node.op.name
    if op == "Div":
        return fuse(match, _match_softmax(match) or _match_lp_norm(match))
    if op == "Sub":
        return fuse(match, _match_log_softmax(match))
    softmax = match.sole_producer(0, "Softmax") if op == "Log" else None
    return fuse(match, Fused("LogSoftmax", softmax.inputs, softmax.attrs)) if softmax else None


def _match_softmax(match: Match) -> Fused | None:
    powers, total = match.node.inputs
    exp, summed = find_maker(match.builder, powers, "Exp"), find_maker(match.builder, total, "ReduceSum")
    axis = _read_axis(match, summed) if summed and summed.inputs[0] == powers else None
    if exp is None or axis is None:
        return None
    return Fused("Softmax", [_strip_maximum(match, exp.inputs[0], axis)], SoftmaxAttributes(axis))


def _match_log_softmax(match: Match) -> Fused | None:
    """LogSoftmax as x - log(sum(exp(x)))."""
    x, total = match.node.inputs
    log, log_sum = (
        find_maker(match.builder, total, "Log"),
        find_maker(match.builder, total, "ReduceLogSumExp"),
    )
    summed = find_maker(match.builder, log.inputs[0], "ReduceSum") if log else None
    exp = find_maker(match.builder, summed.inputs[0], "Exp") if summed else None
    axis = _read_axis(match, summed or log_sum)
    if axis is None or (exp or log_sum or match.node).inputs[0] != x or not (exp or log_sum):
        return None
    return Fused("LogSoftmax", [_strip_maximum(match, x, axis)], SoftmaxAttributes(axis))


def _match_lp_norm(match: Match) -> Fused | None:
    """LpNorm as x / ReduceL2(x), or by the Sqrt of a ReduceSumSquare or of a sum of squares.

    Or as x / ReduceL1(x).
    """
    x, length = match.node.inputs
    root = find_maker(match.builder, length, "Sqrt")
    if root:
        norm = find_maker(match.builder, root.inputs[0], "ReduceSumSquare", "ReduceSum")
    else:
        norm = find_maker(match.builder, length, "ReduceL2", "ReduceL1")
    axis = _read_axis(match, norm)
    if norm is None or axis is None:
        return None
    source = is_square(match.builder, norm.inputs[0]) if norm.op.name == "ReduceSum" else norm.inputs[0]
    p = 1 if norm.op.name == "ReduceL1" else 2
    return Fused("LpNorm", [x], LpNormAttributes(axis, p)) if source == x else None


def _strip_maximum(match: Match, tensor: str, axis: int) -> str:
    """X where a tensor is x less its maximum."""
    node = find_maker(match.builder, tensor, "Sub")
    maximum = find_maker(match.builder, node.inputs[1], "ReduceMax") if node else None
    if node is None or maximum is None or maximum.inputs[0] != node.inputs[0]:
        return tensor
    return node.inputs[0] if _read_axis(match, maximum) == axis else tensor


def _read_axis(match: Match, node: Node | None) -> int | None:
    """The only axis that a reduction takes, if it keeps it."""
    # Without keepdims the quotient broadcasts along another axis than the one that was reduced.
    if node is None:
        return None
    attrs = node.attributes(ReduceAttributes)
    if not attrs.keepdims or len(attrs.axes) != 1:
        return None
    return attrs.axes[0] % len(match.builder.shape(node.inputs[0]))

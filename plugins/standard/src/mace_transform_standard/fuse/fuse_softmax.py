"""fuse-softmax: Softmax, LogSoftmax and LpNorm, spelled out, as one node each."""

from __future__ import annotations

from collections.abc import Sequence

from mace_core.ir import Graph, Node
from mace_core.ops.arguments import integers
from mace_core.rewrite import Match, rewrite
from mace_transform_standard.patterns import Fused, fuse, is_square, made_by


def fuse_softmax(graph: Graph) -> Graph:
    """Fuse exp(x) / sum(exp(x)), the maximum subtracted or not, to Softmax; its logarithm to LogSoftmax.

    X / |x| to LpNorm. Along one axis. Softmax without the maximum overflows where the fused one does not;
    x / |x| of zeros is not a number and becomes zero. x / max(|x|, epsilon) stays, since no op computes
    that.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    op = match.node.op.name
    if op == "Div":
        return fuse(match, _softmax(match) or _unit(match))
    if op == "Sub":
        return fuse(match, _log_sum(match))
    softmax = match.sole_producer(0, "Softmax") if op == "Log" else None
    return fuse(match, Fused("LogSoftmax", softmax.inputs, softmax.attrs)) if softmax else None


def _softmax(match: Match) -> Fused | None:
    powers, total = match.node.inputs
    exp, summed = made_by(match.new, powers, "Exp"), made_by(match.new, total, "ReduceSum")
    axis = _axis(match, summed) if summed and summed.inputs[0] == powers else None
    return (
        Fused("Softmax", [_unshifted(match, exp.inputs[0], axis)], {"axis": axis})
        if exp and axis is not None
        else None
    )


def _log_sum(match: Match) -> Fused | None:
    """LogSoftmax as x - log(sum(exp(x)))."""
    x, total = match.node.inputs
    log, whole = made_by(match.new, total, "Log"), made_by(match.new, total, "ReduceLogSumExp")
    summed = made_by(match.new, log.inputs[0], "ReduceSum") if log else None
    exp = made_by(match.new, summed.inputs[0], "Exp") if summed else None
    axis = _axis(match, summed or whole)
    if axis is None or (exp or whole or match.node).inputs[0] != x or not (exp or whole):
        return None
    return Fused("LogSoftmax", [_unshifted(match, x, axis)], {"axis": axis})


def _unit(match: Match) -> Fused | None:
    """LpNorm as x / ReduceL2(x), or by the Sqrt of a ReduceSumSquare or of a sum of squares.

    Or as x / ReduceL1(x).
    """
    x, length = match.node.inputs
    root = made_by(match.new, length, "Sqrt")
    norm = made_by(
        match.new,
        root.inputs[0] if root else length,
        *(("ReduceSumSquare", "ReduceSum") if root else ("ReduceL2", "ReduceL1")),
    )
    axis = _axis(match, norm)
    if norm is None or axis is None:
        return None
    source = is_square(match.new, norm.inputs[0]) if norm.op.name == "ReduceSum" else norm.inputs[0]
    return (
        Fused("LpNorm", [x], {"axis": axis, "p": 1 if norm.op.name == "ReduceL1" else 2})
        if source == x
        else None
    )


def _unshifted(match: Match, tensor: str, axis: int) -> str:
    """X where a tensor is x less its maximum."""
    node = made_by(match.new, tensor, "Sub")
    most = made_by(match.new, node.inputs[1], "ReduceMax") if node else None
    return (
        node.inputs[0]
        if node and most and most.inputs[0] == node.inputs[0] and _axis(match, most) == axis
        else tensor
    )


def _axis(match: Match, node: Node | None) -> int | None:
    """The only axis that a reduction takes, if it keeps it."""
    axes = integers(node.attrs, "axes") if node and node.attrs["keepdims"] else ()
    return axes[0] % len(match.new.shape(node.inputs[0])) if node and len(axes) == 1 else None

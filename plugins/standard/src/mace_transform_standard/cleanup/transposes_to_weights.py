"""transposes-to-weights: the rows of a matrix take the order of its operand, which needs no Transpose."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from mace_core.ir import Graph, Shape
from mace_core.ops.transpose import TransposeAttributes
from mace_core.rewrite import Match, rewrite


def transposes_to_weights(graph: Graph) -> Graph:
    """Reorder a matrix instead of its operand.

    Reshape(Transpose(x)) W -> Reshape(x) W', W' with its rows in x's order.

    Where the Transpose leaves the axes in front that stay rows of the product. Exact but for the order in
    which the products are summed.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    node, builder = match.node, match.builder
    if (
        node.op.name != "MatMul"
        or node.inputs[1] not in builder.weights
        or len(builder.shape(node.inputs[1])) != 2
    ):
        return None
    reshape = match.sole_producer(0, "Reshape")
    transpose = builder.producer(reshape.inputs[0]) if reshape else None
    if (
        reshape is None
        or transpose is None
        or transpose.op.name != "Transpose"
        or match.is_rounded(reshape.inputs[0])
    ):
        return None
    kept_axes = _count_kept_axes(builder.shape(transpose.outputs[0]), builder.shape(reshape.outputs[0]))
    matrix = builder.tensors[node.inputs[1]]
    # Axes in front that stay are rows of the product, and must not be reordered.
    perm = transpose.attributes(TransposeAttributes).perm
    if (
        kept_axes is None
        or perm[:kept_axes] != tuple(range(kept_axes))
        or (matrix.quant and matrix.quant.axis == 0)
    ):
        return None
    rows = builder.shape(transpose.outputs[0])[kept_axes:]
    # The inverse of the Transpose: row r of the new matrix is multiplied with element r of x as it lies.
    back = [perm.index(axis) - kept_axes for axis in range(kept_axes, len(perm))]
    array = builder.weights[matrix.name].reshape(*rows, -1).transpose(*back, len(rows)).reshape(matrix.shape)
    x = builder.one(
        "Reshape", [transpose.inputs[0]], reshape.attrs, outputs=[builder.fresh(f"{reshape.outputs[0]}.flat")]
    )
    return match.emit(
        node.op, [x, builder.weight(matrix.name, array.copy(), matrix.quant), *node.inputs[2:]], node.attrs
    )


def _count_kept_axes(shape: Shape, reshape: Shape) -> int | None:
    """How many axes stay in front of those that make up the last one of `flat`.

    None if it is made up otherwise.
    """
    if not reshape or 0 in shape:
        return None
    counts = [i for i in range(len(shape) + 1) if prod(shape[i:]) == reshape[-1]]
    return counts[0] if counts else None

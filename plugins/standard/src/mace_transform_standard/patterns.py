"""What rules that look for spelled-out functions share: constants, products, the nodes inside one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np

from mace_core.attributes import Attributes
from mace_core.graph_builder import Builder
from mace_core.ir import Array, Node, Shape
from mace_core.ops.reshape import ReshapeAttributes
from mace_core.rewrite import Match

CLOSE = 1e-5
"""Constants are rounded where models are written: 0.7978846 is the square root of 2 / pi."""


def near(value: float | None, constant: float) -> bool:
    """Whether a number is a constant as models write it."""
    return value is not None and abs(value - constant) <= CLOSE * abs(constant)


def read_number(builder: Builder, tensor: str) -> float | None:
    """The number that a constant of one element is; None for any other tensor."""
    array = builder.constant(tensor)
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


def narrow(values: Array, dtype: np.dtype[Any]) -> Array | None:
    """Return products or sums of constants in the type of the constants; None if it cannot hold them.

    Half precision ends at 65504 and has few digits below 6e-5: a constant that lies within, times a factor
    that does, may not.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        rounded = values.astype(dtype)
        error, largest = np.abs(rounded - values), np.max(np.abs(values), initial=0)
    is_lost = np.isinf(rounded) & np.isfinite(values) | (error > np.finfo(dtype).eps * largest)
    return None if np.any(is_lost) else rounded


def find_maker(builder: Builder, tensor: str, *ops: str) -> Node | None:
    """The node that computes a tensor, if it is one of these ops, no matter who else reads it."""
    node = builder.producer(tensor)
    return node if node and node.op.name in ops else None


def operand_orders(node: Node) -> Sequence[tuple[str, str]]:
    """Return the two operands of a node in each order that computes the same."""
    a, b = node.inputs
    return ((a, b),) if node.op.name in ("Sub", "Div") else ((a, b), (b, a))


def sum_with_number(builder: Builder, tensor: str) -> tuple[str, float] | None:
    """The term and the number where a tensor is term + number, in either order, or term - number."""
    node = find_maker(builder, tensor, "Add", "Sub")
    if node is None:
        return None
    # number - term is another function: the caller looks for a Sub itself.
    for term, other in operand_orders(node):
        value = read_number(builder, other)
        if value is not None:
            return term, value if node.op.name == "Add" else -value
    return None


def is_square(builder: Builder, tensor: str) -> str | None:
    """The x where a tensor is x * x."""
    node = find_maker(builder, tensor, "Mul")
    return node.inputs[0] if node and node.inputs[0] == node.inputs[1] else None


@dataclass(frozen=True)
class FactorProduct:
    """A product of constants, as one array, and of tensors that are computed."""

    factor: Array
    terms: tuple[str, ...]

    @property
    def number(self) -> float | None:
        """The constants' product if it is one number."""
        return float(self.factor.reshape(-1)[0]) if self.factor.size == 1 else None

    def remove_terms(self, *terms: str) -> tuple[str, ...] | None:
        """The terms that are left when these are taken out, each as often as it stands there.

        None if one is missing.
        """
        left = list(self.terms)
        for term in terms:
            if term not in left:
                return None
            left.remove(term)
        return tuple(left)


ONE = FactorProduct(np.ones(()), ())


def read_product(match: Match, node: Node) -> FactorProduct | None:
    """What a Mul, Neg or Div multiplies, through those before it that nothing else reads.

    None if it divides by what is computed.
    """
    if node.op.name == "Neg":
        inner = _factors(match, node.inputs[0])
        return FactorProduct(-inner.factor, inner.terms)
    first, second = (_factors(match, tensor) for tensor in node.inputs)
    if node.op.name == "Mul":
        return FactorProduct(first.factor * second.factor, (*first.terms, *second.terms))
    if second.terms or not np.all(second.factor):
        return None
    return FactorProduct(first.factor / second.factor, first.terms)


def _factors(match: Match, tensor: str) -> FactorProduct:
    # Double precision: a product of several rounded constants would be off by more than one rounding.
    constant = match.builder.constant(tensor)
    if constant is not None and constant.dtype.kind == "f":
        return FactorProduct(constant.astype(np.float64), ())
    node = find_maker(match.builder, tensor, "Mul", "Div", "Neg")
    # A factor that others read must be computed anyway, and a stored one has been rounded.
    is_single = match.is_read_once(tensor) and not match.builder.tensors[tensor].quant
    inner = read_product(match, node) if node and is_single else None
    return inner or FactorProduct(ONE.factor, (tensor,))


def read_factors(match: Match, tensor: str) -> FactorProduct:
    """What a tensor is the product of; itself, if of nothing else."""
    return _factors(match, tensor)


def find_enclosed_nodes(match: Match, *boundary: str) -> list[Node] | None:
    """The nodes between these tensors and the one matched.

    None if another node or a graph output reads a result of theirs. Nor may a result be stored as
    integers: its rounding would be lost.
    """
    reads: dict[str, int] = {}
    inside: dict[str, Node] = {}
    stack = [match.node]
    while stack:
        for tensor in filter(None, stack.pop().inputs):
            reads[tensor] = reads.get(tensor, 0) + 1
            node = match.builder.producer(tensor)
            if tensor not in boundary and node is not None and node.name not in inside:
                inside[node.name] = node
                stack.append(node)
    nodes = list(inside.values())
    for tensor in chain.from_iterable(node.outputs for node in nodes):
        read_inside = reads.get(tensor, 0)
        # `uses` counts the old graph; a tensor that a rule has made is read only where we came from.
        if read_inside != match.uses.get(tensor, read_inside) or match.builder.tensors[tensor].quant:
            return None
    return nodes


@dataclass(frozen=True)
class Fused:
    """One op that computes what the nodes between its operand and the node matched do.

    shape: what the operand must be reshaped to; the result is reshaped back.
    """

    op: str
    inputs: Sequence[str]
    attrs: Attributes = field(default_factory=Attributes)
    shape: Shape | None = None


def fuse(match: Match, fused: Fused | None) -> Sequence[str] | None:
    """Put the op in the place of the nodes.

    None if something else reads what one of them makes, or the result has another shape. The operand must
    be of floats.
    """
    if fused is None:
        return None
    x = match.builder.tensors[fused.inputs[0]]
    inside = find_enclosed_nodes(match, x.name)
    result = match.node.op.infer(
        [match.builder.tensors[i].real for i in match.node.inputs], match.node.attrs
    )[0]
    # A shape that broadcasting made, or a Cast on the way, is not what the one op gives.
    if inside is None or (x.real.dtype, x.shape) != result or not x.real.dtype.is_float:
        return None
    # In the order of the graph, as reports name what a node stands for.
    origins = (node.sources for node in (*reversed(inside), match.node))
    sources = dict.fromkeys(chain.from_iterable(origins))
    stands_for = replace(match.node, sources=tuple(sources))
    if fused.shape is None:
        return match.builder.add(
            fused.op, fused.inputs, fused.attrs, outputs=match.node.outputs, like=stands_for
        )
    wide = match.builder.one("Reshape", [x.name], ReshapeAttributes(fused.shape), like=stands_for)
    spelled = match.builder.one(fused.op, [wide, *fused.inputs[1:]], fused.attrs, like=stands_for)
    return match.emit("Reshape", [spelled], ReshapeAttributes(x.shape))

"""Einstein summation of one or two tensors as transposes, products and sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod
from string import ascii_letters
from types import MappingProxyType

from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops import Handler
from mace_frontend_tensorflow.values import OptionalValue


@dataclass(frozen=True)
class _Term:
    """A tensor, and a letter for each of its axes."""

    tensor: str
    letters: str


def _einsum(node: TensorFlowNode) -> Sequence[OptionalValue]:
    letters_of_operands, result = _read_equation(node)
    terms = [
        _take_diagonals(node, _Term(node.input(i), letters)) for i, letters in enumerate(letters_of_operands)
    ]
    first, *others = terms
    term = _multiply(node, first, others[0], result) if others else _sum_unneeded(node, first, result)
    missing = [letter for letter in result if letter not in term.letters]
    node.refuse_unless(not missing, f"no operand has axes {missing} of its equation's result")
    perm = tuple(term.letters.index(letter) for letter in result)
    if perm == tuple(range(len(perm))):
        return [term.tensor]
    return node.done("Transpose", [term.tensor], {"perm": perm})


def _read_equation(node: TensorFlowNode) -> tuple[list[str], str]:
    """Return the letters of the operands and of the result, an ellipsis replaced by letters that are free.

    Ellipses of different lengths broadcast from the last axis: the shorter one takes the last of the letters.
    """
    equation = "".join(node.attr("equation", "").split())
    left, arrow, right = equation.partition("->")
    operands = left.split(",")
    text = f"its equation {equation!r}"
    node.refuse_unless(
        bool(arrow) and len(operands) == node.operand_count in (1, 2),
        f"{text} is for other than {node.operand_count} operands",
    )
    # An ellipsis stands for any number of axes: each gets a letter that the equation leaves free.
    free = [letter for letter in ascii_letters if letter not in equation]
    lengths = [
        node.rank(i) - len(operand) + len("...") for i, operand in enumerate(operands) if "..." in operand
    ]
    dots = max(lengths, default=0)
    node.refuse_unless(0 <= dots <= len(free), f"{text} does not fit the ranks of its operands")
    expanded = []
    for i, operand in enumerate(operands):
        length = max(node.rank(i) - len(operand) + len("..."), 0)
        letters = operand.replace("...", "".join(free[dots - length : dots]) if length else "")
        node.refuse_unless(letters.isalpha() or not letters, f"{text} is malformed")
        node.refuse_unless(
            len(letters) == node.rank(i), f"{text} does not fit operand {i} of rank {node.rank(i)}"
        )
        expanded.append(letters)
    return expanded, right.replace("...", "".join(free[:dots]))


def _take_diagonals(node: TensorFlowNode, term: _Term) -> _Term:
    """Return the term with axes that share a letter merged: every n + 1st element of both in one."""
    # A letter may stand for three axes and more: two are merged at a time.
    for letter in sorted({c for c in term.letters if term.letters.count(c) > 1}):
        while term.letters.count(letter) > 1:
            shape = node.builder.shape(term.tensor)
            pair = [i for i, c in enumerate(term.letters) if c == letter][:2]
            rest = [i for i in range(len(shape)) if i not in pair]
            outer, n = tuple(shape[i] for i in rest), shape[pair[0]]
            node.refuse_unless(
                shape[pair[1]] == n, f"it takes a diagonal of axes of {n} and {shape[pair[1]]}"
            )
            # Elements (i, i) lie n + 1 apart once both axes are the last and merged into one.
            moved = node.emit("Transpose", [term.tensor], {"perm": (*rest, *pair)}, tag="last")
            flat = node.reshape(moved, (*outer, n * n), "flat")
            attrs = {
                "starts": (0,) * (len(outer) + 1),
                "sizes": (*outer, n),
                "steps": (*(1,) * len(outer), n + 1),
            }
            diagonal = node.emit("Slice", [flat], attrs, tag="diagonal")
            term = _Term(diagonal, "".join(term.letters[i] for i in rest) + letter)
    return term


def _sum_unneeded(node: TensorFlowNode, term: _Term, needed: str) -> _Term:
    """Return the term summed over axes that nothing else reads: that makes the product smaller."""
    axes = tuple(i for i, letter in enumerate(term.letters) if letter not in needed)
    if not axes:
        return term
    tensor = node.emit("ReduceSum", [term.tensor], {"axes": axes, "keepdims": False}, tag="sum")
    return _Term(tensor, "".join(c for c in term.letters if c in needed))


def _multiply(node: TensorFlowNode, a: _Term, b: _Term, result: str) -> _Term:
    """Return one batched product of matrices: [batch, rows, inner] @ [batch, inner, columns].

    Letters of both operands are the batch if the result has them, and are summed over otherwise.
    """
    a = _sum_unneeded(node, a, result + b.letters)
    b = _sum_unneeded(node, b, result + a.letters)
    sizes = _sizes(node, a, b)
    # A letter of one operand alone that the result lacks was summed over above.
    both = [c for c in a.letters if c in b.letters]
    batch, inner = [c for c in both if c in result], [c for c in both if c not in result]
    rows, columns = [c for c in a.letters if c not in both], [c for c in b.letters if c not in both]
    left = _group_axes(node, a, (batch, rows, inner), sizes)
    right = _group_axes(node, b, (batch, inner, columns), sizes)
    product = node.emit("MatMul", [left, right])
    letters = "".join([*batch, *rows, *columns])
    return _Term(node.reshape(product, tuple(sizes[c] for c in letters), "split"), letters)


def _sizes(node: TensorFlowNode, a: _Term, b: _Term) -> dict[str, int]:
    """Return the size of each letter's axis; one of 1 broadcasts."""
    sizes: dict[str, int] = {}
    for term in (a, b):
        for letter, n in zip(term.letters, node.builder.shape(term.tensor), strict=True):
            before = sizes.get(letter, 1)
            node.refuse_unless(
                before == n or 1 in (n, before), f"axis {letter!r} of its equation has sizes {n} and {before}"
            )
            sizes[letter] = n if before == 1 else before
    return sizes


def _group_axes(
    node: TensorFlowNode, term: _Term, groups: Sequence[Sequence[str]], sizes: Mapping[str, int]
) -> str:
    """Return the term as a tensor of three axes, each with one group of letters.

    Axes that broadcast are expanded, because a group cannot broadcast in part.
    """
    order = list(chain.from_iterable(groups))
    perm, tensor = tuple(term.letters.index(c) for c in order), term.tensor
    if perm != tuple(range(len(perm))):
        tensor = node.emit("Transpose", [tensor], {"perm": perm}, tag="permute")
    full = tuple(sizes[c] for c in order)
    if node.builder.shape(tensor) != full:
        tensor = node.emit("Expand", [tensor], {"shape": full}, tag="expand")
    group_sizes = [prod(map(sizes.__getitem__, group)) for group in groups]
    return node.reshape(tensor, group_sizes, "group")


HANDLERS: Mapping[str, Handler] = MappingProxyType({"Einsum": _einsum, "XlaEinsum": _einsum})

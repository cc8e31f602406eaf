"""Einstein summation as transposes, products and sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod
from string import ascii_letters
from types import MappingProxyType

from mace_frontend_onnx.importer import Result
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler


@dataclass(frozen=True)
class Term:
    """An operand: a tensor and a letter for each of its axes."""

    tensor: str
    letters: str


def _einsum(node: OnnxNode) -> Sequence[Result]:
    terms, output = _parse_terms(node, "".join(node.attr("equation").split()))
    total, *rest = terms
    for i, term in enumerate(rest):
        # An axis is summed as soon as no later operand and not the result has it: that keeps the products
        # small.
        later = set(output)
        for other in rest[i + 1 :]:
            later.update(other.letters)
        left = _sum_axes(node, total, later | {*term.letters})
        total = _product(node, left, _sum_axes(node, term, later | {*total.letters}), later)
    total = _sum_axes(node, total, {*output})
    perm = tuple(total.letters.index(letter) for letter in output)
    if perm == tuple(range(len(perm))):
        return [total.tensor]
    return node.done("Transpose", [total.tensor], {"perm": perm})


def _parse_terms(node: OnnxNode, equation: str) -> tuple[list[Term], str]:
    """Return the operands and the letters of the result, with free letters in place of each ellipsis."""
    left, arrow, right = equation.partition("->")
    parts = left.split(",")
    problem = f"equation {equation!r} has {len(parts)} operands, the node {node.input_count}"
    node.refuse_unless(len(parts) == node.input_count, problem)
    free = [letter for letter in ascii_letters if letter not in equation]
    ranks = [len(node.shape(i)) for i in range(node.input_count)]
    ellipses = [rank - len(part) + 3 for part, rank in zip(parts, ranks, strict=True) if "..." in part]
    dots = max(ellipses, default=0)
    node.refuse_unless(0 <= dots <= len(free), f"equation {equation!r} does not fit its operands")
    terms = []
    for i, (part, rank) in enumerate(zip(parts, ranks, strict=True)):
        # The axes of ellipses broadcast from the last one, so a shorter ellipsis gets the last letters.
        covered = rank - len(part) + 3
        letters = part.replace("...", "".join(free[dots - covered : dots]) if covered else "")
        node.refuse_unless(len(letters) == rank, f"equation {equation!r}: operand {i} has rank {rank}")
        terms.append(_without_repeats(node, Term(node.input(i), letters)))
    if arrow:
        return terms, right.replace("...", "".join(free[:dots]))
    # Einsum: without "->" the result has the ellipsis, then the letters that occur once in alphabetical
    # order.
    counts = Counter(c for c in left if c.isalpha())
    return terms, "".join(free[:dots]) + "".join(sorted(c for c, n in counts.items() if n == 1))


def _without_repeats(node: OnnxNode, term: Term) -> Term:
    """Return a term with the diagonal in place of axes that share a letter."""
    for letter in sorted({c for c in term.letters if term.letters.count(c) > 1}):
        while term.letters.count(letter) > 1:
            term = _diagonal(node, term, letter)
    return term


def _diagonal(node: OnnxNode, term: Term, letter: str) -> Term:
    shape = node.builder.shape(term.tensor)
    pair = [i for i, c in enumerate(term.letters) if c == letter][:2]
    rest = [i for i in range(len(shape)) if i not in pair]
    n = shape[pair[0]]
    node.refuse_unless(shape[pair[1]] == n, f"a diagonal of axes {n} and {shape[pair[1]]} long")
    outer = tuple(shape[i] for i in rest)
    permuted = node.emit("Transpose", [term.tensor], {"perm": (*rest, *pair)}, tag="last")
    # In n x n elements that lie in a row, those of the diagonal are n + 1 apart: a strided slice, no gather.
    flat = node.emit("Reshape", [permuted], {"shape": (*outer, n * n)}, tag="flat")
    cut = {"starts": (0,) * (len(outer) + 1), "sizes": (*outer, n), "steps": (*(1,) * len(outer), n + 1)}
    letters = "".join(term.letters[i] for i in rest) + letter
    return Term(node.emit("Slice", [flat], cut, tag="diagonal"), letters)


def _sum_axes(node: OnnxNode, term: Term, needed: set[str]) -> Term:
    """Return the term summed over the axes that nothing needs any more."""
    axes = tuple(i for i, letter in enumerate(term.letters) if letter not in needed)
    if not axes:
        return term
    tensor = node.emit("ReduceSum", [term.tensor], {"axes": axes, "keepdims": False}, tag="sum")
    return Term(tensor, "".join(c for c in term.letters if c in needed))


def _product(node: OnnxNode, a: Term, b: Term, needed: set[str]) -> Term:
    """Return two terms as one batched matrix product: [batch, rows, inner] @ [batch, inner, columns]."""
    sizes = _sizes(node, a, b)
    both = [c for c in a.letters if c in b.letters]
    batch, inner = [c for c in both if c in needed], [c for c in both if c not in needed]
    rows, columns = [c for c in a.letters if c not in both], [c for c in b.letters if c not in both]
    if not inner:
        return _multiply(node, a, b, [*batch, *rows, *columns])
    left = _group_axes(node, a, (batch, rows, inner), sizes)
    right = _group_axes(node, b, (batch, inner, columns), sizes)
    product = node.emit("MatMul", [left, right])
    letters = "".join([*batch, *rows, *columns])
    shape = tuple(sizes[c] for c in letters)
    return Term(node.emit("Reshape", [product], {"shape": shape}, tag="split"), letters)


def _sizes(node: OnnxNode, a: Term, b: Term) -> dict[str, int]:
    """Return the length of each letter's axis; one that is 1 in one term broadcasts."""
    sizes: dict[str, int] = {}
    for term in (a, b):
        for letter, n in zip(term.letters, node.builder.shape(term.tensor), strict=True):
            known = sizes.get(letter, n)
            node.refuse_unless(known == n or 1 in (n, known), f"axis {letter!r} is {n} and {known} long")
            sizes[letter] = n if known == 1 else known
    return sizes


def _group_axes(node: OnnxNode, term: Term, groups: Sequence[Sequence[str]], sizes: Mapping[str, int]) -> str:
    """Return the term as a tensor of three axes, each holding one group of letters."""
    order = list(chain.from_iterable(groups))
    tensor, perm = term.tensor, tuple(term.letters.index(c) for c in order)
    if perm != tuple(range(len(perm))):
        tensor = node.emit("Transpose", [tensor], {"perm": perm}, tag="permute")
    full = tuple(sizes[c] for c in order)
    # Merged axes cannot broadcast one by one, so those of length 1 are repeated first.
    if node.builder.shape(tensor) != full:
        tensor = node.emit("Expand", [tensor], {"shape": full}, tag="expand")
    shape = tuple(prod(sizes[c] for c in group) for group in groups)
    return tensor if shape == full else node.emit("Reshape", [tensor], {"shape": shape}, tag="group")


def _multiply(node: OnnxNode, a: Term, b: Term, letters: Sequence[str]) -> Term:
    """Return the elementwise product with the axes `letters`, which are those of both terms."""
    factors = []
    for term in (a, b):
        present = [c for c in letters if c in term.letters]
        perm = tuple(term.letters.index(c) for c in present)
        sizes = dict(zip(term.letters, node.builder.shape(term.tensor), strict=True))
        factor = term.tensor
        if perm != tuple(range(len(perm))):
            factor = node.emit("Transpose", [factor], {"perm": perm}, tag="permute")
        if len(present) < len(letters):
            shape = tuple(sizes.get(c, 1) for c in letters)
            factor = node.emit("Reshape", [factor], {"shape": shape}, tag="align")
        factors.append(factor)
    return Term(node.emit("Mul", factors), "".join(letters))


HANDLERS: Mapping[str, Handler] = MappingProxyType({"Einsum": _einsum})

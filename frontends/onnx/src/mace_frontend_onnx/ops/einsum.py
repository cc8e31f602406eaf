"""Einstein summation as transposes, products and sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from string import ascii_letters
from types import MappingProxyType

from mace_frontend_onnx.importer import Held
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler


@dataclass(frozen=True)
class Term:
    """An operand: a tensor and a letter for each of its axes."""

    tensor: str
    letters: str


def _einsum(node: OnnxNode) -> Sequence[Held]:
    terms, wanted = _terms(node, "".join(node.attr("equation").split()))
    first, *rest = terms
    for i, term in enumerate(rest):
        later = {*wanted, *(letter for t in rest[i + 1 :] for letter in t.letters)}
        first = _product(
            node,
            _summed(node, first, later | {*term.letters}),
            _summed(node, term, later | {*first.letters}),
            later,
        )
    first = _summed(node, first, {*wanted})
    perm = tuple(first.letters.index(letter) for letter in wanted)
    if perm == tuple(range(len(perm))):
        return [first.tensor]
    return node.done("Transpose", [first.tensor], {"perm": perm})


def _terms(node: OnnxNode, equation: str) -> tuple[list[Term], str]:
    """The operands and the letters of the result, an ellipsis replaced by letters that are free.

    Without "->" the result has the ellipsis, then each letter that occurs once, sorted.
    """
    left, arrow, right = equation.partition("->")
    texts = left.split(",")
    node.refuse_unless(
        len(texts) == node.count, f"equation {equation!r} has {len(texts)} operands, the node {node.count}"
    )
    free = [letter for letter in ascii_letters if letter not in equation]
    ranks = [len(node.shape(i)) for i in range(node.count)]
    dots = max((rank - len(t) + 3 for t, rank in zip(texts, ranks, strict=True) if "..." in t), default=0)
    node.refuse_unless(0 <= dots <= len(free), f"equation {equation!r} does not fit its operands")
    terms = []
    for i, (text, rank) in enumerate(zip(texts, ranks, strict=True)):
        own = rank - len(text) + 3
        letters = text.replace("...", "".join(free[dots - own : dots]) if own else "")
        node.refuse_unless(len(letters) == rank, f"equation {equation!r}: operand {i} has rank {rank}")
        terms.append(_without_repeats(node, Term(node.input(i), letters)))
    if arrow:
        return terms, right.replace("...", "".join(free[:dots]))
    counts = Counter(c for c in left if c.isalpha())
    return terms, "".join(free[:dots]) + "".join(sorted(c for c, n in counts.items() if n == 1))


def _without_repeats(node: OnnxNode, term: Term) -> Term:
    """Take the diagonal of axes that share a letter: every n + 1st element of the two in one."""
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
    turned = node.emit("Transpose", [term.tensor], {"perm": (*rest, *pair)}, tag="last")
    flat = node.emit("Reshape", [turned], {"shape": (*outer, n * n)}, tag="flat")
    cut = {"starts": (0,) * (len(outer) + 1), "sizes": (*outer, n), "steps": (*(1,) * len(outer), n + 1)}
    return Term(
        node.emit("Slice", [flat], cut, tag="diagonal"), "".join(term.letters[i] for i in rest) + letter
    )


def _summed(node: OnnxNode, term: Term, needed: set[str]) -> Term:
    """The term without the axes that nothing needs any more."""
    axes = tuple(i for i, letter in enumerate(term.letters) if letter not in needed)
    if not axes:
        return term
    tensor = node.emit("ReduceSum", [term.tensor], {"axes": axes, "keepdims": False}, tag="sum")
    return Term(tensor, "".join(c for c in term.letters if c in needed))


def _product(node: OnnxNode, a: Term, b: Term, needed: set[str]) -> Term:
    """Two terms as one batched matrix product: [batch, rows, inner] @ [batch, inner, columns]."""
    sizes = _sizes(node, a, b)
    both = [c for c in a.letters if c in b.letters]
    batch, inner = [c for c in both if c in needed], [c for c in both if c not in needed]
    rows, columns = [c for c in a.letters if c not in both], [c for c in b.letters if c not in both]
    if not inner:
        return _multiplied(node, a, b, [*batch, *rows, *columns])
    left = _grouped(node, a, (batch, rows, inner), sizes)
    right = _grouped(node, b, (batch, inner, columns), sizes)
    made = node.emit("MatMul", [left, right])
    letters = "".join([*batch, *rows, *columns])
    shape = tuple(sizes[c] for c in letters)
    return Term(node.emit("Reshape", [made], {"shape": shape}, tag="split"), letters)


def _sizes(node: OnnxNode, a: Term, b: Term) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for term in (a, b):
        for letter, n in zip(term.letters, node.builder.shape(term.tensor), strict=True):
            node.refuse_unless(
                sizes.get(letter, n) == n or 1 in (n, sizes[letter]),
                f"axis {letter!r} is {n} and {sizes.get(letter)} long",
            )
            sizes[letter] = n if sizes.get(letter, 1) == 1 else sizes[letter]
    return sizes


def _grouped(node: OnnxNode, term: Term, groups: Sequence[Sequence[str]], sizes: Mapping[str, int]) -> str:
    """The term as a tensor of three axes, each holding one group of letters.

    Axes that broadcast are written out.
    """
    order = [c for group in groups for c in group]
    tensor, perm = term.tensor, tuple(term.letters.index(c) for c in order)
    if perm != tuple(range(len(perm))):
        tensor = node.emit("Transpose", [tensor], {"perm": perm}, tag="permute")
    full = tuple(sizes[c] for c in order)
    if node.builder.shape(tensor) != full:
        tensor = node.emit("Expand", [tensor], {"shape": full}, tag="expand")
    shape = tuple(prod(sizes[c] for c in group) for group in groups)
    return tensor if shape == full else node.emit("Reshape", [tensor], {"shape": shape}, tag="group")


def _multiplied(node: OnnxNode, a: Term, b: Term, letters: Sequence[str]) -> Term:
    """The element-wise product, every axis of either kept."""
    sides = []
    for term in (a, b):
        present = [c for c in letters if c in term.letters]
        perm = tuple(term.letters.index(c) for c in present)
        sizes = dict(zip(term.letters, node.builder.shape(term.tensor), strict=True))
        turned = term.tensor
        if perm != tuple(range(len(perm))):
            turned = node.emit("Transpose", [turned], {"perm": perm}, tag="permute")
        if len(present) < len(letters):
            turned = node.emit(
                "Reshape", [turned], {"shape": tuple(sizes.get(c, 1) for c in letters)}, tag="align"
            )
        sides.append(turned)
    return Term(node.emit("Mul", sides), "".join(letters))


HANDLERS: Mapping[str, Handler] = MappingProxyType({"Einsum": _einsum})

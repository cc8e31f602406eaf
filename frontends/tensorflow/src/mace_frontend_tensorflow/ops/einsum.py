"""Einstein summation of one or two tensors as transposes, products and sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from string import ascii_letters
from types import MappingProxyType

from mace_frontend_tensorflow.held import Held
from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops import Handler


@dataclass(frozen=True)
class _Term:
    """A tensor, and a letter for each of its axes."""

    tensor: str
    letters: str


def _einsum(node: TensorFlowNode) -> Sequence[Held]:
    texts, wanted = _equation(node)
    terms = [_diagonals(node, _Term(node.input(i), text)) for i, text in enumerate(texts)]
    term = _summed(node, terms[0], wanted) if len(terms) == 1 else _product(node, terms[0], terms[1], wanted)
    missing = [letter for letter in wanted if letter not in term.letters]
    node.refuse_unless(not missing, f"its equation makes axes {missing} of nothing")
    perm = tuple(term.letters.index(letter) for letter in wanted)
    return (
        [term.tensor]
        if perm == tuple(range(len(perm)))
        else node.done("Transpose", [term.tensor], {"perm": perm})
    )


def _equation(node: TensorFlowNode) -> tuple[list[str], str]:
    """Letters of the operands and of the result, an ellipsis replaced by letters that are free."""
    equation = "".join(node.attr("equation", "").split())
    left, arrow, right = equation.partition("->")
    texts = left.split(",")
    node.refuse_unless(
        bool(arrow) and len(texts) == node.count in (1, 2), f"equation {equation!r} for {node.count} tensors"
    )
    free = [letter for letter in ascii_letters if letter not in equation]
    dots = max((node.rank(i) - len(t) + 3 for i, t in enumerate(texts) if "..." in t), default=0)
    node.refuse_unless(0 <= dots <= len(free), f"equation {equation!r} does not fit its operands")
    made = []
    for i, text in enumerate(texts):
        own = max(node.rank(i) - len(text) + 3, 0)
        letters = text.replace("...", "".join(free[dots - own : dots]) if own else "")
        node.refuse_unless(letters.isalpha() or not letters, f"equation {equation!r} is malformed")
        node.refuse_unless(
            len(letters) == node.rank(i), f"equation {equation!r}: operand {i} has rank {node.rank(i)}"
        )
        made.append(letters)
    return made, right.replace("...", "".join(free[:dots]))


def _diagonals(node: TensorFlowNode, term: _Term) -> _Term:
    """Of axes that share a letter every n + 1st element of the two in one."""
    for letter in sorted({c for c in term.letters if term.letters.count(c) > 1}):
        while term.letters.count(letter) > 1:
            shape = node.builder.shape(term.tensor)
            pair = [i for i, c in enumerate(term.letters) if c == letter][:2]
            rest = [i for i in range(len(shape)) if i not in pair]
            outer, n = tuple(shape[i] for i in rest), shape[pair[0]]
            node.refuse_unless(shape[pair[1]] == n, f"a diagonal of axes {n} and {shape[pair[1]]} long")
            turned = node.emit("Transpose", [term.tensor], {"perm": (*rest, *pair)}, tag="last")
            flat = node.reshape(turned, (*outer, n * n), "flat")
            cut = {
                "starts": (0,) * (len(outer) + 1),
                "sizes": (*outer, n),
                "steps": (*(1,) * len(outer), n + 1),
            }
            term = _Term(
                node.emit("Slice", [flat], cut, tag="diagonal"),
                "".join(term.letters[i] for i in rest) + letter,
            )
    return term


def _summed(node: TensorFlowNode, term: _Term, needed: str) -> _Term:
    """The term without the axes that nothing needs any more."""
    axes = tuple(i for i, letter in enumerate(term.letters) if letter not in needed)
    if not axes:
        return term
    tensor = node.emit("ReduceSum", [term.tensor], {"axes": axes, "keepdims": False}, tag="sum")
    return _Term(tensor, "".join(c for c in term.letters if c in needed))


def _product(node: TensorFlowNode, a: _Term, b: _Term, wanted: str) -> _Term:
    """One batched product of matrices: [batch, rows, inner] @ [batch, inner, columns]."""
    a, b = _summed(node, a, wanted + b.letters), _summed(node, b, wanted + a.letters)
    sizes = _sizes(node, a, b)
    both = [c for c in a.letters if c in b.letters]
    batch, inner = [c for c in both if c in wanted], [c for c in both if c not in wanted]
    rows, columns = [c for c in a.letters if c not in both], [c for c in b.letters if c not in both]
    left = _grouped(node, a, (batch, rows, inner), sizes)
    right = _grouped(node, b, (batch, inner, columns), sizes)
    made = node.emit("MatMul", [left, right])
    letters = "".join([*batch, *rows, *columns])
    return _Term(node.reshape(made, tuple(sizes[c] for c in letters), "split"), letters)


def _sizes(node: TensorFlowNode, a: _Term, b: _Term) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for term in (a, b):
        for letter, n in zip(term.letters, node.builder.shape(term.tensor), strict=True):
            before = sizes.get(letter, 1)
            node.refuse_unless(before == n or 1 in (n, before), f"axis {letter!r} is {n} and {before} long")
            sizes[letter] = n if before == 1 else before
    return sizes


def _grouped(
    node: TensorFlowNode, term: _Term, groups: Sequence[Sequence[str]], sizes: Mapping[str, int]
) -> str:
    """The term as a tensor of three axes, each holding one group of letters.

    Axes that broadcast are written out.
    """
    order = [c for group in groups for c in group]
    perm, tensor = tuple(term.letters.index(c) for c in order), term.tensor
    if perm != tuple(range(len(perm))):
        tensor = node.emit("Transpose", [tensor], {"perm": perm}, tag="permute")
    full = tuple(sizes[c] for c in order)
    if node.builder.shape(tensor) != full:
        tensor = node.emit("Expand", [tensor], {"shape": full}, tag="expand")
    return node.reshape(tensor, tuple(prod(sizes[c] for c in group) for group in groups), "group")


HANDLERS: Mapping[str, Handler] = MappingProxyType({"Einsum": _einsum, "XlaEinsum": _einsum})

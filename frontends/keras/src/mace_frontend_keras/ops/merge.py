"""Layers that join tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

from mace_frontend_keras.node import KerasNode
from mace_frontend_keras.ops import Handler
from mace_frontend_keras.ops.norm import unit


def _terms(node: KerasNode) -> list[str]:
    """The tensors with as many axes each: those with fewer get them behind the batch."""
    found = node.float_inputs()
    rank = max((len(node.shape(t)) for t in found), default=0)
    node.refuse_unless(len(found) > 1, f"it joins {len(found)} tensors")
    made = []
    for tensor in found:
        shape = node.shape(tensor)
        wide = (*shape[:1], *(1,) * (rank - len(shape)), *shape[1:])
        made.append(tensor if len(shape) == rank else node.emit("Reshape", [tensor], {"shape": wide}))
    return made


def chain(node: KerasNode, op: str, terms: Sequence[str]) -> str:
    """One op over all terms but the last two's, which the caller joins."""
    total = terms[0]
    for term in terms[1:]:
        total = node.emit(op, [total, term])
    return total


def _each(op: str) -> Handler:
    def handle(node: KerasNode) -> Sequence[str]:
        terms = _terms(node)
        return node.done(op, [chain(node, op, terms[:-1]), terms[-1]])

    return handle


def _subtract(node: KerasNode) -> Sequence[str]:
    terms = _terms(node)
    node.refuse_unless(len(terms) == 2, f"it subtracts {len(terms)} tensors")
    return node.done("Sub", terms)


def _average(node: KerasNode) -> Sequence[str]:
    terms = _terms(node)
    return node.done("Mul", [node.to_float(chain(node, "Add", terms)), node.add_float(1 / len(terms))])


def _concatenate(node: KerasNode) -> Sequence[str]:
    terms = node.float_inputs()
    return node.done("Concat", terms, {"axis": node.axis(node.get("axis", -1), len(node.shape(terms[0])))})


def _dot(node: KerasNode) -> Sequence[str]:
    """Products along one axis of each, image by image."""
    terms = [node.to_float(t) for t in node.inputs()]
    node.refuse_unless(len(terms) == 2, f"it multiplies {len(terms)} tensors")
    given = node.get("axes")
    pair = given if isinstance(given, list) and len(given) == 2 else [given, given]
    axes = [node.axis(a, len(node.shape(t))) for a, t in zip(pair, terms, strict=True)]
    node.refuse_unless(min(axes) > 0, "it multiplies along the batch")
    if node.get("normalize", False):
        terms = [
            unit(node.called(f"{node.name}/unit{i}"), t, (a,))[0]
            for i, (t, a) in enumerate(zip(terms, axes, strict=True))
        ]
    shapes = [node.shape(t) for t in terms]
    rests = [[i for i in range(1, len(s)) if i != a] for s, a in zip(shapes, axes, strict=True)]
    left = _matrix(node, terms[0], (0, *rests[0], axes[0]), (shapes[0][0], -1, shapes[0][axes[0]]))
    right = _matrix(node, terms[1], (0, axes[1], *rests[1]), (shapes[1][0], shapes[1][axes[1]], -1))
    kept = [shapes[0][i] for i in rests[0]] + [shapes[1][i] for i in rests[1]]
    return node.done(
        "Reshape", [node.emit("MatMul", [left, right])], {"shape": (shapes[0][0], *(kept or [1]))}
    )


def _matrix(node: KerasNode, tensor: str, perm: Sequence[int], shape: Sequence[int]) -> str:
    turned = node.emit("Transpose", [tensor], {"perm": tuple(perm)}, tag="turned")
    known = prod(d for d in shape if d != -1)
    rest = prod(node.shape(tensor)) // known if known else 0
    return node.emit(
        "Reshape", [turned], {"shape": tuple(rest if d == -1 else d for d in shape)}, tag="matrix"
    )


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "Add": _each("Add"),
        "Multiply": _each("Mul"),
        "Maximum": _each("Maximum"),
        "Minimum": _each("Minimum"),
        "Subtract": _subtract,
        "Average": _average,
        "Concatenate": _concatenate,
        "Dot": _dot,
    }
)

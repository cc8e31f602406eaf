"""Layers that join several tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType

from mace_frontend_keras.node import KerasNode
from mace_frontend_keras.ops import Handler
from mace_frontend_keras.ops.norm import done_unit_length


def _terms(node: KerasNode) -> list[str]:
    """Return the tensors with as many axes each.

    Keras puts missing axes behind the batch, where numpy would put them in front of it.
    """
    tensors = node.float_inputs()
    rank = max((len(node.shape(tensor)) for tensor in tensors), default=0)
    node.require_consistent(len(tensors) > 1, f"it joins {len(tensors)} tensors")
    terms = []
    for tensor in tensors:
        shape = node.shape(tensor)
        wide = (*shape[:1], *(1,) * (rank - len(shape)), *shape[1:])
        terms.append(tensor if len(shape) == rank else node.emit("Reshape", [tensor], {"shape": wide}))
    return terms


def chain(node: KerasNode, op: str, terms: Sequence[str]) -> str:
    """Return the terms joined by one op, from the first on."""
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
    node.require_consistent(len(terms) == 2, f"it subtracts {len(terms)} tensors")
    return node.done("Sub", terms)


def _average(node: KerasNode) -> Sequence[str]:
    terms = _terms(node)
    return node.done("Mul", [node.to_float(chain(node, "Add", terms)), node.add_float(1 / len(terms))])


def _scaled_sum(node: KerasNode) -> Sequence[str]:
    """Add x + scale * y, as Keras's InceptionResNetV2 has it."""
    terms = _terms(node)
    node.require_consistent(len(terms) == 2, f"it adds {len(terms)} tensors")
    scaled = node.emit("Mul", [terms[1], node.add_float(node.real("scale", 1.0), "scale")])
    return node.done("Add", [terms[0], scaled])


def _concatenate(node: KerasNode) -> Sequence[str]:
    terms = node.float_inputs()
    return node.done("Concat", terms, {"axis": node.axis(node.get("axis", -1), len(node.shape(terms[0])))})


def _dot(node: KerasNode) -> Sequence[str]:
    """Add the products along one axis of each tensor, for each element of the batch."""
    terms = [node.to_float(tensor) for tensor in node.inputs()]
    node.require_consistent(len(terms) == 2, f"it multiplies {len(terms)} tensors")
    setting = node.get("axes")
    pair = setting if isinstance(setting, list) and len(setting) == 2 else [setting, setting]
    axes = [node.axis(axis, len(node.shape(term))) for axis, term in zip(pair, terms, strict=True)]
    node.require_supported(min(axes) > 0, "it multiplies along the batch")
    if node.get("normalize", False):
        terms = [
            done_unit_length(node.with_name(f"{node.name}/unit{i}"), term, (axis,))[0]
            for i, (term, axis) in enumerate(zip(terms, axes, strict=True))
        ]
    shapes = [node.shape(term) for term in terms]
    rests = [[i for i in range(1, len(s)) if i != axis] for s, axis in zip(shapes, axes, strict=True)]
    left = _matrix(node, terms[0], (0, *rests[0], axes[0]), (shapes[0][0], -1, shapes[0][axes[0]]))
    right = _matrix(node, terms[1], (0, axes[1], *rests[1]), (shapes[1][0], shapes[1][axes[1]], -1))
    sizes = [shapes[0][i] for i in rests[0]] + [shapes[1][i] for i in rests[1]]
    # Of two vectors Keras gives a column [batch, 1].
    product = node.emit("MatMul", [left, right])
    return node.done("Reshape", [product], {"shape": (shapes[0][0], *(sizes or [1]))})


def _matrix(node: KerasNode, tensor: str, perm: Sequence[int], shape: Sequence[int]) -> str:
    """Return a tensor transposed and reshaped, -1 in the shape being what is left."""
    transposed = node.emit("Transpose", [tensor], {"perm": tuple(perm)}, tag="turned")
    known = prod(d for d in shape if d != -1)
    rest = prod(node.shape(tensor)) // known if known else 0
    sizes = tuple(rest if d == -1 else d for d in shape)
    return node.emit("Reshape", [transposed], {"shape": sizes}, tag="matrix")


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "Add": _each("Add"),
        "Multiply": _each("Mul"),
        "Maximum": _each("Maximum"),
        "Minimum": _each("Minimum"),
        "Subtract": _subtract,
        "Average": _average,
        "Concatenate": _concatenate,
        "CustomScaleLayer": _scaled_sum,
        "Dot": _dot,
    }
)

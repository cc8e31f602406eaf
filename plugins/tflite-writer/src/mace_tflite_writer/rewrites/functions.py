"""Functions that the format has no operator for, by operators that it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from mace_core.ir import Graph
from mace_core.ops.softmax import SoftmaxAttributes
from mace_core.ops.unary_attrs import AlphaAttributes, HardSigmoidAttributes
from mace_tflite_writer.rewrites.site import Site, SiteRule, rewrite_sites


def functions_by_steps(graph: Graph) -> Graph:
    """Compute functions of floats by steps that the format has, each of which rounds to single precision.

    Stored integers stay as they are: each step would be rounded to a storage that nobody measured.
    """
    return rewrite_sites(graph, _by_steps)


def _by_steps(site: Site) -> Sequence[str] | None:
    steps = STEPS.get(site.node.op.name)
    if steps is None or site.x.quant is not None or not site.x.dtype.is_float or not site.is_refused:
        return None
    return steps(site)


def _number(site: Site, value: float) -> str:
    return site.builder.weight(f"{site.y.name}/number", np.asarray(value, site.x.dtype.numpy))


def _reciprocal(site: Site) -> Sequence[str]:
    return site.last("Div", [_number(site, 1.0), site.node.inputs[0]])


def _swish(site: Site) -> Sequence[str]:
    alpha, x = site.attributes(AlphaAttributes).alpha, site.node.inputs[0]
    scaled = x if alpha == 1.0 else site.inner("Mul", [x, _number(site, alpha)])
    return site.last("Mul", [x, site.inner("Sigmoid", [scaled])])


def _hard_sigmoid(site: Site) -> Sequence[str]:
    attrs = site.attributes(HardSigmoidAttributes)
    scaled = site.inner("Mul", [site.node.inputs[0], _number(site, attrs.alpha)])
    moved = site.inner("Add", [scaled, _number(site, attrs.beta)])
    return site.last("Clip", [moved], {"min": 0.0, "max": 1.0})


def _softsign(site: Site) -> Sequence[str]:
    x = site.node.inputs[0]
    larger = site.inner("Add", [site.inner("Abs", [x]), _number(site, 1.0)])
    return site.last("Div", [x, larger])


def _elu(site: Site) -> Sequence[str]:
    """Write alpha * (exp(x) - 1) below 0 as alpha * elu(min(x, 0)), to which relu(x) is added."""
    alpha, x = site.attributes(AlphaAttributes).alpha, site.node.inputs[0]
    below = site.inner("Elu", [site.inner("Minimum", [x, _number(site, 0.0)])], {"alpha": 1.0})
    scaled = site.inner("Mul", [below, _number(site, alpha)])
    return site.last("Add", [site.inner("Relu", [x]), scaled])


STEPS: Mapping[str, SiteRule] = MappingProxyType(
    {
        "Reciprocal": _reciprocal,
        "Swish": _swish,
        "HardSigmoid": _hard_sigmoid,
        "Softsign": _softsign,
        "Elu": _elu,
    }
)
"""Ops -> what adds the steps that compute them."""


def softmax_along_last(graph: Graph) -> Graph:
    """Transpose the axis that a softmax normalizes to the end, and back. Exact."""
    return rewrite_sites(graph, _softmax_along_last)


def _softmax_along_last(site: Site) -> Sequence[str] | None:
    if site.node.op.name not in ("Softmax", "LogSoftmax"):
        return None
    rank = len(site.x.shape)
    axis = site.attributes(SoftmaxAttributes).axis % rank
    if axis == rank - 1:
        return None
    swap = list(range(rank))
    swap[axis], swap[-1] = swap[-1], swap[axis]
    perm = {"perm": tuple(swap)}
    moved = site.inner("Transpose", [site.node.inputs[0]], perm, site.x.storage)
    result = site.inner(site.node.op.name, [moved], {"axis": rank - 1}, site.y.storage)
    return site.last("Transpose", [result], perm)

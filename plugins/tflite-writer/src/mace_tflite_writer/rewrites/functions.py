"""Functions that the format has no operator for, by operators that it has."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from mace_core.ir import DType, Graph, Quant
from mace_core.ops.softmax import SoftmaxAttributes
from mace_core.ops.unary_attrs import (
    AlphaAttributes,
    GeluAttributes,
    HardSigmoidAttributes,
    LeakyReluAttributes,
)
from mace_tflite_writer.rewrites.site import Site, SiteRule, rewrite_sites


def functions_by_steps(graph: Graph, absent: Collection[str] = ()) -> Graph:
    """Compute functions of floats by steps that the format has, each of which rounds to single precision.

    Of stored integers those only that are one step: others would be rounded between to storages that nobody
    measured.
    absent: ops of STEPS that the format has, and a chip has not.
    """
    return rewrite_sites(graph, lambda site: _by_steps(site, absent))


def _by_steps(site: Site, absent: Collection[str]) -> Sequence[str] | None:
    name = site.node.op.name
    steps = (ONE_STEP if site.x.quant is not None else STEPS).get(name)
    # STEPS has an Elu of another alpha by that of alpha 1, which a chip without Elu lacks too.
    if name == "Elu" and "Elu" in absent and site.x.quant is None:
        steps = _elu_by_exponential
    if steps is None or not site.x.real.dtype.is_float or not (name in absent or site.is_refused):
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


def _elu_by_exponential(site: Site) -> Sequence[str]:
    """Write relu(x) + alpha * (exp(min(x, 0)) - 1), for chips without an Elu.

    The difference cancels near 0: its error there is that of a number near 1, not of one near 0.
    """
    alpha, x = site.attributes(AlphaAttributes).alpha, site.node.inputs[0]
    power = site.inner("Exp", [site.inner("Minimum", [x, _number(site, 0.0)])])
    below = site.inner("Sub", [power, _number(site, 1.0)])
    scaled = below if alpha == 1.0 else site.inner("Mul", [below, _number(site, alpha)])
    return site.last("Add", [site.inner("Relu", [x]), scaled])


def _hard_swish(site: Site) -> Sequence[str]:
    """Write x * (relu6(x + 3) / 6)."""
    x = site.node.inputs[0]
    moved = site.inner("Clip", [site.inner("Add", [x, _number(site, 3.0)])], {"min": 0.0, "max": 6.0})
    # A sixth first: x * 6 would overflow half precision from 10,918 on, where the op gives x.
    return site.last("Mul", [x, site.inner("Mul", [moved, _number(site, 1 / 6)])])


def _gelu(site: Site) -> Sequence[str] | None:
    """Write x / 2 * (1 + tanh(sqrt(2 / pi) * x * (1 + 0.044715 * x * x)))."""
    # The exact form needs the error function, for which the format has no operator.
    if site.attributes(GeluAttributes).approximate != "tanh":
        return None
    x = site.node.inputs[0]
    square = site.inner("Mul", [site.inner("Mul", [x, x]), _number(site, 0.044715)])
    cubic = site.inner("Mul", [x, site.inner("Add", [square, _number(site, 1.0)])])
    bent = site.inner("Tanh", [site.inner("Mul", [cubic, _number(site, math.sqrt(2 / math.pi))])])
    half = site.inner("Mul", [x, _number(site, 0.5)])
    return site.last("Mul", [half, site.inner("Add", [bent, _number(site, 1.0)])])


def _root(exponent: float) -> SiteRule:
    return lambda site: site.last("Pow", [site.node.inputs[0], _number(site, exponent)])


def _leaky_relu(site: Site) -> Sequence[str] | None:
    alpha = site.attributes(LeakyReluAttributes).alpha
    # A slope of 0 would be stored with a scale of 0, see `_factor`.
    if alpha == 0:
        return site.last("Relu", [site.node.inputs[0]])
    return site.last("PRelu", [site.node.inputs[0], _factor(site, alpha)])


def _neg(site: Site) -> Sequence[str]:
    return site.last("Mul", [site.node.inputs[0], _factor(site, -1.0)])


def _factor(site: Site, value: float) -> str:
    """Add a constant that is this number exactly: stored as one step of a scale that is its magnitude."""
    if site.x.quant is None:
        return _number(site, value)
    dtype = site.x.dtype
    # uint8 stores -1 behind a zero point of 1.
    zero = 1 if dtype is DType.U8 else 0
    stored_step = np.asarray(zero + (1 if value > 0 else -1), dtype.numpy)
    return site.builder.weight(f"{site.y.name}/factor", stored_step, Quant.of(abs(value), zero))


ONE_STEP: Mapping[str, SiteRule] = MappingProxyType({"LeakyRelu": _leaky_relu, "Neg": _neg})
"""Ops whose one step rounds once, as they do: those that stored integers may have as well."""

STEPS: Mapping[str, SiteRule] = MappingProxyType(
    {
        **ONE_STEP,
        "Gelu": _gelu,
        "HardSwish": _hard_swish,
        "Rsqrt": _root(-0.5),
        "Sqrt": _root(0.5),
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

"""reduce-strength: powers, roots, limits and divisions are written with the op that costs least."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from mace_core.ir import Array, Graph
from mace_core.rewrite import Match, rewrite


def reduce_strength(graph: Graph) -> Graph:
    """Rewrite powers, roots, limits and quotients of floats by constants as the op that costs least.

    - x ** 2 -> x * x, x ** 3 -> x * x * x, x ** 0.5 -> Sqrt(x), x ** -0.5 -> Rsqrt(x), x ** -1 ->
      Reciprocal(x);
    - 1 / x -> Reciprocal(x), 1 / Sqrt(x) -> Rsqrt(x);
    - Maximum(x, c) -> Clip(x, min=c), Minimum(x, c) -> Clip(x, max=c);
    - x / c -> x * (1 / c) where each c is a power of two.

    Only where the constant does not stretch x. Quotients and limits are exact; powers and roots differ in
    rounding by an ulp or two, and roots of -0 and minus infinity in their sign or by NaN. Quotients by other
    constants stay, because their products would round otherwise; so do all of integers, whose division
    rounds.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    reduce = RULES.get(match.node.op.name)
    first = match.builder.tensors[match.node.inputs[0]].real.dtype if reduce else None
    return reduce(match) if reduce and first and first.is_float else None


def _read_number(match: Match, index: int) -> float | None:
    """The number that an operand is, if the other one has the shape of the result."""
    constant = match.constant(index)
    keeps_shape = np.broadcast_shapes(match.shape(0), match.shape(1)) == match.shape(1 - index)
    if constant is None or constant.size != 1 or not keeps_shape:
        return None
    return float(constant.reshape(-1)[0])


def _reduce_power(match: Match) -> Sequence[str] | None:
    x, exponent = match.node.inputs[0], _read_number(match, 1)
    if exponent == 3:  # a chain of two: more would lose digits that pow keeps
        return match.emit("Mul", [match.builder.one("Mul", [x, x], like=match.node), x])
    roots = {2: "Mul", 0.5: "Sqrt", -0.5: "Rsqrt", -1: "Reciprocal"}
    op = roots.get(exponent) if exponent is not None else None
    if op is None:
        return None
    return match.emit(op, [x, x] if op == "Mul" else [x])


def _reduce_quotient(match: Match) -> Sequence[str] | None:
    if _read_number(match, 0) == 1:
        return _reduce_reciprocal(match, 1) or match.emit("Reciprocal", match.node.inputs[1:])
    divisor = match.constant(1)
    if divisor is None or not _are_powers_of_two(divisor):
        return None
    factor = match.builder.weight(f"{match.node.outputs[0]}.factor", (1 / divisor).astype(divisor.dtype))
    return match.emit("Mul", [match.node.inputs[0], factor])


def _are_powers_of_two(array: Array) -> bool:
    """Whether each element is one whose inverse is a normal number as well."""
    # Both x / c and x * (1 / c) are then the exact quotient, rounded only where it is denormal.
    mantissa, exponent = np.frexp(array)
    # Half precision has far fewer exponents: 1 / 2 ** -20 is infinite there.
    limit = min(100, -np.finfo(array.dtype).minexp)
    return bool(np.all(np.abs(mantissa) == 0.5) and np.all(np.abs(exponent) < limit))


def _reduce_reciprocal(match: Match, index: int = 0) -> Sequence[str] | None:
    root = match.sole_producer(index, "Sqrt")
    if root is None:
        return None
    return match.builder.add("Rsqrt", root.inputs, outputs=match.node.outputs, like=match.merge_origins(root))


def _reduce_limit(match: Match) -> Sequence[str] | None:
    side = "min" if match.node.op.name == "Maximum" else "max"
    for index in (0, 1):
        bound = _read_number(match, index)
        # Clip by NaN is undefined, while Maximum with NaN is NaN.
        if bound is not None and not np.isnan(bound):
            return match.emit("Clip", [match.node.inputs[1 - index]], {side: bound})
    return None


RULES: Mapping[str, Callable[[Match], Sequence[str] | None]] = {
    "Pow": _reduce_power,
    "Div": _reduce_quotient,
    "Reciprocal": _reduce_reciprocal,
    "Maximum": _reduce_limit,
    "Minimum": _reduce_limit,
}

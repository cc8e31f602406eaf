"""remove-neutral: arithmetic with the constant that changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mace_core.ir import Graph
from mace_core.rewrite import Match, rewrite

NEUTRAL: Mapping[str, tuple[float, tuple[int, ...]]] = {
    "Add": (0, (0, 1)),
    "Sub": (0, (1,)),
    "Mul": (1, (0, 1)),
    "Div": (1, (1,)),
    "Pow": (1, (1,)),
}
"""Op -> the number, and the places where it is neutral."""


def remove_neutral(graph: Graph) -> Graph:
    """Drop x + 0, x - 0, x * 1, x / 1 and x ** 1.

    Where the constant does not stretch x. Exact but for the sign of zero: -0 + 0 is 0, and -0 stays -0 here.
    """
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    number, places = NEUTRAL.get(match.node.op.name, (0, ()))
    for place in places:
        constant, x = match.constant(place), match.node.inputs[1 - place]
        if constant is None or not np.all(constant == number):
            continue
        # ones of [3] + x of [1] makes three elements of one.
        keeps_shape = np.broadcast_shapes(constant.shape, match.builder.shape(x)) == match.builder.shape(x)
        if keeps_shape and match.builder.tensors[x].storage == match.builder.storages.get(
            match.node.outputs[0]
        ):
            return [x]
    return None

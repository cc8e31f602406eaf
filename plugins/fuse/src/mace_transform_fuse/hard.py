"""fuse-hard: the spelt-out hard sigmoid and hard swish of mobile networks as one node each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mace_core.build import Match, rewrite
from mace_core.ir import Graph, Node


def fuse_hard(graph: Graph) -> Graph:
    """Clip(x + 3, 0, 6) / 6 becomes HardSigmoid, x times it HardSwish, in every order of the product and the division."""
    return rewrite(graph, _rule)


def _rule(match: Match) -> Sequence[str] | None:
    if match.node.op.name == "Div" and _is(match.constant(1), 6.0):
        product = match.feeder(0, "Mul")
        gated = _gated(match, product) if product else None
        if product and gated:
            return match.new.add("HardSwish", [gated], outputs=match.node.outputs, like=match.joined(product))
        ramp = match.feeder(0, "Clip")
        source = _ramped(match, ramp) if ramp else None
        if ramp and source:
            attrs = {"alpha": 1 / 6, "beta": 0.5}
            return match.new.add("HardSigmoid", [source], attrs, outputs=match.node.outputs, like=match.joined(ramp))
    if match.node.op.name == "Mul":
        for at in (0, 1):
            gate = match.feeder(at, "HardSigmoid")
            if gate and gate.inputs[0] == match.node.inputs[1 - at] and _is_sixth(gate):
                return match.new.add("HardSwish", gate.inputs, outputs=match.node.outputs, like=match.joined(gate))
    return None


def _gated(match: Match, product: Node) -> str | None:
    """X where the product is x * Clip(x + 3, 0, 6)."""
    for at in (0, 1):
        ramp = match.new.producer(product.inputs[at])
        if ramp and ramp.op.name == "Clip" and _ramped(match, ramp) == product.inputs[1 - at]:
            return product.inputs[1 - at]
    return None


def _ramped(match: Match, ramp: Node) -> str | None:
    """X where the node is Clip(x + 3, 0, 6)."""
    total = match.new.producer(ramp.inputs[0])
    if (ramp.attrs["min"], ramp.attrs["max"]) != (0.0, 6.0) or not total or total.op.name != "Add":
        return None
    for at in (0, 1):
        if _is(match.new.constant(total.inputs[at]), 3.0):
            return total.inputs[1 - at]
    return None


def _is(array: object, value: float) -> bool:
    return isinstance(array, np.ndarray) and array.size == 1 and float(array.reshape(-1)[0]) == value


def _is_sixth(gate: Node) -> bool:
    return bool(np.isclose(float(str(gate.attrs["alpha"])), 1 / 6, rtol=1e-6) and gate.attrs["beta"] == 0.5)

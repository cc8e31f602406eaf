"""remove-limits: each way in which a range is carried to a limit, met and just missed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mace_core.attributes import Attribute
from mace_core.graph_builder import Builder
from mace_core.ir import DType
from mace_transform_standard.combine.remove_limits import remove_limits

WINDOW = {
    "kernel": (2, 2),
    "strides": (2, 2),
    "pads_before": (0, 0),
    "pads_after": (0, 0),
    "dilations": (1, 1),
}

Carry = Callable[[Builder, str, str], str]
"""Adds the nodes before the limit. They may read Sigmoid(x) and Tanh(x), both of shape [1, 4, 4, 2]."""


def join(op: str, **attrs: Attribute) -> Carry:
    return lambda new, s, t: new.one(op, [s, t], attrs)


def pass_on(op: str, **attrs: Attribute) -> Carry:
    return lambda new, s, t: new.one(op, [s], attrs)


def pool(op: str, **changes: Attribute) -> Carry:
    return pass_on(op, **{**WINDOW, **changes})


def square(new: Builder, s: str, t: str) -> str:
    return new.one("Mul", [t, t])


def gather(new: Builder, s: str, t: str) -> str:
    return new.one("Gather", [s, new.input("i", DType.I32, (3,))], {"axis": 0})


def second_piece(new: Builder, s: str, t: str) -> str:
    return new.add("Split", [s], {"axis": 3, "sizes": (1, 1)}, outputs=2)[1]


def choose(new: Builder, s: str, t: str) -> str:
    return new.one("Where", [new.input("c", DType.BOOL, (1, 4, 4, 2)), s, t])


CARRIED: dict[str, tuple[Carry, tuple[float, float]]] = {
    "Sigmoid": (lambda new, s, t: s, (0, 1)),
    "Tanh": (lambda new, s, t: t, (-1, 1)),
    "Relu": (lambda new, s, t: new.one("Relu", [new.inputs[0]]), (0, np.inf)),
    "Clip": (lambda new, s, t: new.one("Clip", [new.inputs[0]], {"min": -2.0, "max": 3.0}), (-2, 3)),
    "sum": (join("Add"), (-1, 2)),
    "sum with a limit": (
        lambda new, s, t: new.one("Add", [s, new.one("Clip", [new.inputs[0]], {"min": -3.0, "max": 5.0})]),
        (-3, 6),
    ),
    "square": (square, (0, np.inf)),
    "minimum": (join("Minimum"), (-1, 1)),
    "joined": (join("Concat", axis=3), (-1, 1)),
    "chosen": (choose, (-1, 1)),
    "reversed axes": (pass_on("Transpose", perm=(3, 2, 1, 0)), (0, 1)),
    "gathered": (gather, (0, 1)),
    "second piece": (second_piece, (0, 1)),
    "mean": (pass_on("ReduceMean", axes=(1,), keepdims=True), (0, 1)),
    "zeros around": (pass_on("Pad", before=(0, 1, 0, 0), after=(0, 0, 0, 0), mode="constant", value=0.0), (0, 1)),
    "more around": (pass_on("Pad", before=(0, 1, 0, 0), after=(0, 0, 0, 0), mode="constant", value=3.0), (0, 3)),
    "less around": (pass_on("Pad", before=(0, 1, 0, 0), after=(0, 0, 0, 0), mode="constant", value=-4.0), (-4, 1)),
    "largest of windows": (pool("MaxPool"), (0, 1)),
}  # fmt: skip


def count_clips(carry: Carry, low: float, high: float) -> int:
    new = Builder("limits")
    x = new.input("x", DType.F32, (1, 4, 4, 2))
    before = carry(new, new.one("Sigmoid", [x]), new.one("Tanh", [x]))
    limited = new.one("Clip", [before], {"min": low, "max": high})
    nodes = remove_limits(new.finish([new.one("Neg", [limited])])).nodes
    return sum(node.op.name == "Clip" and node.inputs[0] == before for node in nodes)


@pytest.mark.parametrize(("carry", "range_"), CARRIED.values(), ids=CARRIED)
def test_a_limit_disappears_at_the_range_and_stays_inside_it(
    carry: Carry, range_: tuple[float, float]
) -> None:
    low, high = range_
    assert count_clips(carry, low, high) == 0
    assert count_clips(carry, low - 1, high + 1) == 0
    assert count_clips(carry, low + 0.25, high) == 1
    assert count_clips(carry, low, min(high, 1e9) - 0.25) == 1


UNKNOWN: dict[str, Carry] = {
    "product": join("Mul"),
    "difference": join("Sub"),
    "negated": pass_on("Neg"),
    "windows that may see nothing but padding before": pool("MaxPool", pads_before=(1, 0)),
    "windows that may see nothing but padding after": pool("MaxPool", pads_after=(0, 1)),
    "windows beyond the end": pool("MaxPool", ceil=True),
    "an input": lambda new, s, t: new.inputs[0],
}


@pytest.mark.parametrize("carry", UNKNOWN.values(), ids=UNKNOWN)
def test_what_has_no_known_range_keeps_its_limit(carry: Carry) -> None:
    assert count_clips(carry, -1e30, np.inf) == 1
    assert count_clips(carry, 0, np.inf) == 1


def test_indices_do_not_lie_in_the_range_of_the_values() -> None:
    new = Builder("indices")
    sigmoid = new.one("Sigmoid", [new.input("x", DType.F32, (20,))])
    values, indices = new.add("TopK", [sigmoid], {"k": 20}, outputs=2)
    results = [new.one("Clip", [tensor], {"min": 0.0, "max": 5.0}) for tensor in (values, indices)]
    nodes = remove_limits(new.finish([new.one("Neg", [result]) for result in results])).nodes
    assert [node.inputs[0] for node in nodes if node.op.name == "Clip"] == [indices]

"""Typed attributes: accepted values, conversions, and the message for each mistake."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pytest

from mace_core.attributes import Attributes, AttributesError, _describe, complete, fields_of, values_of
from mace_core.ir import Node
from mace_core.ops import core_ops
from mace_core.ops.op import Op, OpError
from mace_core.ops.shapes import same


@dataclass(frozen=True)
class Sample(Attributes):
    count: int
    factor: float = 1.0
    exact: int | float = 0.0
    flag: bool = False
    word: Literal["one", "two"] = "one"
    text: str = ""
    places: tuple[int, ...] = ()
    scales: tuple[float, ...] = ()
    pair: tuple[int, int] = (1, 1)


def test_defaults_are_filled_in() -> None:
    assert complete(Sample, {"count": 3}) == Sample(3)
    assert values_of(Sample(3))["pair"] == (1, 1)
    assert complete(Attributes, {}) == Attributes()


def test_attributes_are_values() -> None:
    assert Sample(1) == Sample(1) != Sample(2)
    assert len({Sample(1), Sample(1)}) == 1
    assert "places=(2,)" in str(Sample(1, places=(2,)))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"factor": 2}, 2.0),
        ({"factor": np.float32(0.5)}, 0.5),
        ({"exact": 2**63 - 1}, 2**63 - 1),
        ({"exact": np.float64(0.5)}, 0.5),
        ({"flag": np.True_}, True),
        ({"word": "two"}, "two"),
        ({"places": np.array([1, 2])}, (1, 2)),
        ({"places": [np.int64(4)]}, (4,)),
        ({"scales": (1, 2.5)}, (1.0, 2.5)),
        ({"pair": [3, 4]}, (3, 4)),
    ],
)
def test_values_become_those_of_their_types(given: dict[str, Any], expected: object) -> None:
    ((name, _),) = given.items()
    actual = getattr(complete(Sample, {"count": 1, **given}), name)
    assert (actual, type(actual)) == (expected, type(expected))
    if isinstance(actual, tuple):
        assert [type(v) for v in actual] == [type(v) for v in expected]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"count": True}, "attribute 'count' is True, expected an integer"),
        ({"count": 1.0}, "attribute 'count' is 1.0, expected an integer"),
        ({"factor": "2"}, "attribute 'factor' is '2', expected a number"),
        ({"factor": 10**400}, "expected a number"),
        ({"exact": False}, "attribute 'exact' is False, expected a number"),
        ({"flag": 1}, "attribute 'flag' is 1, expected a boolean"),
        ({"word": "three"}, "attribute 'word' is 'three', expected one of one, two"),
        ({"word": 1}, "attribute 'word' is 1, expected one of one, two"),
        ({"text": None}, "attribute 'text' is None, expected a string"),
        ({"places": 3}, "attribute 'places' is 3, expected a tuple of integers"),
        ({"places": np.array(3)}, "attribute 'places' is 3, expected a tuple of integers"),
        ({"places": (1.5,)}, "attribute 'places' is (1.5,), expected a tuple of integers"),
        ({"scales": ("a",)}, "attribute 'scales' is ('a',), expected a tuple of numbers"),
        ({"pair": (1, 2, 3)}, "attribute 'pair' is (1, 2, 3), expected a tuple (an integer, an integer)"),
    ],
)
def test_mistyped_values_are_told(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(AttributesError, match=re.escape(problem)):
        complete(Sample, {"count": 1, **given})


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(AttributesError) as error:
        complete(Sample, {"typo": 1, "flag": 2})
    assert str(error.value) == (
        "no attribute 'typo', attribute 'count' is required, attribute 'flag' is 2, expected a boolean"
    )


def test_attributes_that_are_made_already_are_checked_too() -> None:
    assert complete(Sample, Sample(1, places=(2,))) == Sample(1, places=(2,))
    with pytest.raises(AttributesError, match="attribute 'count' is 'x'"):
        complete(Sample, replace(Sample(1), count="x"))  # type: ignore[arg-type]  # as untyped code may do
    with pytest.raises(AttributesError, match="no attribute 'count'"):
        complete(Attributes, Sample(1))


def test_not_a_number_is_a_number() -> None:
    assert math.isnan(complete(Sample, {"count": 1, "factor": math.nan}).factor)


def test_types_that_attributes_cannot_have() -> None:
    @dataclass(frozen=True)
    class Wrong(Attributes):
        value: dict[str, int]

    with pytest.raises(TypeError, match=r"Wrong.value: attributes cannot be of type dict\[str, int\]"):
        fields_of(Wrong)


def test_a_node_gives_its_attributes_by_their_class() -> None:
    op = Op("acme::Sample", ("x",), ("y",), same, lambda x, attrs: x * attrs.count, Sample)
    node = Node("n", op, ("x",), ("y",), Sample(2))
    assert node.attributes(Sample).count == 2
    with pytest.raises(TypeError, match=r"node 'n' \(acme::Sample\) has Sample, not Other"):
        node.attributes(type("Other", (Attributes,), {}))
    assert op.compute([np.ones(2)], node.attributes(Sample))[0].tolist() == [2, 2]
    with pytest.raises(OpError, match="attribute 'count' is required"):
        op.complete({})


def test_every_op_of_the_core_has_attributes_of_known_types() -> None:
    for op in core_ops().values():
        assert issubclass(op.attrs, Attributes)
        for field in fields_of(op.attrs).values():
            assert field.text
            # A default must pass its own check, or a node without it would be refused.
            assert field.is_required or field.read(field.default) == field.default


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (int, "an integer"),
        (int | float, "a number"),
        (str | int, "a string or an integer"),
        (Literal["same", "valid"], "one of same, valid"),
        (tuple[int, ...], "a tuple of integers"),
        (tuple[tuple[int, ...], ...], "a tuple of values, each a tuple of integers"),
        (tuple[float, str], "a tuple (a number, a string)"),
    ],
)
def test_types_in_words(hint: object, words: str) -> None:
    assert _describe(hint) == words

"""Reading the files of a build: each value by its type, and a fault that names the place."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest

from mace_core.errors import MaceError
from mace_core.json_types import JsonObject

TEXT = json.dumps(
    {
        "text": "a",
        "integer": 3,
        "flag": True,
        "number": 0.5,
        "infinite": math.inf,
        "texts": ["a", "b"],
        "integers": [1, 2],
        "numbers": [1, 2.5],
        "object": {"inner": 1},
        "objects": [{"inner": 2}],
        "nothing": None,
    }
)


def report() -> JsonObject:
    return JsonObject.parse(TEXT, "report.json")


def test_each_value_is_read_by_its_type() -> None:
    result = report()
    assert (result.string("text"), result.integer("integer"), result.flag("flag")) == ("a", 3, True)
    assert (result.number("number"), result.number("integer"), result.number("infinite")) == (
        0.5,
        3,
        math.inf,
    )
    assert (result.strings("texts"), result.integers("integers")) == (("a", "b"), (1, 2))
    assert result.numbers("numbers") == (1, 2.5)
    assert result.object("object").integer("inner") == 1
    assert [item.integer("inner") for item in result.objects("objects")] == [2]
    assert "text" in result
    assert "other" not in result


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda r: r.string("other"), "report.json: other: is missing"),
        (lambda r: r.string("nothing"), "report.json: nothing: is missing"),
        (lambda r: r.string("integer"), "report.json: integer: is of type int, expected str"),
        (lambda r: r.integer("flag"), "report.json: flag: is of type bool, expected int"),
        (lambda r: r.number("flag"), "report.json: flag: is of type bool, expected a number"),
        (lambda r: r.flag("integer"), "report.json: integer: is of type int, expected bool"),
        (lambda r: r.strings("text"), "report.json: text: is of type str, expected a list"),
        (lambda r: r.integers("numbers"), "report.json: numbers: is of type float, expected int"),
        (lambda r: r.numbers("texts"), "report.json: texts: is of type str, expected a number"),
        (lambda r: r.object("objects"), "report.json: objects: is of type list, expected an object"),
        (lambda r: r.objects("texts"), "report.json: texts[0]: is of type str, expected an object"),
        (lambda r: r.objects("objects")[0].string("x"), "report.json: objects[0]: x: is missing"),
    ],
)
def test_a_damaged_value_is_refused_with_its_place(
    read: Callable[[JsonObject], object], message: str
) -> None:
    with pytest.raises(MaceError) as error:
        read(report())
    assert str(error.value).startswith(f"{message}; build again")


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "report.json: is no JSON"), ("[]", "report.json: is of type list, expected an object")],
)
def test_a_damaged_file_is_refused(text: str, message: str) -> None:
    with pytest.raises(MaceError) as error:
        JsonObject.parse(text, "report.json")
    assert str(error.value).startswith(message)


def test_a_list_of_objects_is_read() -> None:
    assert [item.integer("a") for item in JsonObject.parse_list('[{"a": 1}, {"a": 2}]', "rows.json")] == [
        1,
        2,
    ]
    with pytest.raises(MaceError, match=r"rows\.json: is of type dict, expected a list"):
        JsonObject.parse_list("{}", "rows.json")

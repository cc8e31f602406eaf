"""Values by the framework's names, in a graph and in what is inside it."""

from __future__ import annotations

import pytest

from mace_core.importer import RefusedError, Scope, SkippedError


def test_a_name_is_looked_up_from_the_inside_out() -> None:
    outer = Scope[str, str]({"x": "x", "y": "y"})
    inner = Scope[str, str]({"x": "inner/x"}, prefix="inner/", parent=outer)
    assert [inner.find("x"), inner.find("y"), outer.find("x")] == ["inner/x", "y", "x"]
    assert inner.owner("y") is outer
    assert inner.owner("nowhere") is inner


def test_an_unknown_name_is_refused_and_a_failed_one_skipped() -> None:
    scope = Scope[str, str]()
    scope.bind(["a", "b"], None)
    with pytest.raises(SkippedError):
        scope.find("b")
    with pytest.raises(RefusedError, match="it reads 'c', which nothing before it computes; export"):
        scope.find("c")


def test_a_failure_inside_hides_the_value_outside() -> None:
    inner = Scope[str, str]({"x": None}, parent=Scope({"x": "x"}))
    with pytest.raises(SkippedError):
        inner.find("x")


def test_outputs_behind_the_last_result_get_no_value() -> None:
    scope = Scope[str, str]()
    scope.bind(["a", "b"], ["tensor"])
    assert scope.values == {"a": "tensor"}

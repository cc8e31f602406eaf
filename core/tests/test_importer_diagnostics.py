"""Refusals of nodes that do not hide one another, and names that no tensor has."""

from __future__ import annotations

import pytest

from mace_core.errors import MaceError
from mace_core.importer import Damage, RefusedError, SkippedError, attempt, refuse_names
from mace_core.ops.op import OpError

NONSENSE = Damage("its numbers", "export it again")


def test_refuse_names_suggests_the_most_similar_and_reports_all() -> None:
    with pytest.raises(MaceError) as error:
        refuse_names("m.model", "input", ["imgae", "nothing_like_it"], ["image", "hidden"], ["image"])
    lines = str(error.value).splitlines()
    assert lines[0] == "m.model: no tensor 'imgae' for the deployment file's input; did you mean 'image'?"
    assert lines[1].endswith("; the model's inputs are image")
    refuse_names("m.model", "input", [], ["image"], ["image"])


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RefusedError("has two axes; give one"), "node: has two axes; give one"),
        (OpError("rank 7"), "node: rank 7"),
        (MaceError("inner", "cannot be", "do this"), "node: cannot be; do this"),
        (KeyError("k"), "node: its numbers make no sense (KeyError('k')); export it again"),
        (ZeroDivisionError(), "node: its numbers make no sense (ZeroDivisionError()); export it again"),
    ],
)
def test_what_cannot_be_done_is_noted_under_its_location(error: Exception, said: str) -> None:
    faults = ["earlier"]

    def work() -> int:
        raise error

    assert attempt(faults, "node", work, NONSENSE) is None
    assert faults == ["earlier", said]


def test_what_has_been_reported_is_not_reported_again() -> None:
    faults: list[str] = []

    def work() -> int:
        raise SkippedError

    assert attempt(faults, "node", work, NONSENSE) is None
    assert faults == []
    assert attempt(faults, "node", lambda: 7, NONSENSE) == 7


def test_a_bug_is_no_fault_of_the_file() -> None:
    def work() -> int:
        raise AssertionError("ours")

    with pytest.raises(AssertionError):
        attempt([], "node", work, NONSENSE)

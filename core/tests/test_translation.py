"""What frontends share: refusals of nodes, names that nobody has, and faults that do not hide one another."""

from __future__ import annotations

import numpy as np
import pytest

from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import Array
from mace_core.ops.op import OpError
from mace_core.translation import OperandNode, RefusedError, Senseless, SkippedError, attempt, refuse_names

NONSENSE = Senseless("its numbers", "export it again")


class FakeNode(OperandNode):
    """A node of a file with one constant and one operand that is computed."""

    name = "fake"
    again = "save"

    def __init__(self) -> None:
        self.builder = Builder("graph")

    @property
    def build(self) -> Builder:
        return self.builder

    def array(self, index: int) -> Array | None:
        return np.array([[4, -1]], np.int16) if index == 1 else None


def test_axes_count_from_either_end() -> None:
    node = FakeNode()
    assert [node.axis(axis, 3) for axis in (-3, -1, 0, 2)] == [0, 2, 0, 2]
    for axis in (-4, 3):
        with pytest.raises(RefusedError, match=f"axis {axis} of a tensor of rank 3"):
            node.axis(axis, 3)
    with pytest.raises(RefusedError):
        node.axis(0, 0)


def test_a_constant_is_read_and_what_is_computed_is_refused() -> None:
    node = FakeNode()
    assert node.ints(1, "shape") == (4, -1)
    assert all(type(value) is int for value in node.ints(1, "shape"))
    with pytest.raises(
        RefusedError, match=r"its shape \(input 0\) is computed at run time; save the model with a constant"
    ):
        node.ints(0, "shape")


def test_nodes_made_for_it_are_named_after_it() -> None:
    assert FakeNode().origin.sources == ("fake",)


def test_refuse_names_offers_the_nearest_and_tells_all() -> None:
    with pytest.raises(MaceError) as told:
        refuse_names("m.onnx", "input", ["imgae", "nothing_like_it"], ["image", "hidden"], ["image"])
    lines = str(told.value).splitlines()
    assert lines[0] == "m.onnx: no tensor 'imgae' for the deployment file's input; did you mean 'image'?"
    assert lines[1].endswith("; the model's inputs are image")
    refuse_names("m.onnx", "input", [], ["image"], ["image"])


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
def test_what_cannot_be_done_is_noted_under_its_place(error: Exception, said: str) -> None:
    faults = ["earlier"]

    def work() -> int:
        raise error

    assert attempt(faults, "node", work, NONSENSE) is None
    assert faults == ["earlier", said]


def test_what_has_been_told_is_not_told_again() -> None:
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

"""The part of a model between the tensors that a deployment file names, and the shapes of its inputs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mace_core.hints import Dim
from mace_core.importer import needed_nodes, shape_fault, size_fault
from mace_core.ir import MAX_ELEMENTS, Shape

Row = tuple[str, tuple[str, ...], tuple[str, ...]]
"""A node, what it reads and what it writes."""


def needed(rows: Sequence[Row], outputs: Sequence[str], given: Sequence[str] = ()) -> list[str]:
    return [row[0] for row in needed_nodes(rows, outputs, given, (lambda r: r[1], lambda r: r[2]))]


CHAIN: Sequence[Row] = (
    ("a", ("x",), ("p",)),
    ("side", ("x",), ("q",)),
    ("b", ("p", "y"), ("r", "s")),
    ("c", ("r",), ("t",)),
    ("d", ("s",), ("u",)),
)


def test_only_nodes_that_the_outputs_need_are_kept_in_order() -> None:
    assert needed(CHAIN, ["t"]) == ["a", "b", "c"]
    assert needed(CHAIN, ["u", "q"]) == ["a", "side", "b", "d"]


def test_what_computes_a_given_tensor_is_left_out() -> None:
    assert needed(CHAIN, ["t"], ["p"]) == ["b", "c"]
    assert needed(CHAIN, ["t"], ["r"]) == ["c"]
    assert needed(CHAIN, ["t", "u"], ["r"]) == ["a", "b", "c", "d"], "s of the same node is still read"


def test_a_tensor_that_is_written_in_place_keeps_every_writer() -> None:
    rows: Sequence[Row] = (("conv", ("x",), ("y",)), ("relu", ("y",), ("y",)), ("late", ("x",), ("z",)))
    assert needed(rows, ["y"]) == ["conv", "relu"]


@pytest.mark.parametrize(
    ("known", "stated", "free", "said"),
    [
        ([1, 3], None, (), None),
        ([1, 3], (1, 3), (), None),
        ([None, "n", 3], (2, 5, 3), (), None),
        ([], None, (), None),
        (None, (4,), (), None),
        ([1, 3], (8, 3), (0,), None),
        (None, None, (), "input 'x' has an unknown rank"),
        ([None, 3, "n"], None, (), "input 'x' leaves dimension 0, 2 ('n') open"),
        ([1, 3], (1, 4), (), "input 'x' has shape [1,3] in the model, [1, 4] in the deployment file; state"),
        ([1, 3], (1, 3, 1), (), "input 'x' has shape [1,3] in the model, [1, 3, 1] in the"),
        ([1, 3], (1, 4), (0,), "input 'x' has shape [1,3] in the model, [1, 4] in the"),
        ([None, 3], (1,), (0, 1), "input 'x' has shape [?,3] in the model, [1] in the deployment file"),
    ],
)
def test_a_shape_is_complete_and_agrees_with_the_file_or_says_what_is_wrong(
    known: Sequence[Dim] | None, stated: Shape | None, free: Sequence[int], said: str | None
) -> None:
    fault = shape_fault("x", known, stated, free)
    assert fault is None if said is None else fault is not None and fault.startswith(said)


def test_sizes_that_are_damage_are_refused() -> None:
    assert size_fault("x", (1, 224, 224, 3)) is None
    assert size_fault("x", ()) is None
    assert size_fault("x", (MAX_ELEMENTS,)) is None
    for shape in ((0, 3), (-1, 3), (MAX_ELEMENTS, 2)):
        assert (
            size_fault("x", shape)
            == f"input 'x' has a shape of {list(shape)}; state another under input_shapes"
        )

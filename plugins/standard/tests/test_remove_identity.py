"""remove-identity: the border of every op between doing nothing and doing something."""

from __future__ import annotations

import pytest
from expressions import Expressions, ops_after

from mace_core.attributes import Attribute
from mace_core.ir import DType, Quant, Storage
from mace_transform_standard.canonicalize.remove_identity import remove_identity

STORED, OTHERWISE = Storage(DType.I8, Quant.of(0.02)), Storage(DType.I8, Quant.of(0.03, 4))


def part(starts: tuple[int, int], sizes: tuple[int, int], steps: tuple[int, int]) -> dict[str, Attribute]:
    return {"starts": starts, "sizes": sizes, "steps": steps}


CASES: list[tuple[str, dict[str, Attribute], bool]] = [
    ("Identity", {}, True),
    ("Cast", {"to": "f32"}, True),
    ("Cast", {"to": "f64"}, False),
    ("Reshape", {"shape": (3, 4)}, True),
    ("Reshape", {"shape": (4, 3)}, False),
    ("Reshape", {"shape": (3, 4, 1)}, False),
    ("Expand", {"shape": (3, 4)}, True),
    ("Expand", {"shape": (1, 3, 4)}, False),
    ("Expand", {"shape": (2, 3, 4)}, False),
    ("Slice", part((0, 0), (3, 4), (1, 1)), True),
    ("Slice", part((0, 3), (3, 4), (1, -1)), False),
    ("Slice", part((0, 0), (3, 3), (1, 1)), False),
    ("Tile", {"repeats": (1, 1)}, True),
    ("Tile", {"repeats": (1, 2)}, False),
    ("Tile", {"repeats": (2, 1)}, False),
    ("Pad", {"before": (0, 0), "after": (0, 0)}, True),
    ("Pad", {"before": (1, 0), "after": (0, 0)}, False),
    ("Pad", {"before": (0, 0), "after": (0, 1)}, False),
    ("Concat", {"axis": 0}, True),
    ("Transpose", {"perm": (0, 1)}, True),
    ("Transpose", {"perm": (1, 0)}, False),
]


@pytest.mark.parametrize(("op", "attrs", "is_identity"), CASES)
def test_what_changes_nothing_is_dropped(op: str, attrs: dict[str, Attribute], is_identity: bool) -> None:
    e = Expressions(0)
    graph = e.graph(e("Neg", e(op, e("Sin", e.input(3, 4)), **attrs)))
    assert ops_after([remove_identity], graph, 0) == ["Sin", *([] if is_identity else [op]), "Neg"]


def test_a_concat_of_two_stays() -> None:
    e = Expressions(0)
    x = e("Sin", e.input(3, 4))
    assert ops_after([remove_identity], e.graph(e("Concat", x, x, axis=0)), 0) == ["Sin", "Concat"]


@pytest.mark.parametrize(("op", "attrs"), [(op, attrs) for op, attrs, same in CASES if same and op != "Cast"])
def test_a_node_that_stores_its_result_otherwise_stays(op: str, attrs: dict[str, Attribute]) -> None:
    for storage, kept in ((STORED, []), (OTHERWISE, [op])):
        e = Expressions(0)
        x = e("Relu", e.input(3, 4, storage=STORED), storage=STORED)
        graph = e.graph(e("Neg", e(op, x, storage=storage, **attrs)))
        assert ops_after([remove_identity], graph, 0) == ["Relu", *kept, "Neg"]


def test_the_last_reshape_of_a_chain_decides() -> None:
    for between, ops in ((STORED, ["Reshape"]), (OTHERWISE, ["Reshape", "Reshape"])):
        e = Expressions(0)
        first = e("Reshape", e.input(3, 4, storage=STORED), shape=(12,), storage=between)
        graph = e.graph(e("Reshape", first, shape=(2, 6), storage=between))
        assert ops_after([remove_identity], graph, 0) == ops

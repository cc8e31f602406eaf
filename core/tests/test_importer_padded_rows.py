"""Nodes that compute with rows behind the last selected box are found; those that only move them are not."""

from __future__ import annotations

import numpy as np
import pytest

from mace_core.graph_builder import Builder
from mace_core.importer.padded_rows import find_padded_reads
from mace_core.ir import DType


def selection() -> tuple[Builder, str, str]:
    """Return a builder with boxes and the numbers of those that are selected, as a column of i64."""
    new = Builder("m")
    boxes, scores = new.input("boxes", DType.F32, (1, 6, 4)), new.input("scores", DType.F32, (1, 1, 6))
    rows = new.add("NonMaxSuppression", [boxes, scores], {"per_class": 2}, outputs=["rows", "count"])[0]
    column = new.one("Gather", [rows, new.weight("two", np.array([2]))], {"axis": 1})
    return new, boxes, new.one("Cast", [new.one("Reshape", [column], {"shape": (2,)})], {"to": "i32"})


def test_moves_are_allowed_and_a_lookup_is_found() -> None:
    new, boxes, column = selection()
    assert find_padded_reads(new.nodes, {"rows"}, [column, "count"]) == []
    best = new.one("Gather", [boxes, column], {"axis": 1}, outputs=["best"])
    area = new.one("Relu", [best])
    (node,) = find_padded_reads(new.nodes, {"rows"}, [area])
    assert (node.op.name, node.outputs) == ("Gather", ("best",))
    assert find_padded_reads(new.nodes, {"rows"}, [column]) == [], "no output needs the lookup"
    assert find_padded_reads(new.nodes, set(), [area]) == []


@pytest.mark.parametrize("op", ["Neg", "Abs"])
def test_arithmetic_is_found(op: str) -> None:
    new, _, column = selection()
    results = [new.one(op, [column]), new.one("Add", [column, column])]
    assert [node.op.name for node in find_padded_reads(new.nodes, {"rows"}, results)] == [op, "Add"]

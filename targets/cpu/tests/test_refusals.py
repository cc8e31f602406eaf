"""Refusals of the CPU target: each says with a code what it is about, and what a user can change where that helps."""

from __future__ import annotations

import ast
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from mace_core.attributes import Attribute
from mace_core.ir import Array
from mace_core.testing.compiled import case
from mace_target_cpu import Cpu
from mace_target_cpu.lower.types import CAST, FREEZE, MERGE_AXES

SOURCES = sorted(Path(str(files("mace_target_cpu"))).rglob("*.py"))


def floats(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


STRIPES = (2, 3) * 7
"""A shape of which every second axis is reduced or broadcast: no two neighbors can be merged."""

KEYS = np.array([3, 1], np.int64)
CASES = [
    ("Resize", [np.zeros(2)], {"sizes": (4,), "scales": (2.0,), "mode": "linear"}, "dtype", CAST),
    (
        "Add",
        [floats(*STRIPES), floats(*(n if i % 2 else 1 for i, n in enumerate(STRIPES)))],
        {},
        "shape",
        MERGE_AXES,
    ),
    (
        "ReduceMax",
        [floats(*(2, 3) * 9)],
        {"axes": tuple(range(0, 18, 2)), "keepdims": True},
        "shape",
        MERGE_AXES,
    ),
    ("GatherND", [floats(*(1,) * 12), np.zeros((1, 12), np.int64)], {}, "shape", MERGE_AXES),
    ("MapValues", [KEYS, KEYS, KEYS, KEYS[0]], {}, "other", FREEZE),
]


@pytest.mark.parametrize(("op", "inputs", "attrs", "code", "remedy"), CASES, ids=[row[0] for row in CASES])
def test_a_refusal_says_what_it_is_about_and_what_to_change(
    op: str, inputs: list[Array], attrs: dict[str, Attribute], code: str, remedy: str
) -> None:
    graph = case("refused", op, inputs, attrs)
    refusal = Cpu().refuses(graph.nodes[0], graph)
    assert refusal
    assert (refusal.code, refusal.remedy) == (code, remedy)
    assert str(refusal) == f"{refusal.reason}; {remedy}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.stem))
def test_no_refusal_leaves_both_code_and_remedy_out(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Refused":
            assert {keyword.arg for keyword in node.keywords} & {"code", "remedy"}, (
                f"{path.name}:{node.lineno}"
            )

"""Strips of an image: their size, and which convolutions read their windows in one."""

from __future__ import annotations

import pytest
from quantized_graphs import I8, I16, conv

from mace_core.ir import DType, Graph
from mace_core.program import Call
from mace_target_cpu import Cpu

POINT = {"pads_before": (0, 0), "pads_after": (0, 0)}


def call(graph: Graph) -> Call:
    # Those of other levels read the same windows.
    return Cpu().lower(graph).calls[0]


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (conv("square", (1, 32, 32, 16), (16, 3, 3, 16), (I8, DType.I8, I8)), True),
        (conv("pixel", (1, 32, 32, 16), (16, 1, 1, 16), (I8, DType.I8, I8), **POINT), False),
        (conv("apart", (1, 32, 32, 16), (16, 1, 1, 16), (I8, DType.I8, I8), strides=(2, 2), **POINT), False),
        (conv("sixteen", (1, 32, 32, 16), (16, 3, 3, 16), (I16, DType.I8, I16)), False),
    ],
    ids=lambda value: value.name if isinstance(value, Graph) else "",
)
def test_windows_that_overlap_are_read_in_a_strip(graph: Graph, expected: bool) -> None:
    assert call(graph).args["strip"] == expected


def test_pieces_that_end_within_a_quad_have_weights_of_their_own() -> None:
    stem = call(conv("stem", (1, 20, 20, 3), (32, 3, 3, 3), (I8, DType.I8, I8)))
    whole = call(conv("whole", (1, 20, 20, 4), (32, 3, 3, 4), (I8, DType.I8, I8)))
    assert stem.reads[4] == "w_pieces"
    assert whole.reads[4] == ""

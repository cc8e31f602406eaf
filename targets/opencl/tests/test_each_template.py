"""A case of each template that computes without local memory, on a device, in the plain run.

`test_small_kernels` has the others. Each case reaches the ends of what its template divides: indices that count
from the end or lie outside, ties, padding longer than its tensor, tiles over the edge, and both directions.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from odd_cases import (
    INDEXED,
    MOVES,
    RECURRENT,
    REGIONAL,
    ROWS,
    OpCase,
    build_case,
    build_recurrent,
    list_variants,
)
from odd_shapes import ROIS, resize
from opencl_device import load_on_device, require_device
from product_graphs import build_conv
from test_small_kernels import TEMPLATES

from mace_core.attributes import Attribute
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Quant, Storage
from mace_core.run.reference import execute
from mace_core.testing.compiled import assert_close, merge, random_inputs
from mace_target_opencl.enqueue import KERNELS
from mace_target_opencl.options import OpenclOptions
from mace_target_opencl.target import Opencl

OPTIONS = OpenclOptions(winograd=2)
WINDOW = {"pads_before": (1, 2), "pads_after": (2, 1), "strides": (2, 1)}
EDGES = {"pads_before": (1, 1), "pads_after": (1, 1)}


def list_cases() -> Iterator[OpCase]:
    """Yield cases of indices, moves and regions; of each op that is named the first, or all that `MOVES` has."""
    yield from (entry for entry in MOVES if entry.op in ("Pad", "Transpose", "ReverseSequence"))
    yield from (entry for entry in INDEXED if entry.op in ("GatherElements", "TopK"))
    yield from (entry for entry in ROWS if entry.op in ("CumSum", "LRN"))
    # Random integers are few, so that many of them tie. What is constant, as in INDEXED, is computed by no kernel.
    yield OpCase("TopK", [np.zeros((2, 40), np.int32)], {"k": 9}, (), 2)
    yield OpCase("Concat", [(5, 3, 2), (5, 1, 2), (5, 4, 2)], {"axis": 1})
    yield resize((1, 3, 5, 8), (1, 7, 4, 8), "linear")
    outside = {
        "coordinates": "tf_crop_and_resize",
        "extrapolation": 7.0,
        "roi": (0.0, -0.5, 0.1, 0.0, 1.0, 1.3, 1.4, 1.0),
    }
    sizes: dict[str, Attribute] = {"sizes": (1, 4, 6, 2), "scales": (1.0, 4 / 3, 1.2, 1.0), "mode": "linear"}
    yield OpCase("Resize", [(1, 3, 5, 2)], {**sizes, **outside})
    first = {entry.op: entry for entry in reversed((*REGIONAL, *list_variants()))}
    yield from (
        first[op] for op in ("RoiAlign", "DecodeBoxes", "SquaredDistance", "ScatterND", "ScatterElements")
    )
    yield OpCase("RoiMaxPool", [(2, 5, 7, 4), ROIS, np.array([1, 0, 1])], {"size": (2, 3)}, (1, 2))
    # Middles of two elements, whose even one is the nearest, and places far outside.
    grid = np.array([-0.5, 0.0, 0.5, -0.5, -3.0, 2.6, 0.0, -1.3], np.float32).reshape(1, 1, 4, 2)
    nearest = {"mode": "nearest", "padding": "reflection", "align_corners": False}
    yield OpCase("GridSample", [(1, 4, 4, 3), grid], nearest, (1,))


def build_curve() -> Graph:
    """Return a function of sixteen bits."""
    builder = Builder("curve")
    x = builder.input("x", DType.I16, (37,), Quant.of(2.0**-12))
    y = builder.reserve_output("y", Storage(DType.I16, Quant.of(2.0**-15)))
    return builder.finish(builder.add("Tanh", [x], {}, outputs=[y]))


GRAPH = merge(
    "templates",
    [
        *(build_case(number, entry) for number, entry in enumerate(list_cases())),
        build_curve(),
        build_recurrent(0, RECURRENT[4]),
        build_conv("winograd", (1, 9, 7, 16), (16, 3, 3, 16), EDGES),
        build_conv("strided", (2, 7, 5, 3), (5, 3, 3, 3), WINDOW),
    ],
)


def test_each_template_has_a_case_in_the_plain_run() -> None:
    templates = {
        call.kernel.template.name.removesuffix(".cl.in") for call in Opencl(OPTIONS).lower(GRAPH).calls
    }
    every = {file.name.removesuffix(".cl.in") for file in KERNELS.iterdir() if file.name.endswith(".cl.in")}
    assert templates | {*TEMPLATES} == every


@pytest.mark.device
@pytest.mark.slow
def test_each_template_computes_what_the_references_do(tmp_path: Path) -> None:
    require_device()
    inputs = random_inputs(GRAPH)
    actual = load_on_device([GRAPH], tmp_path, Opencl(OPTIONS))["templates"].run(inputs)
    expected = execute(GRAPH, inputs)
    for name in GRAPH.outputs:
        if GRAPH.tensors[name].quant:
            difference = np.abs(actual[name].astype(int) - expected[name].astype(int)).max()
            assert difference <= 2, "straight lines are this far off the function"
        else:
            assert_close(actual[name], expected[name], name, 1e-4)

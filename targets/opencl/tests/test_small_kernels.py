"""One small kernel of each template that shares work among work-items, on a device, in the plain run.

Sizes fill no group and no tile, and the check build tests each access: what leaves a tensor by one row is found
here, where a buffer rounded up to 256 bytes would hide it. `test_oclgrind` looks for races in the same kernels.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from byte_pairs import Block, ask
from byte_pairs import build_block as build_byte_block
from byte_results import full_range
from image_network import build_pair
from odd_cases import RECURRENT, build_recurrent
from opencl_device import load_on_device, measure_error, require_device
from product_graphs import build_conv, build_product

from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Quant, Shape, Storage
from mace_core.program import Program
from mace_core.run.reference import execute
from mace_core.testing.compiled import merge, random_inputs
from mace_core.tuning import Tuning, TuningEntry
from mace_target_opencl.options import OpenclOptions
from mace_target_opencl.target import Opencl

UNITS = 8
"""Compute units of a device that takes tiles for small products."""


def build_rows() -> Graph:
    """Return sums of rows that a group of work-items shares."""
    builder = Builder("rows")
    x = builder.input("x", DType.F32, (3, 300))
    return builder.finish([builder.one("Softmax", [x], {"axis": 1})])


def build_bytes() -> Graph:
    """Return a depthwise convolution and a mean of bytes with zero points, each a kernel of its own."""
    builder, rng = Builder("bytes"), np.random.default_rng(0)
    window = {"strides": (1, 1), "pads_before": (1, 1), "pads_after": (1, 1)}
    x = builder.input("x", DType.U8, (1, 5, 5, 12), Quant.of(0.02, 119))
    values = rng.integers(-128, 128, (12, 3, 3, 1)).astype(np.int8)
    w = builder.weight("w", values, Quant.of(0.004, 0))
    middle = builder.reserve_output("middle", Storage(DType.U8, Quant.of(0.03, 131)))
    conv = {**window, "dilations": (1, 1), "group": 12}
    y = builder.add("Conv", [x, w], conv, outputs=[middle])[0]
    mean = builder.reserve_output("mean", Storage(DType.U8, Quant.of(0.02, 90)))
    pool = {**window, "kernel": (3, 3), "dilations": (1, 1)}
    return builder.finish(builder.add("AveragePool", [y], pool, outputs=[mean]))


def build_windows(shape: Shape = (1, 5, 5, 12)) -> Graph:
    """Return a depthwise convolution whose pixels fill no group."""
    edge = {"pads_before": (1, 1), "pads_after": (1, 1), "group": shape[-1]}
    return build_conv("windows", shape, (shape[-1], 3, 3, 1), edge)


GRAPH = merge(
    "small",
    [
        build_windows(),
        build_rows(),
        build_bytes(),
        build_product("few_rows", (3, 300), (300, 68)),
        build_product("tile", (33, 72), (72, 36)),
        build_pair((1, 5, 5, 20), 12),
        build_byte_block(Block("pair", (1, 6, 5, 36), (3, 3), 12, zero=131)),
        build_recurrent(0, RECURRENT[0]),
    ],
)
TEMPLATES = ("windows", "rows", "product", "tile", "tile_dots", "recurrent")


def ask_for_pairs() -> Tuning:
    """Return a tuning file that asks for one kernel of each depthwise and pointwise convolution."""
    return ask(GRAPH)


def lower(target: Opencl) -> Program:
    return target.lower(GRAPH, tuning=ask_for_pairs())


def choose_inputs() -> dict[str, Array]:
    """Return random inputs, integers of the whole range of their type."""
    return full_range(GRAPH)


def test_each_template_with_barriers_or_tiles_is_among_them() -> None:
    calls = lower(Opencl(OpenclOptions(compute_units=UNITS))).calls
    assert {*TEMPLATES} <= {call.kernel.template.name.removesuffix(".cl.in") for call in calls}
    assert sum(bool(call.kernel.params.get("window_axes")) for call in calls) == 2
    shared = {
        call.kernel.template.name for call in calls if int(str(call.kernel.params.get("splits", 1))) > 1
    }
    assert shared == {"product.cl.in", "tile.cl.in"}, "work-items share results"


@pytest.mark.device
@pytest.mark.slow
def test_small_kernels_compute_what_the_references_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_device()
    monkeypatch.setattr("mace_target_opencl.target.tuning_of", lambda *_: ask_for_pairs())
    target = Opencl(OpenclOptions(compute_units=UNITS, checks_bounds=True))
    inputs = choose_inputs()
    actual = load_on_device([GRAPH], tmp_path, target)["small"].run(inputs)
    expected = execute(GRAPH, inputs)
    for name in GRAPH.outputs:
        if GRAPH.tensors[name].quant:
            # A step for each of two roundings; a zero point that is off by one moves a third of them.
            differences = np.abs(actual[name].astype(int) - expected[name].astype(int))
            assert differences.max() <= 2, name
            assert (differences > 0).mean() < 0.1, name
        else:
            assert measure_error(actual[name], expected[name]) < 1e-5, name


@pytest.mark.device
@pytest.mark.slow
def test_small_kernels_in_images_compute_what_the_references_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two images of odd sizes, whose tensors and filters lie in images, with a pair in one kernel and in two."""
    require_device()
    pairs = [build_pair((2, 5, 3, 20), columns) for columns in (12, 20)]
    graph = merge("images", pairs)
    joined = [node.name for node in graph.nodes if graph.tensors[node.outputs[0]].shape[-1] == 12]
    entries = tuple(TuningEntry("image_depthwise", 1, node=name) for name in joined)
    monkeypatch.setattr("mace_target_opencl.target.tuning_of", lambda *_: Tuning(Path("t.yml"), entries))
    inputs = random_inputs(graph)
    actual = load_on_device([graph], tmp_path, Opencl(OpenclOptions(images=True)))["images"].run(inputs)
    expected = execute(graph, inputs)
    for name in graph.outputs:
        assert measure_error(actual[name], expected[name]) < 1e-5, name

"""Depthwise convolutions in the kernel of the pointwise one behind them, where both read images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from half_device import replace_half
from image_network import build_pair, window
from opencl_device import compile_by_clang, load_on_device, measure_error, require_device

from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph
from mace_core.program import Call, Program
from mace_core.run.reference import execute
from mace_core.testing.compiled import merge, random_inputs
from mace_core.tuning import Tuning, TuningEntry
from mace_target_opencl.enqueue import operands_of, render_program
from mace_target_opencl.fusion import fuse
from mace_target_opencl.half_arithmetic import compute_in_half
from mace_target_opencl.half_storage import store_in_half
from mace_target_opencl.image_storage import store_in_images
from mace_target_opencl.options import OpenclOptions
from mace_target_opencl.target import Opencl

IMAGES = OpenclOptions(images=True)


PAIRS = (
    build_pair((1, 9, 7, 20), 20),
    build_pair((2, 11, 6, 36), 132),
    build_pair((3, 8, 13, 16), 12, 2),
)
"""Depths, columns and rows that fill no tile."""


def ask(graph: Graph) -> Tuning:
    """Return a tuning file that asks for one kernel over images at each pointwise convolution of a pair."""
    pairs = [n for n in graph.nodes if n.op.name == "Conv" and graph.weights[n.inputs[1]].shape[0] > 4]
    nodes = [n.name for n in pairs if graph.weights[n.inputs[1]].shape[-1] > 1]
    return Tuning(Path("t.yml"), tuple(TuningEntry("image_depthwise", 1, node=name) for name in nodes))


class Apart(Opencl):
    """Computes each of the two by a kernel of its own."""

    def fuse(self, first: Call, second: Call, tensor: str) -> Call | None:
        return fuse(first, second, tensor)


def lower(graph: Graph, options: OpenclOptions = IMAGES) -> Program:
    return Opencl(options).lower(graph, tuning=ask(graph))


def name_templates(program: Program) -> list[str]:
    return [call.kernel.template.name for call in program.calls]


def list_images(call: Call) -> set[str]:
    return {str(operand.name) for operand in operands_of(call) if operand.image}


@pytest.mark.parametrize("graph", PAIRS, ids=lambda graph: graph.name)
def test_operands_filters_and_results_of_one_kernel_lie_in_images(graph: Graph) -> None:
    program = store_in_images(lower(graph))
    assert name_templates(program) == ["map.cl.in", "tile.cl.in", "product.cl.in"]
    assert {"x", "f", "w", "y"} <= list_images(program.calls[1])


def test_operands_of_steps_are_read_from_images() -> None:
    _, call, _ = store_in_images(lower(PAIRS[0])).calls
    lookups = [a for step in call.kernel.params["window_steps"] for a in step.arguments if a is not None]
    assert any(str(lookup.operand) in list_images(call) for lookup in lookups)


def test_the_target_joins_pairs_in_images_as_in_buffers() -> None:
    graph = build_pair((1, 112, 112, 96), 24)
    assert name_templates(Opencl(IMAGES).lower(graph)).count("tile.cl.in") == 1
    without_local = Opencl(replace(IMAGES, local_memory=False)).lower(graph)
    assert name_templates(without_local) == ["map.cl.in", "windows.cl.in", "product.cl.in", "product.cl.in"]


def test_a_tile_without_a_window_reads_buffers() -> None:
    """It has no pixels to read: a convolution that lies between it and images writes a buffer."""
    builder, rng = Builder("m"), np.random.default_rng(0)
    x = builder.input("x", DType.F32, (1, 32, 32, 32))
    w, v = (builder.weight("w", rng.normal(size=(64, 1, 1, d)).astype(np.float32)) for d in (32, 64))
    graph = builder.finish([builder.one("Conv", [builder.one("Conv", [x, w], window()), v], window())])
    tuning = Tuning(Path("t.yml"), (TuningEntry("image", 1, node=graph.nodes[1].name),))
    first, second = store_in_images(Opencl().lower(graph, tuning=tuning)).calls
    assert (first.kernel.template.name, list_images(first)) == ("tile.cl.in", set())
    assert list_images(second) == {"w"}


@pytest.mark.parametrize("candidate", ["image", "image_depthwise"])
def test_filters_of_either_kernel_may_lie_in_buffers(candidate: str) -> None:
    """A tuning file chooses for each node, and so may ask for images at one of the two alone."""
    graph = PAIRS[0]
    nodes = [node.name for node in graph.nodes if node.op.name == "Conv"]
    entries = (TuningEntry("depthwise", 1, node=nodes[1]), TuningEntry(candidate, 1, node=nodes[0]))
    if candidate == "image_depthwise":
        entries = (TuningEntry(candidate, 1, node=nodes[1]),)
    program = store_in_images(Opencl().lower(graph, tuning=Tuning(Path("t.yml"), entries)))
    (call,) = [call for call in program.calls if call.kernel.params.get("window_axes")]
    assert list_images(call) & {"f", "w"} == ({"f"} if candidate == "image" else {"w"})


@pytest.mark.slow
def test_kernels_are_opencl_c(tmp_path: Path) -> None:
    graph = merge("all", PAIRS)
    program = store_in_images(compute_in_half(store_in_half(lower(graph))))
    source = render_program(call.kernel for call in program.calls)
    assert "PIXEL_f" in source
    assert compile_by_clang(source, tmp_path)


def run(target: Opencl, tuning: Tuning, folder: Path) -> dict[str, Array]:
    graph = merge("all", PAIRS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mace_target_opencl.target.tuning_of", lambda *_: tuning)
        model = load_on_device([graph], folder, target)["all"]
    results: dict[str, Array] = model.run(random_inputs(graph))
    return results


@pytest.mark.device
@pytest.mark.exhaustive
def test_one_kernel_has_the_bits_of_two(tmp_path: Path) -> None:
    require_device()
    graph = merge("all", PAIRS)
    expected = execute(graph, random_inputs(graph))
    apart = run(Apart(IMAGES), Tuning(), tmp_path / "apart")
    joined = run(Opencl(IMAGES), ask(graph), tmp_path / "joined")
    for name, value in joined.items():
        assert measure_error(value, expected[name]) < 1e-6, name
        assert np.array_equal(value, apart[name]), name


@pytest.mark.device
@pytest.mark.exhaustive
@pytest.mark.parametrize(("arithmetic", "limit"), [("f32", 2e-3), ("f16", 5e-3)])
def test_half_precision_is_within_the_bounds_of_two_kernels(
    arithmetic: str, limit: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if arithmetic == "f16":
        replace_half(monkeypatch)
    require_device()
    graph = merge("all", PAIRS)
    expected = execute(graph, random_inputs(graph))
    options = replace(IMAGES, storage="f16", arithmetic=arithmetic)
    actual = run(Opencl(options), ask(graph), tmp_path)
    errors = {name: measure_error(value, expected[name]) for name, value in actual.items()}
    assert max(errors.values()) < limit, errors
    assert min(errors.values()) > 1e-6, "nothing was computed in half precision"

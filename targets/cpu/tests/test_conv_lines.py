"""Convolutions of few channels from copied lines: the bits of the matrix kernel, of images and of planes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from emulated_levels import QUIET, SEEN
from test_conv import OneLevel, conv
from test_workers import shuffled

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_core.run.reference import execute
from mace_core.testing.compiled import (
    assert_close,
    generate_library,
    load_library,
    merge,
    plan_graph,
    random_inputs,
    run_merged,
)
from mace_core.testing.sanitized import Sanitized
from mace_target_cpu import Cpu
from mace_target_cpu.lower.lines import MAX_STRIP_BYTES, read_planes

TO_CHANNELS_LAST = (0, 2, 3, 1)


def planes(
    name: str,
    shape: tuple[int, int, int, int],
    results: int,
    *,
    stride: int = 1,
    pads: tuple[int, int, int, int] = (1, 1, 1, 1),
    then: str = "",
    readers: int = 1,
) -> Graph:
    """Windows of 3 x 3 over [image, channel, line, column], as ONNX has them.

    then: an op behind the convolution.  readers: convolutions of the same image, joined by a Concat.
    """
    new, rng = Builder(name), np.random.default_rng(4)
    x = new.one("Transpose", [new.input("x", DType.F32, shape)], {"perm": TO_CHANNELS_LAST})
    attrs = {
        "strides": (stride, stride),
        "pads_before": pads[:2],
        "pads_after": pads[2:],
        "dilations": (1, 1),
        "group": 1,
        "low": -0.5,
        "high": 0.75,
    }
    found = []
    for number in range(readers):
        w = new.weight("w", rng.standard_normal((results, 3, 3, shape[1])).astype("f4") / 4)
        bias = new.weight("b", rng.standard_normal(results).astype("f4"))
        y = new.one("Conv", [x, w, bias], attrs)
        found.append(new.one(then, [y]) if then and number == 0 else y)
    return new.finish([new.one("Concat", found, {"axis": -1}) if readers > 1 else found[0]])


IMAGES = [
    conv(
        "stem", (1, 13, 27, 3), (8, 3, 3, 3), strides=(2, 2), pads_before=(1, 1), pads_after=(1, 1), high=1.0
    ),
    # Several strips, several tiles of columns, and a part of a vector.
    conv("wide", (2, 40, 90, 4), (37, 3, 3, 4), pads_before=(1, 2), pads_after=(0, 3)),
    conv("gray", (1, 49, 10, 1), (64, 10, 4, 1), strides=(2, 2), pads_before=(4, 1), pads_after=(5, 1)),
    conv(
        "dilated",
        (1, 12, 14, 2),
        (7, 3, 2, 2),
        False,
        dilations=(2, 3),
        pads_before=(2, 3),
        pads_after=(1, 3),
    ),
    # Windows that see nothing but padding, and columns that none sees.
    conv("outside", (1, 3, 5, 3), (5, 2, 2, 3), pads_before=(4, 5), pads_after=(3, 4)),
    conv("skipped", (1, 9, 23, 3), (20, 1, 2, 3), strides=(4, 4)),
    conv("line", (2, 33, 2), (18, 5, 2), strides=(3,), pads_before=(2,), pads_after=(2,)),
    conv("computed", (1, 6, 9, 3), (9, 3, 3, 3), dynamic=True),
    # What high tiles leave of a line is less than a low tile has, as many, and more.
    *(conv(f"rest_{width}", (1, 3, width + 2, 1), (20, 3, 3, 1)) for width in (4, 5, 11, 28, 29, 30)),
    # Several strips of an image of more than 256 KB, whose lines are fetched ahead.
    conv("large", (2, 90, 260, 3), (17, 3, 3, 3), strides=(2, 1)),
    # Results that end where a line of the cache does, so that nothing lies between them and what comes next.
    conv("exact", (1, 6, 10, 1), (7, 3, 3, 1)),
    # A distance of lines that no window has.
    conv("single", (1, 5, 9, 2), (6, 1, 3, 2), dilations=(1 << 30, 1)),
]

PLANES = [
    planes("planes", (1, 3, 21, 30), 8, stride=2),
    planes("batch", (3, 2, 6, 7), 19, pads=(0, 2, 3, 1)),
    planes("epilogue", (1, 3, 8, 12), 17, then="Tanh"),
    planes("large_planes", (1, 3, 150, 160), 40, stride=2),
]


def list_kernels(graph: Graph) -> list[str]:
    return [call.kernel.name for call in Cpu().lower(graph, "x86_64").calls]


def test_few_channels_are_read_from_lines() -> None:
    names = [list_kernels(graph)[-1] for graph in IMAGES]
    rest = ["1_low", *["1"] * 5]
    steps = ["6_narrow", "4", "2", "2_narrow", "3_narrow", "12", "6", "3", *rest, "3", "1_narrow", "2_narrow"]
    assert names == [f"conv_lines{step}_f32" for step in steps]


def test_planes_are_read_without_a_copy() -> None:
    assert [list_kernels(graph) for graph in PLANES] == [
        ["conv_lines2_narrow_f32"],
        ["conv_lines1_f32"],
        ["conv_lines1_f32_tanh"],
        ["conv_lines2_f32"],
    ]


def test_an_image_that_others_read_is_copied_once() -> None:
    kernels = list_kernels(planes("two", (1, 3, 8, 12), 16, readers=2))
    assert kernels == ["copy_tiles_32", "conv_lines3_f32_part", "conv_lines3_f32_part"]


def test_only_the_image_is_read_as_planes() -> None:
    """And no other operand of the same shape, as an epilogue can have one."""
    copy, product, _ = Cpu().lower(planes("two", (1, 3, 8, 12), 16, readers=2), "x86_64").calls
    (image,) = copy.writes
    fused = read_planes(copy, product, image)
    assert fused is not None
    assert fused.reads == ("x", *product.reads[1:])
    other = replace(product, reads=("other", *product.reads[1:], image))
    assert read_planes(copy, other, image) is None


@pytest.mark.parametrize(("gap", "kernel"), [(1000, "conv_lines1_narrow_low_f32"), (1 << 28, "conv_f32")])
def test_lines_that_lie_far_apart_need_little_scratch(gap: int, kernel: str) -> None:
    """Two lines of filters with a gap that would make a strip of 8 GiB."""
    far = conv("far", (1, 4, 4, 1), (1, 2, 1, 1), dilations=(gap, 1), pads_before=(gap, 0))
    (call,) = Cpu().lower(far, "x86_64").calls
    assert call.kernel.name == kernel
    assert call.scratch <= MAX_STRIP_BYTES


def test_another_order_of_axes_stays_a_copy() -> None:
    new = Builder("turned")
    x = new.one("Transpose", [new.input("x", DType.F32, (1, 3, 8, 12))], {"perm": (0, 3, 2, 1)})
    w = new.weight("w", np.ones((8, 3, 3, 3), "f4"))
    attrs = {"strides": (1, 1), "pads_before": (1, 1), "pads_after": (1, 1), "dilations": (1, 1), "group": 1}
    graph = new.finish([new.one("Conv", [x, w], attrs)])
    assert list_kernels(graph)[-1] == "conv_lines3_narrow_f32"
    assert len(list_kernels(graph)) == 2


@pytest.mark.parametrize(
    ("x", "w"), [((1, 9, 9, 5), (8, 3, 3, 5)), ((1, 9, 9, 3), (8, 1, 1, 3)), ((1, 9, 5, 3), (8, 3, 3, 3))]
)
def test_the_matrix_kernel_takes_the_others(x: tuple[int, ...], w: tuple[int, ...]) -> None:
    """More channels than four, windows of one pixel, and lines of three results."""
    assert list_kernels(conv("other", x, w)) == ["conv_f32"]


@pytest.mark.slow
@pytest.mark.sampled(cases="avx2")
@pytest.mark.parametrize("level", ["avx2", "sse2", "avx512"])
def test_lines_have_the_bits_of_the_matrix_kernel(tmp_path: Path, level: str) -> None:
    graphs = [*IMAGES, *PLANES, planes("joined", (1, 3, 8, 12), 16, readers=2)]
    inputs = {graph.name: random_inputs(graph) for graph in graphs}
    results = []
    for reads_lines in (True, False):
        folder = tmp_path / str(reads_lines)
        folder.mkdir()
        target = OneLevel(replace(QUIET[level], reads_lines=reads_lines))
        results.append(run_merged(target, graphs, folder, inputs))
    for graph in graphs:
        (name,) = graph.outputs
        actual, expected = (by_graph[graph.name][name] for by_graph in results)
        np.testing.assert_array_equal(actual, expected, err_msg=graph.name)
        assert_close(actual, execute(graph, inputs[graph.name])[name], graph.name)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("level", ["avx2", "avx512"])
def test_lines_read_nothing_beside_their_tensors(tmp_path: Path, level: str) -> None:
    target, graphs = OneLevel(SEEN[level]), [*IMAGES, *PLANES]
    library = Sanitized({g.name: plan_graph(target, g) for g in graphs}, (SEEN[level],), tmp_path)
    for graph in graphs:
        inputs = random_inputs(graph)
        (name,) = graph.outputs
        assert_close(dict(library.run(graph.name, inputs))[name], execute(graph, inputs)[name], graph.name)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_lines_do_not_depend_on_the_workers(tmp_path: Path) -> None:
    merged = merge("all", [*IMAGES, *PLANES])
    target = OneLevel(QUIET["avx2"])
    model = load_library(generate_library([target], [merged]), tmp_path, ("-DMACE_GRAIN_NS=1",))["all"]
    inputs = random_inputs(merged)
    together, counts = shuffled(model, inputs)
    assert max(counts) > 3
    for name, array in model.run(inputs).items():
        np.testing.assert_array_equal(together[name], array, err_msg=name)


@pytest.mark.slow
def test_a_line_is_shared_out(tmp_path: Path) -> None:
    """Twelve tasks are worth it for three workers: parts of 75 tiles of a signal, and of each line of two."""
    signal = conv("signal", (1, 905, 1), (20, 8, 1), pads_before=(3,), pads_after=(2,))
    lines = [
        # Parts of six tiles, the last one with three results more.
        conv("rest", (1, 797, 1), (20, 8, 1), pads_before=(3,), pads_after=(2,)),
        conv("lines", (1, 3, 211, 3), (9, 2, 5, 3), strides=(1, 2), pads_before=(0, 4), pads_after=(0, 9)),
        planes("two_planes", (1, 3, 2, 150), 8, then="Tanh"),
    ]
    merged = merge("all", [signal, *lines])
    target = OneLevel(QUIET["avx2"])
    model = load_library(generate_library([target], [merged]), tmp_path, ("-DMACE_GRAIN_NS=1",))["all"]
    inputs = random_inputs(merged)
    together, counts = shuffled(model, inputs)
    assert counts == [11, 11, 10, 10]
    for name, array in model.run(inputs).items():
        np.testing.assert_array_equal(together[name], array, err_msg=name)

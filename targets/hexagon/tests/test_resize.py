"""Resize of bytes by HVX has the bits of the CPU's floats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from emulated import assert_equal, count_packets
from test_halves import draw

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Quant, Storage
from mace_core.lowering import Refused
from mace_core.testing.compiled import merge, plan_graph
from mace_target_hexagon.costs import DspCosts
from mace_target_hexagon.processor import Hvx
from mace_target_hexagon.resize import MAX_BITS, count_bits

FLAGS = ("-O1", "-s")
TEMPLATE = "resize_bytes.c.in"
I8 = Storage(DType.I8, Quant.of(0.05, -3))
U8 = Storage(DType.U8, Quant.of(0.04, 120))


def resize(
    name: str, shape: tuple[int, ...], size: tuple[int, int], storage: Storage, **attrs: object
) -> Graph:
    """Return a linear resize of the image's height and width, unless `attrs` say otherwise."""
    builder = Builder(name)
    x = builder.input("x", storage.dtype, shape, storage.quant)
    y = builder.reserve_output("y", storage)
    sizes = (shape[0], *size, shape[3])
    scales = tuple(new / old for new, old in zip(sizes, shape, strict=True))
    attributes = {"sizes": sizes, "scales": scales, "mode": "linear", **attrs}
    return builder.finish(builder.add("Resize", [x], attributes, outputs=[y]))


VECTORS = (
    resize("twice", (1, 5, 7, 24), (10, 14), I8),
    resize("twice_u8", (2, 3, 4, 130), (6, 8), U8),
    resize("four_times", (1, 3, 5, 1), (12, 20), U8),
    resize("eight_times", (1, 2, 3, 19), (16, 24), I8, coordinates="asymmetric"),
    resize("half", (1, 8, 6, 128), (4, 3), I8),
    resize("corners", (1, 3, 5, 260), (5, 9), U8, coordinates="align_corners"),
    resize("mixed", (1, 4, 6, 3), (8, 24), I8),
)
OTHERS = (
    resize("thirds", (1, 4, 4, 33), (7, 6), I8),
    resize("one_axis", (1, 4, 4, 33), (4, 8), U8),
    resize("cubic", (1, 4, 4, 33), (8, 8), U8, mode="cubic"),
    resize("nearest", (1, 4, 5, 3), (8, 10), U8, mode="nearest"),
    resize("nearest_wide", (1, 4, 5, 140), (9, 7), I8, mode="nearest"),
)


def test_weights_of_few_bits_are_computed_by_vectors() -> None:
    for graph in (*VECTORS, *OTHERS):
        calls = plan_graph(Hvx(), graph, "hexagon-v66").program.calls
        templates = {call.kernel.template.name for call in calls if call.is_made_at("hvx")}
        assert (templates == {TEMPLATE}) is (graph in VECTORS), f"{graph.name}: {templates}"


def test_bits_of_weights_are_counted() -> None:
    assert count_bits(np.array([0.0, 1.0])) == 0
    assert count_bits(np.array([0.25, 0.5])) == 2
    assert count_bits(np.array([2.0**-MAX_BITS])) == MAX_BITS
    with pytest.raises(Refused, match="no multiples of"):
        count_bits(np.array([1 / 3]))
    with pytest.raises(Refused, match="no multiples of"):
        count_bits(np.array([2.0 ** -(MAX_BITS + 1)]))


@pytest.mark.slow
@pytest.mark.emulator
@pytest.mark.parametrize("extremes", [False, True], ids=["random", "extremes"])
def test_resized_images_have_the_bits_of_the_cpu(tmp_path: Path, extremes: bool) -> None:
    graph = merge("images", (*VECTORS, *OTHERS))
    assert_equal(graph, draw(graph, extremes), tmp_path, ("hvx", "plain"), FLAGS)


@pytest.mark.slow
@pytest.mark.emulator
def test_estimated_packets_are_near_those_that_are_counted(tmp_path: Path) -> None:
    graphs = (
        resize("twice", (1, 28, 28, 64), (56, 56), I8),
        resize("corners", (1, 15, 15, 128), (29, 29), U8, coordinates="align_corners"),
        resize("nearest", (1, 28, 28, 64), (56, 56), I8, mode="nearest"),
    )
    graph = merge("images", graphs)
    assert 0.7 < DspCosts().estimate_packets(graph) / count_packets(graph, tmp_path, FLAGS) < 1.4

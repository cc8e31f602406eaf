"""Layers that read views of what others wrote: the program, run in the simulator, computes what the graph says, or is refused."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from automatic_graphs import Writer
from automatic_views import random_views

from mace_core.api import BuildConfig
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Graph
from mace_core.run.reference import execute
from mace_target_max78000.design import DesignedNetwork, design_network
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.firmware.tensor_words import TensorBinding
from mace_target_max78000.legalize.pipeline import legalize_graph
from mace_target_max78000.legalize.tensors import make_storage
from mace_target_max78000.options import Options
from mace_target_max78000.quantize.plan import QuantizationPolicy
from mace_target_max78000.target import Max78000
from mace_target_max78002.target import Max78002

COUNT = int(os.environ.get("MACE_RANDOM_VIEWS", "15"))
"""Random graphs for each part."""
TARGETS = {"max78000": Max78000(), "max78002": Max78002()}
REFUSALS = (
    *(
        "joins its input along another axis",
        "takes a part that the hardware cannot",
        "stored in different steps",
        "limited to",
    ),
    "it is the network's input",
)
"""What the hardware cannot do with such graphs.

Nothing else may be refused, least of all a program that computes something else.
"""
SAME = {"pads_before": (1, 1), "pads_after": (1, 1)}


def emitted(graph: Graph, target: Max78000) -> None:
    """Build the project, which compares the simulated program with the graph."""
    target.emit(graph, BuildConfig("cortex-m4", target.name, Model("net", (Path("net.onnx"),))))


def designed(graph: Graph, device: Chip = MAX78000) -> DesignedNetwork:
    return design_network(graph, [], device, Options(), QuantizationPolicy())


@pytest.mark.sampled(every=9)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", range(COUNT))
def test_random_views(seed: int, target: str) -> None:
    refused: list[str] = []
    try:
        emitted(random_views(seed), TARGETS[target])
    except MaceError as error:
        refused = str(error).splitlines()
    assert [line for line in refused if not any(known in line for known in REFUSALS)] == []


def line_then_image(w: Writer) -> Graph:
    line = w.conv(w.input(128, 8), 16, (3,), pads_before=(1,), pads_after=(1,), low=0.0)
    image = w.one("Reshape", [line], {"shape": (1, 16, 8, 16)})
    return w.graph(w.conv(image, 5, (3, 3), **SAME))


def image_then_line(w: Writer) -> Graph:
    image = w.conv(w.input(16, 8, 8), 16, (3, 3), **SAME)
    line = w.one("Reshape", [image], {"shape": (1, 128, 16)})
    return w.graph(w.conv(line, 5, (5,), pads_before=(2,), pads_after=(2,)))


def pooled_view(w: Writer) -> Graph:
    line = w.conv(w.input(128, 8), 16, (3,), pads_before=(1,), pads_after=(1,))
    return w.graph(w.pool(w.one("Reshape", [line], {"shape": (1, 16, 8, 16)}), (2, 2), 2))


def transposed_view(w: Writer) -> Graph:
    line = w.conv(w.input(12, 4), 4, (1,))
    image = w.one("Reshape", [line], {"shape": (1, 3, 4, 4)})
    attrs = {"strides": (2, 2), "output_padding": (1, 1), **SAME}
    return w.graph(w.conv(image, 16, (3, 3), "ConvTranspose", **attrs))


def sum_of_views(w: Writer) -> Graph:
    x = w.input(8, 16, 8)
    line = w.conv(
        w.one("Reshape", [w.conv(x, 8, (1, 1))], {"shape": (1, 128, 8)}),
        8,
        (3,),
        pads_before=(1,),
        pads_after=(1,),
    )
    image = w.conv(x, 8, (3, 3), **SAME)
    return w.graph(w.one("Add", [w.one("Reshape", [line], {"shape": (1, 8, 16, 8)}), image]))


def join_of_views(w: Writer) -> Graph:
    x = w.input(8, 16, 8)
    line = w.conv(
        w.one("Reshape", [w.conv(x, 8, (1, 1))], {"shape": (1, 128, 8)}),
        8,
        (3,),
        pads_before=(1,),
        pads_after=(1,),
    )
    image = w.conv(x, 8, (3, 3), **SAME)
    joined = w.one("Concat", [w.one("Reshape", [line], {"shape": (1, 8, 16, 8)}), image], {"axis": 3})
    return w.graph(w.conv(joined, 4, (3, 3), **SAME))


def view_is_a_result(w: Writer) -> Graph:
    line = w.conv(w.input(32, 8), 4, (3,), pads_before=(1,), pads_after=(1,))
    image = w.one("Reshape", [line], {"shape": (1, 4, 8, 4)})
    return w.graph(image, w.conv(image, 4, (3, 3), **SAME))


def input_joined_twice(w: Writer) -> Graph:
    x = w.input(9, 9, 5)
    return w.graph(w.conv(w.one("Concat", [x, x], {"axis": 3}), 4, (3, 3), **SAME))


def rows_of_a_split(w: Writer) -> Graph:
    x = w.conv(w.input(8, 8, 4), 4, (3, 3), **SAME)
    kept = w.build.tensors[x].storage
    parts = w.build.add(
        "Split",
        [x],
        {"axis": 1, "sizes": (2, 6)},
        outputs=[w.build.reserve_output(f"part{i}", kept) for i in range(2)],
    )
    return w.graph(*(w.conv(part, 4, (1, 1)) for part in parts))


def channels_of_a_flat_split(w: Writer) -> Graph:
    x = w.dense(w.input(4, 4, 4), 24)
    kept = w.build.tensors[x].storage
    parts = w.build.add(
        "Split",
        [x],
        {"axis": 1, "sizes": (10, 14)},
        outputs=[w.build.reserve_output(f"part{i}", kept) for i in range(2)],
    )
    return w.graph(*(w.dense(part, 5) for part in parts))


def input_in_other_steps(w: Writer) -> Graph:
    x = w.build.one(
        "Quantize", [w.input(8, 8, 4)], {}, outputs=[w.build.reserve_output("coarse", make_storage(-5))]
    )
    return w.graph(w.conv(x, 4, (3, 3), **SAME))


def copies_plain_and_transposed(w: Writer) -> Graph:
    """An odd column is cut by a transposed convolution with the same copying kernel as the plain one before it, which is stored flipped."""
    x = w.conv(w.input(4, 8, 5), 5, (1, 1))
    cut = w.one("Slice", [x], {"starts": (0, 0, 0, 0), "sizes": (1, 4, 1, 5), "steps": (1, 1, 1, 1)})
    return w.graph(w.conv(cut, 5, (1, 1)))


GRAPHS = (
    *(
        line_then_image,
        image_then_line,
        pooled_view,
        transposed_view,
        sum_of_views,
        join_of_views,
        view_is_a_result,
    ),
    *(
        input_joined_twice,
        rows_of_a_split,
        channels_of_a_flat_split,
        input_in_other_steps,
        copies_plain_and_transposed,
    ),
)


@pytest.mark.slow
@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("make", GRAPHS, ids=lambda f: f.__name__)
def test_view(make: object, target: str) -> None:
    assert callable(make)
    emitted(make(Writer()), TARGETS[target])


def test_rows_and_columns_are_those_of_the_view() -> None:
    formed = legalize_graph(line_then_image(Writer()), MAX78000)
    assert [(layer.dim, layer.out_dim) for layer in formed.layers] == [
        ((128, 1), (128, 1)),
        ((16, 8), (16, 8)),
    ]


@pytest.mark.parametrize("op", ["Add", "MaxPool", "Conv", "ConvTranspose", "MatMul"])
def test_rearranged_data_are_refused(op: str) -> None:
    """Rows and columns exchanged: every op that reads words where they lie says so."""
    w = Writer()
    x = w.conv(w.input(8, 8, 8), 8, (3, 3), **SAME)
    turned = w.one("Transpose", [x], {"perm": (0, 2, 1, 3)})
    up = {"strides": (2, 2), "output_padding": (1, 1), **SAME}
    if op == "Add":
        result = w.one("Add", [turned, w.conv(x, 8, (1, 1))])
    elif op == "MaxPool":
        result = w.pool(turned, (2, 2), 2)
    elif op == "MatMul":  # a pool of the whole that a linear layer takes along
        result = w.dense(w.pool(w.one("Transpose", [x], {"perm": (0, 3, 2, 1)}), (8, 8), 8), 4)
    else:
        result = w.conv(turned, 8, (3, 3), op, **(up if op == "ConvTranspose" else SAME))
    with pytest.raises(MaceError, match="its input is rearranged"):
        legalize_graph(w.graph(result), MAX78000)


def test_sample_of_an_input_in_other_steps() -> None:
    """Stored bytes of the model's input are those of the network's: the accelerator brings them to the other steps."""
    graph = input_in_other_steps(Writer())
    result = designed(graph)
    stored = np.random.default_rng(1).integers(-128, 128, graph.tensors["x"].shape).astype(np.int8)
    assert np.array_equal(np.moveaxis(result.legalized.network_input.apply(stored), 0, -1), stored[0])


def test_results_that_are_views_come_in_their_own_order() -> None:
    graph = view_is_a_result(Writer())
    result = designed(graph)
    expected = execute(graph, {"x": np.rint(result.inputs["x"] * 128).clip(-128, 127).astype(np.int8)})
    feed = TensorBinding.of(result.network, result.options, [2.0**-7] * 2).with_ends(result.legalized)
    blocks = [expected[name].reshape(-1, 4).T for name in graph.outputs]
    for name, found in zip(graph.outputs, feed.results(blocks), strict=True):
        assert np.array_equal(found * 128, expected[name]), name

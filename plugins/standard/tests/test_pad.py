"""fuse-pad on the graphs that have one."""

import numpy as np
import pytest

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_core.run.reference import execute
from mace_core.testing.compiled import random_inputs
from mace_transform_standard.fuse.fuse_pad import fuse_pad


def padded(before: tuple[int, ...], after: tuple[int, ...], value: float = 0.0) -> Graph:
    new = Builder("padded")
    x = new.input("x", DType.F32, (1, 5, 6, 2))
    wide = new.one("Pad", [x], {"before": before, "after": after, "value": value})
    weight = new.weight(
        "w", np.random.default_rng(0).standard_normal((3, 3, 3, new.shape(wide)[-1])).astype(np.float32)
    )
    attrs = {"strides": (1, 2), "pads_before": (0, 1), "pads_after": (1, 0), "dilations": (1, 1)}
    return new.finish([new.one("Conv", [wide, weight], attrs)])


@pytest.mark.parametrize(
    ("graph", "nodes"),
    [
        (padded((0, 1, 2, 0), (0, 0, 3, 0)), ["Conv"]),
        (padded((0, 1, 2, 1), (0, 0, 3, 0)), ["Pad", "Conv"]),
        (padded((0, 1, 2, 0), (0, 0, 3, 0), 1.0), ["Pad", "Conv"]),
    ],
)
def test_zeros_along_the_image_become_padding(graph: Graph, nodes: list[str]) -> None:
    after = fuse_pad(graph)
    assert [n.op.name for n in after.nodes] == nodes
    inputs = random_inputs(graph)
    (output,) = graph.outputs
    np.testing.assert_allclose(
        execute(after, inputs)[output], execute(graph, inputs)[output], rtol=1e-5, atol=1e-5
    )


def test_each_convolution_pads_for_itself() -> None:
    new = Builder("shared")
    x = new.input("x", DType.F32, (1, 5, 6, 2))
    wide = new.one("Pad", [x], {"before": (0, 1, 1, 0), "after": (0, 1, 1, 0)})
    attrs = {"strides": (1, 1), "pads_before": (0, 0), "pads_after": (0, 0), "dilations": (1, 1)}
    weights = [
        new.weight("w", np.random.default_rng(i).standard_normal((3, 3, 3, 2)).astype(np.float32))
        for i in range(2)
    ]
    graph = new.finish([new.one("Conv", [wide, w], attrs) for w in weights])
    after = fuse_pad(graph)
    assert [n.op.name for n in after.nodes] == ["Conv", "Conv"]
    inputs = random_inputs(graph)
    expected, actual = execute(graph, inputs), execute(after, inputs)
    for name in graph.outputs:
        np.testing.assert_allclose(actual[name], expected[name], rtol=1e-5, atol=1e-5)

"""What tests of rewrites share: graphs of one node, and the comparison of a graph with what it becomes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from writer_grower import Grower
from writer_oracle import evaluate, real

from mace_core.attributes import Attribute, AttributeValues
from mace_core.ir import Array, DType, Graph
from mace_core.verify import verify as verify_graph

TYPES = ((DType.F32, False), (DType.I8, True), (DType.U8, True))
SEEDS = range(6)


def check_rewrite(graph: Graph, rewritten: Graph, inputs: Sequence[Array], relative: float = 0.0) -> None:
    """Fail unless both graphs have the same ports and compute the same elements."""
    verify_graph(rewritten)
    assert (rewritten.inputs, rewritten.outputs) == (graph.inputs, graph.outputs)
    for name in (*graph.inputs, *graph.outputs):
        assert rewritten.tensors[name] == graph.tensors[name]
    for expected, actual in zip(evaluate(graph, inputs), evaluate(rewritten, inputs), strict=True):
        if relative and expected.dtype.kind == "f":
            largest = np.abs(expected[np.isfinite(expected)]).max(initial=0)
            np.testing.assert_allclose(actual, expected, rtol=0, atol=relative * max(largest, 1))
        else:
            np.testing.assert_array_equal(actual, expected)


def node_graph(
    grower: Grower, op: str, inputs: Sequence[str], attrs: AttributeValues | None = None, wider: float = 1.0
) -> tuple[Graph, list[Array]]:
    """A graph of one node that the format need not state.

    wider: how many times the range of its results is that of their storage.
    """
    builder, kind = grower.builder, grower.builder.ops[op]
    complete = kind.complete(attrs or {})
    operands = [real(grower.tensor(i), grower.samples[i]) for i in inputs]
    names = []
    for values in kind.compute(operands, complete):
        storage = grower.tensor(inputs[0]).storage if kind.moves else grower.storage(values * wider)
        names.append(builder.reserve_output("y", storage))
    graph = builder.finish(builder.add(kind, inputs, complete, outputs=names))
    return graph, grower.inputs(graph)


def growers() -> list[Grower]:
    return [Grower(seed, *kind) for kind in TYPES for seed in SEEDS]


def whole(grower: Grower, low: int, high: int, count: int = 2) -> tuple[int, ...]:
    return tuple(int(v) for v in grower.random.integers(low, high + 1, count))


def conv_attributes(grower: Grower, **changed: Attribute) -> dict[str, Attribute]:
    """Return random attributes of a window over two axes, those in `changed` as they are stated."""
    attrs: dict[str, Attribute] = {
        "strides": whole(grower, 1, 3),
        "pads_before": whole(grower, 0, 3),
        "pads_after": whole(grower, 0, 3),
        "dilations": whole(grower, 1, 2),
    }
    return {**attrs, **changed}


def conv(
    grower: Grower, group: int = 1, kernel: Sequence[int] = (3, 2), wider: float = 1.0, **changed: Attribute
) -> tuple[Graph, list[Array]]:
    """Return a graph of one convolution and its inputs; `changed`: attributes that are not random."""
    x = grower.input((1, 7, 8, 4))
    w = grower.weights((4, *kernel, 4 // group), 0)
    inputs = [x, w, grower.bias(x, w, 4)]
    attrs = {**conv_attributes(grower, **changed), "group": group}
    return node_graph(grower, "Conv", inputs, attrs, wider)

"""Rewrites of convolutions, pools and matrix products keep what a graph computes."""

from __future__ import annotations

from typing import Any

import pytest
from rewrite_checks import SEEDS, check_rewrite, conv, conv_attributes, growers, node_graph, whole
from writer_grower import Grower
from writer_oracle import check_graph

from mace_core.ir import DType
from mace_tflite_writer import refuses
from mace_tflite_writer.rewrites import (
    blocks_as_convolutions,
    legalize,
    products_as_convolutions,
    rows_as_images,
    separate_crops,
    separate_pads,
    split_groups,
    split_kernels,
)

pytestmark = pytest.mark.slow  # every graph runs in LiteRT


def test_pads_of_convolutions_become_nodes() -> None:
    for grower in growers():
        graph, inputs = conv(grower)
        rewritten = separate_pads(graph)
        check_rewrite(graph, rewritten, inputs)
        assert [refuses(node, rewritten) for node in rewritten.nodes] == [None] * len(rewritten.nodes)
        check_graph(rewritten, inputs)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_pads_of_pools_become_nodes(op: str) -> None:
    for grower in growers():
        x = grower.input((1, 7, 8, 2))
        attrs = conv_attributes(grower, kernel=(4, 4), dilations=(1, 1))
        attrs |= {"ceil": True} if op == "MaxPool" else {"count_pad": True}
        builder = grower.builder
        y = builder.reserve_output("y", grower.tensor(x).storage)
        graph = builder.finish(builder.add(op, [x], attrs, outputs=[y]))
        inputs = grower.inputs(graph)
        rewritten = separate_pads(graph)
        check_rewrite(graph, rewritten, inputs)
        assert [refuses(node, rewritten) for node in rewritten.nodes] == [None] * len(rewritten.nodes)
        check_graph(rewritten, inputs)


def test_paddings_that_the_format_has_stay() -> None:
    graph, _ = conv(
        Grower(0, DType.F32, False), strides=(1, 1), dilations=(1, 1), pads_before=(1, 0), pads_after=(1, 1)
    )
    assert [node.op.name for node in separate_pads(graph).nodes] == ["Conv"]


def test_a_mean_that_leaves_padding_out_stays() -> None:
    grower = Grower(0, DType.F32, False)
    attrs = conv_attributes(grower, kernel=(4, 4), pads_before=(2, 3), dilations=(1, 1))
    graph, _ = node_graph(grower, "AveragePool", [grower.input((1, 7, 8, 2))], attrs)
    assert [node.op.name for node in separate_pads(graph).nodes] == ["AveragePool"]


def test_crops_of_transposed_convolutions_become_nodes() -> None:
    for grower in growers():
        x = grower.input((1, 4, 5, 3))
        w = grower.weights((2, 4, 3, 3), 0)
        strides = whole(grower, 1, 3)
        attrs = {
            "strides": strides,
            "pads_before": whole(grower, 0, 1),
            "pads_after": whole(grower, 0, 1),
            "dilations": (1, 1),
            "output_padding": tuple(int(grower.random.integers(0, s)) for s in strides),
        }
        graph, inputs = node_graph(grower, "ConvTranspose", [x, w, grower.bias(x, w, 2)], attrs)
        rewritten = separate_crops(graph)
        check_rewrite(graph, rewritten, inputs)
        assert [refuses(node, rewritten) for node in rewritten.nodes] == [None] * len(rewritten.nodes)
        check_graph(rewritten, inputs)


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose", "MaxPool", "AveragePool"])
def test_rows_become_images(op: str) -> None:
    for grower in growers():
        x = grower.input((2, 9, 4))
        attrs: dict[str, Any] = {"strides": (2,), "pads_before": (0,), "pads_after": (0,), "dilations": (1,)}
        inputs = [x]
        if op in ("Conv", "ConvTranspose"):
            w = grower.weights((3, 3, 4), 0)
            inputs = [x, w, grower.bias(x, w, 3)]
        if op == "ConvTranspose":
            attrs["output_padding"] = (0,)
        if "Pool" in op:
            attrs["kernel"] = (3,)
            y = grower.builder.reserve_output("y", grower.tensor(x).storage)
            graph = grower.builder.finish(grower.builder.add(op, inputs, attrs, outputs=[y]))
            arrays = grower.inputs(graph)
        else:
            graph, arrays = node_graph(grower, op, inputs, attrs)
        rewritten = rows_as_images(graph)
        check_rewrite(graph, rewritten, arrays)
        assert [refuses(node, rewritten) for node in rewritten.nodes] == [None] * len(rewritten.nodes)
        check_graph(rewritten, arrays)


def test_groups_become_convolutions() -> None:
    for grower in growers():
        graph, inputs = conv(grower, group=2, pads_before=(0, 0), pads_after=(0, 0))
        rewritten = split_groups(graph)
        check_rewrite(graph, rewritten, inputs)
        # Convolutions of uint8 are the ones that the format has no groups for.
        kinds = [node.op.name for node in rewritten.nodes]
        assert kinds == (["Split", "Conv", "Conv", "Concat"] if grower.dtype is DType.U8 else ["Conv"])
        check_graph(rewritten, inputs)


@pytest.mark.parametrize("largest", [2, 3, 5])
def test_large_kernels_become_sums_of_smaller_ones(largest: int) -> None:
    for seed in SEEDS:
        grower = Grower(seed, DType.F32, False)
        graph, inputs = conv(grower, kernel=(5, 3), pads_before=(2, 1), pads_after=(4, 3), low=0.0, high=6.0)
        rewritten = split_kernels(graph, largest)
        check_rewrite(graph, rewritten, inputs, 1e-6)
        for node in rewritten.nodes:
            if node.op.name == "Conv":
                assert max(rewritten.tensors[node.inputs[1]].shape[1:-1]) <= largest


@pytest.mark.parametrize("largest", [2, 3, 4])
def test_large_maxima_become_maxima_of_smaller_ones(largest: int) -> None:
    for grower in growers():
        x = grower.input((1, 9, 11, 2))
        attrs = conv_attributes(grower, kernel=(6, 5), dilations=(1, 1), ceil=bool(grower.random.integers(2)))
        graph, inputs = node_graph(grower, "MaxPool", [x], attrs)
        rewritten = split_kernels(graph, largest)
        check_rewrite(graph, rewritten, inputs)
        pools = [node for node in rewritten.nodes if node.op.name == "MaxPool"]
        assert all(max(node.attrs.kernel) <= largest for node in pools)  # type: ignore[attr-defined]


@pytest.mark.parametrize("op", ["SpaceToDepth", "DepthToSpace"])
@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_blocks_become_convolutions(op: str, mode: str) -> None:
    for grower in growers():
        x = grower.input((2, 4, 6, 8))
        graph, inputs = node_graph(
            grower, op, [x], {"block": 2, **({"mode": mode} if op == "DepthToSpace" else {})}
        )
        rewritten = blocks_as_convolutions(graph, every=True)
        check_rewrite(graph, rewritten, inputs)
        assert [node.op.name for node in rewritten.nodes] == [
            "Conv" if op == "SpaceToDepth" else "ConvTranspose"
        ]
        check_graph(rewritten, inputs)
        unchanged = op == "SpaceToDepth" or mode == "DCR"
        assert (len(legalize(graph).nodes[0].inputs) == 1) == unchanged


def test_products_become_convolutions() -> None:
    for grower in growers():
        x = grower.input((3, 2, 5))
        w = grower.weights((5, 4), 1)
        graph, inputs = node_graph(grower, "MatMul", [x, w, grower.bias(x, w, 4)], {"low": 0.0})
        rewritten = products_as_convolutions(graph)
        check_rewrite(graph, rewritten, inputs)
        assert [node.op.name for node in rewritten.nodes] == ["Reshape", "Conv", "Reshape"]
        check_graph(rewritten, inputs)

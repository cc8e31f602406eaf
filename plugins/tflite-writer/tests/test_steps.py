"""Norms, rows, means and large kernels by operators that the format, or a chip, has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from rewrite_checks import check_rewrite, conv, node_graph
from writer_grower import Grower
from writer_oracle import check_graph, evaluate, real

from mace_core.ir import Array, DType, Graph, Quant, Storage
from mace_tflite_writer import refuses
from mace_tflite_writer.rewrites import (
    clips_as_limits,
    functions_by_steps,
    kernels_by_blocks,
    legalize,
    means_as_convolutions,
    norms_by_steps,
    products_in_int16,
    products_of_rows,
    split_kernels,
    splits_as_slices,
)

pytestmark = pytest.mark.slow  # every graph runs in LiteRT

SEEDS = range(2)
STORED = ((DType.I8, True), (DType.U8, True))


def check_legal(graph: Graph, inputs: Sequence[Array]) -> None:
    legal = legalize(graph)
    assert [refuses(node, legal) for node in legal.nodes] == [None] * len(legal.nodes)
    check_graph(legal, inputs)


@pytest.mark.parametrize("op", ["LayerNorm", "RMSNorm"])
@pytest.mark.parametrize("axis", [-1, 1])
def test_norms_of_inner_axes_become_steps(op: str, axis: int) -> None:
    for seed in SEEDS:
        grower = Grower(seed, DType.F32, False)
        operands = [grower.input((2, 3, 16)), grower.constant(grower.numbers((16,)))]
        if op == "LayerNorm" and seed:
            operands.append(grower.constant(grower.numbers((16,))))
        graph, inputs = node_graph(grower, op, operands, {"axis": axis, "epsilon": 1e-3})
        rewritten = norms_by_steps(graph)
        assert op not in [node.op.name for node in rewritten.nodes]
        check_rewrite(graph, rewritten, inputs, 2e-6)
        check_legal(graph, inputs)


def test_norms_by_known_moments_become_a_product_and_a_sum() -> None:
    for seed in SEEDS:
        grower = Grower(seed, DType.F32, False)
        vectors = [grower.constant(grower.numbers((4,))) for _ in range(3)]
        operands = [grower.input((1, 3, 5, 4)), *vectors, grower.constant(np.abs(grower.numbers((4,))) + 0.1)]
        graph, inputs = node_graph(grower, "BatchNorm", operands, {"epsilon": 1e-3})
        rewritten = norms_by_steps(graph)
        assert [node.op.name for node in rewritten.nodes] == ["Mul", "Add"]
        check_rewrite(graph, rewritten, inputs, 1e-6)
        check_legal(graph, inputs)


def test_norms_by_moments_of_the_model_stay() -> None:
    grower = Grower(0, DType.F32, False)
    operands = [grower.input((1, 3, 5, 4)), *(grower.input((4,)) for _ in range(4))]
    graph, _ = node_graph(grower, "BatchNorm", operands)
    assert norms_by_steps(graph).nodes == graph.nodes


@pytest.mark.parametrize("power", [1, 2])
def test_norms_of_windows_become_means(power: int) -> None:
    for seed in SEEDS:
        grower = Grower(seed, DType.F32, False)
        attrs: dict[str, Any] = {"kernel": (3, 2), "strides": (2, 1), "dilations": (1, 1), "p": power}
        attrs |= {"pads_before": (1, 0), "pads_after": (0, 1)}
        graph, inputs = node_graph(grower, "LpPool", [grower.input((1, 7, 8, 3))], attrs)
        check_rewrite(graph, norms_by_steps(graph), inputs, 2e-6)
        check_legal(graph, inputs)


def test_a_norm_of_windows_keeps_sums_that_half_precision_cannot_hold() -> None:
    grower = Grower(0, DType.F16, False)
    x = grower.input((1, 5, 5, 2))
    grower.samples[x] = np.full((1, 5, 5, 2), 100, np.float16)
    attrs: dict[str, Any] = {"kernel": (5, 5), "strides": (1, 1), "dilations": (1, 1), "p": 2}
    graph, inputs = node_graph(grower, "LpPool", [x], {**attrs, "pads_before": (0, 0), "pads_after": (0, 0)})
    (expected,), (actual,) = evaluate(graph, inputs), evaluate(norms_by_steps(graph), inputs)
    # The sum of the 25 squares is 250,000; half precision ends at 65,504.
    np.testing.assert_array_equal(expected, np.full((1, 1, 1, 2), 500))
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("changed", [{"ceil": True}, {"p": 3}])
def test_norms_of_other_windows_stay(changed: dict[str, Any]) -> None:
    grower = Grower(0, DType.F32, False)
    attrs: dict[str, Any] = {"kernel": (2, 2), "strides": (2, 2), "dilations": (1, 1)}
    attrs |= {"pads_before": (0, 0), "pads_after": (0, 0), **changed}
    graph, _ = node_graph(grower, "LpPool", [grower.input((1, 7, 8, 3))], attrs)
    assert norms_by_steps(graph).nodes == graph.nodes


@pytest.mark.parametrize("axis", [1, -1])
def test_parts_of_different_lengths_become_slices(axis: int) -> None:
    for dtype, quantized in ((DType.F32, False), *STORED):
        grower = Grower(0, dtype, quantized)
        graph, inputs = node_graph_of_split(grower, axis, (2, 1, 3))
        rewritten = splits_as_slices(graph)
        assert [node.op.name for node in rewritten.nodes] == ["Slice"] * 3
        check_rewrite(graph, rewritten, inputs)
        check_graph(rewritten, inputs)


@pytest.mark.parametrize("sizes", [(3, 3), (6, 0), (6,)])
def test_parts_of_one_length_and_empty_ones_stay(sizes: tuple[int, ...]) -> None:
    graph, _ = node_graph_of_split(Grower(0, DType.F32, False), 1, sizes)
    assert splits_as_slices(graph).nodes == graph.nodes


def node_graph_of_split(grower: Grower, axis: int, sizes: tuple[int, ...]) -> tuple[Graph, list[Array]]:
    names = [f"y{n}" for n in range(len(sizes))]
    x = grower.input((2, 6, 6))
    graph = grower.builder.finish(
        grower.builder.add("Split", [x], {"axis": axis, "sizes": sizes}, outputs=names)
    )
    return graph, grower.inputs(graph)


def test_products_have_their_rows_on_one_axis() -> None:
    for dtype, quantized in ((DType.F32, False), *STORED):
        grower = Grower(1, dtype, quantized)
        x = grower.input((3, 2, 5))
        w = grower.weights((5, 4), 1)
        graph, inputs = node_graph(grower, "MatMul", [x, w, grower.bias(x, w, 4)], {"low": 0.0})
        rewritten = products_of_rows(graph)
        assert [node.op.name for node in rewritten.nodes] == ["Reshape", "MatMul", "Reshape"]
        check_rewrite(graph, rewritten, inputs)
        check_graph(rewritten, inputs)
        assert products_of_rows(rewritten).nodes == rewritten.nodes


@pytest.mark.parametrize("keepdims", [True, False])
def test_means_of_another_scale_become_convolutions(keepdims: bool) -> None:
    for dtype, quantized in STORED:
        for seed in SEEDS:
            grower = Grower(seed, dtype, quantized)
            x = grower.input((2, 5, 7, 3))
            graph, inputs = node_graph(grower, "ReduceMean", [x], {"axes": (1, 2), "keepdims": keepdims})
            rewritten = means_as_convolutions(graph)
            assert "Conv" in [node.op.name for node in rewritten.nodes]
            check_rewrite(graph, rewritten, inputs)
            check_legal(rewritten, inputs)


def test_products_of_int8_with_wide_results_have_wide_activations() -> None:
    for seed in SEEDS:
        grower = Grower(seed, DType.I8, True)
        x, w = grower.input((3, 5)), grower.weights((5, 4), 1)
        values = real(grower.tensor(x), grower.samples[x]) @ real(grower.tensor(w), grower.samples[w])
        storage = Storage(DType.I16, Quant.of(float(np.abs(values).max() / 32767)))
        y = grower.builder.reserve_output("y", storage)
        graph = grower.builder.finish(
            grower.builder.add("MatMul", [x, w, grower.bias(x, w, 4)], {}, outputs=[y])
        )
        assert refuses(graph.nodes[0], graph) is not None
        rewritten = products_in_int16(graph)
        check_rewrite(graph, rewritten, grower.inputs(graph))
        check_legal(rewritten, grower.inputs(graph))


@pytest.mark.parametrize("alpha", [1.0, 0.6])
def test_an_elu_that_a_chip_lacks_is_an_exponential(alpha: float) -> None:
    grower = Grower(0, DType.F32, False)
    graph, inputs = node_graph(grower, "Elu", [grower.input((4, 50))], {"alpha": alpha})
    rewritten = functions_by_steps(graph, ["Elu"])
    assert "Elu" not in [node.op.name for node in rewritten.nodes]
    check_rewrite(graph, rewritten, inputs, 4e-7)
    check_graph(rewritten, inputs)


def test_clamps_that_a_chip_lacks_become_limits() -> None:
    for dtype, quantized in ((DType.F32, False), *STORED):
        grower = Grower(0, dtype, quantized)
        graph, inputs = node_graph(grower, "Clip", [grower.input((4, 9))], {"min": 0.0, "max": 1.0})
        assert clips_as_limits(graph).nodes == graph.nodes
        rewritten = clips_as_limits(graph, [(0.0, 1.0)])
        assert [node.op.name for node in rewritten.nodes][-2:] == ["Maximum", "Minimum"]
        check_rewrite(graph, rewritten, inputs)


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("largest", [2, 3])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_large_kernels_of_stored_integers_go_over_blocks(largest: int, stride: int) -> None:
    for dtype, quantized in STORED:
        for seed in SEEDS:
            grower = Grower(seed, dtype, quantized)
            window = {"strides": (stride, stride), "dilations": (1, 1), "low": 0.0}
            graph, inputs = conv(grower, kernel=(5, 4), pads_before=(2, 1), pads_after=(1, 3), **window)
            rewritten = split_kernels(graph, largest)
            check_rewrite(graph, rewritten, inputs)
            (node,) = (node for node in rewritten.nodes if node.op.name == "Conv")
            assert max(rewritten.tensors[node.inputs[1]].shape[1:3]) <= largest
            check_legal(rewritten, inputs)


def test_blocks_compute_floats_too() -> None:
    grower = Grower(0, DType.F32, False)
    graph, inputs = conv(grower, kernel=(7, 2), strides=(1, 1), dilations=(1, 1))
    rewritten = kernels_by_blocks(graph, 3)
    assert evaluate(rewritten, inputs)[0].shape == evaluate(graph, inputs)[0].shape
    check_rewrite(graph, rewritten, inputs, 1e-6)


@pytest.mark.parametrize("changed", [{"dilations": (2, 1)}, {"strides": (2, 1)}, {"group": 2}])
def test_large_kernels_that_no_block_covers_stay(changed: dict[str, Any]) -> None:
    grower = Grower(0, DType.I8, True)
    group = changed.pop("group", 1)
    window = {"strides": (1, 1), "dilations": (1, 1), "pads_before": (2, 2), "pads_after": (2, 2), **changed}
    graph, _ = conv(grower, group=group, kernel=(5, 3), **window)
    assert [node.op.name for node in split_kernels(graph, 2).nodes] == ["Conv"]

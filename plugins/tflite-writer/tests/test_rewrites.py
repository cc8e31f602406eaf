"""Rewrites keep what a graph computes, and make of it what the format states."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from writer_cases import Grower, random_graph, wild_graph
from writer_oracle import check_graph, evaluate, real

from mace_core.ir import Array, DType, Graph, Quant, Storage
from mace_core.verify import verify as verify_graph
from mace_tflite_writer import refuses
from mace_tflite_writer.rewrites import (
    activations_to_int8,
    activations_to_uint8,
    blocks_as_convolutions,
    clips_as_limits,
    functions_by_steps,
    legalize,
    products_as_convolutions,
    refuses_after_rewrites,
    requantize_inputs,
    rows_as_images,
    separate_clamps,
    separate_crops,
    separate_pads,
    silence_channels,
    softmax_along_last,
    split_groups,
    split_kernels,
    weights_per_tensor,
    widen_halves,
)

pytestmark = pytest.mark.slow  # every graph runs in LiteRT

TYPES = ((DType.F32, False), (DType.I8, True), (DType.U8, True))
SEEDS = range(6)


def check_rewrite(graph: Graph, rewritten: Graph, inputs: Sequence[Array], relative: float = 0.0) -> None:
    """Fail unless both graphs have the same ports and compute the same elements."""
    verify_graph(rewritten)
    assert (rewritten.inputs, rewritten.outputs) == (graph.inputs, graph.outputs)
    for name in (*graph.inputs, *graph.outputs):
        assert rewritten.tensors[name] == graph.tensors[name]
    for wanted, actual in zip(evaluate(graph, inputs), evaluate(rewritten, inputs), strict=True):
        if relative and wanted.dtype.kind == "f":
            largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=0)
            np.testing.assert_allclose(actual, wanted, rtol=0, atol=relative * max(largest, 1))
        else:
            np.testing.assert_array_equal(actual, wanted)


def node_graph(
    grower: Grower, op: str, inputs: Sequence[str], attrs: Any = None, wider: float = 1.0
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


def conv_attributes(grower: Grower, **changed: Any) -> dict[str, Any]:
    attrs = {
        "strides": whole(grower, 1, 3),
        "pads_before": whole(grower, 0, 3),
        "pads_after": whole(grower, 0, 3),
        "dilations": whole(grower, 1, 2),
    }
    return {**attrs, **changed}


def conv(
    grower: Grower, group: int = 1, kernel: Sequence[int] = (3, 2), wider: float = 1.0, **changed: Any
) -> Any:
    x = grower.input((1, 7, 8, 4))
    w = grower.weights((4, *kernel, 4 // group), 0)
    inputs = [x, w, grower.bias(x, w, 4)]
    attrs = {**conv_attributes(grower, **changed), "group": group}
    return node_graph(grower, "Conv", inputs, attrs, wider)


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


def test_clamps_become_nodes_and_limits() -> None:
    for grower in growers():
        graph, inputs = conv(grower, pads_before=(0, 0), pads_after=(0, 0), wider=3.0, low=-0.37, high=0.81)
        separated = separate_clamps(graph)
        check_rewrite(graph, separated, inputs)
        rewritten = clips_as_limits(separated)
        check_rewrite(graph, rewritten, inputs)
        assert [node.op.name for node in rewritten.nodes] == ["Conv", "Maximum", "Minimum"]
        assert [refuses(node, rewritten) for node in rewritten.nodes] == [None] * 3
        check_graph(rewritten, inputs)


@pytest.mark.parametrize("bounds", [(-0.5, 0.3), (-math.inf, 0.2), (0.1, math.inf), (0.5, -0.5), (-1e9, 1e9)])
def test_clips_become_limits(bounds: tuple[float, float]) -> None:
    for grower in growers():
        attrs = {"min": bounds[0], "max": bounds[1]}
        graph, inputs = node_graph(grower, "Clip", [grower.input((3, 5))], attrs)
        rewritten = clips_as_limits(graph)
        check_rewrite(graph, rewritten, inputs)
        check_graph(rewritten, inputs)


@pytest.mark.parametrize("op", ["Concat", "Maximum", "Minimum", "Transpose", "Split"])
def test_operands_get_the_storage_of_the_result(op: str) -> None:
    attributes = {"Concat": {"axis": 1}, "Transpose": {"perm": (1, 0)}, "Split": {"axis": 1, "sizes": (2, 2)}}
    for grower in growers():
        if not grower.quantized:
            continue
        inputs = [grower.input((2, 4)) for _ in range(1 if op in ("Transpose", "Split") else 2)]
        builder, kind = grower.builder, grower.builder.ops[op]
        values = real(grower.tensor(inputs[0]), grower.samples[inputs[0]])
        storage = grower.storage(values * 1.5)
        count = 2 if op == "Split" else 1
        names = [builder.reserve_output(f"y{i}", storage) for i in range(count)]
        graph = builder.finish(builder.add(kind, inputs, attributes.get(op), outputs=names))
        arrays = grower.inputs(graph)
        rewritten = requantize_inputs(graph)
        check_rewrite(graph, rewritten, arrays)
        assert "Quantize" in [node.op.name for node in rewritten.nodes]
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


FUNCTIONS = {
    "Reciprocal": {},
    "Swish": {"alpha": 1.0},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
    "Softsign": {},
    "Elu": {"alpha": 0.6},
}


@pytest.mark.parametrize("op", FUNCTIONS)
def test_functions_become_steps(op: str) -> None:
    for seed in SEEDS:
        grower = Grower(seed, DType.F32, False)
        graph, inputs = node_graph(grower, op, [grower.input((4, 50))], FUNCTIONS[op])
        rewritten = functions_by_steps(graph)
        check_rewrite(graph, rewritten, inputs, 4e-7)
        legal = legalize(graph)
        assert [refuses(node, legal) for node in legal.nodes] == [None] * len(legal.nodes)
        check_graph(legal, inputs)


@pytest.mark.parametrize("op", ["Gelu", "HardSwish", "Sqrt", "Rsqrt", "LeakyRelu", "Neg"])
def test_functions_that_a_chip_lacks_become_steps(op: str) -> None:
    attrs = {"Gelu": {"approximate": "tanh"}, "LeakyRelu": {"alpha": 0.125}}
    for grower in growers():
        if grower.quantized and op not in ("LeakyRelu", "Neg"):
            continue
        x = grower.input((4, 50))
        grower.samples[x] = np.abs(grower.samples[x]) if "sqrt" in op.lower() else grower.samples[x]
        graph, inputs = node_graph(grower, op, [x], attrs.get(op))
        rewritten = functions_by_steps(graph, [op])
        assert op not in [node.op.name for node in rewritten.nodes]
        check_rewrite(graph, rewritten, inputs, 4e-7)
        check_graph(rewritten, inputs)


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


def test_a_softmax_moves_its_axis_to_the_end() -> None:
    for grower in growers():
        x = grower.input((2, 5, 3))
        graph, inputs = node_graph(grower, "Softmax", [x], {"axis": 1})
        check_rewrite(graph, softmax_along_last(graph), inputs)


Shift = Callable[[Graph], Graph]


@pytest.mark.parametrize(
    ("dtype", "shift", "other"),
    [(DType.I8, activations_to_uint8, DType.U8), (DType.U8, activations_to_int8, DType.I8)],
)
def test_the_sign_of_activations_changes_exactly(dtype: DType, shift: Shift, other: DType) -> None:
    changed = 0
    for seed in range(20):
        graph, inputs = random_graph(seed, dtype, True)
        rewritten = shift(graph)
        check_rewrite(graph, rewritten, inputs)
        if rewritten is graph:  # uint8 weights with a zero point of their own
            continue
        changed += 1
        inner = [
            rewritten.tensors[o] for node in rewritten.nodes for o in node.outputs if o not in graph.outputs
        ]
        weights = {
            node.inputs[1] for node in rewritten.nodes if node.op.name in ("Conv", "ConvTranspose", "MatMul")
        }
        assert all(t.dtype is other for t in inner if t.quant and t.name not in weights)
    assert changed > 3


def test_channels_that_overflow_and_round_to_nothing_become_zeros() -> None:
    for seed in SEEDS:
        grower = Grower(seed, DType.I8, True)
        x = grower.input((1, 4, 4, 3))
        quant = Quant((0.01, 1e-15), (0, 0), 0)
        w = grower.constant(
            np.stack([grower.numbers((2, 2, 3)), np.full((2, 2, 3), 1e-13)]), Storage(DType.I8, quant)
        )
        scale = grower.tensor(x).quant
        assert scale is not None
        quant = Quant(
            tuple(float(np.float32(scale.scale[0]) * np.float32(s)) for s in quant.scale), (0, 0), 0
        )
        bias = grower.constant(np.array([0.5, -1.0]), Storage(DType.I32, quant))
        attrs = conv_attributes(grower, pads_before=(0, 0), pads_after=(0, 0))
        graph, inputs = node_graph(grower, "Conv", [x, w, bias], attrs)
        refusal = refuses(graph.nodes[0], graph)
        assert refusal is not None
        assert refusal.code == "too-large"
        rewritten = silence_channels(graph)
        check_rewrite(graph, rewritten, inputs)
        check_graph(rewritten, inputs)


def test_uint8_activations_beside_int8_weights_become_int8() -> None:
    for seed in SEEDS:
        grower = Grower(seed, DType.U8, True)
        x = grower.input((1, 7, 8, 4))
        grower.dtype = DType.I8
        w = grower.weights((4, 3, 3, 4), 0)
        bias = grower.bias(x, w, 4)
        grower.dtype = DType.U8
        graph, inputs = node_graph(grower, "Conv", [x, w, bias], conv_attributes(grower))
        assert refuses(graph.nodes[0], graph) is not None
        assert refuses_after_rewrites(graph.nodes[0], graph) is None
        rewritten = legalize(graph)
        check_rewrite(graph, rewritten, inputs)
        check_graph(rewritten, inputs)


def test_weights_of_one_scale_report_their_loss() -> None:
    for seed in SEEDS:
        grower = Grower(seed, DType.I8, True)
        graph, inputs = conv(grower, pads_before=(0, 0), pads_after=(0, 0))
        rewritten, losses = weights_per_tensor(graph)
        per_channel = graph.tensors[graph.nodes[0].inputs[1]].quant
        assert per_channel is not None
        if per_channel.axis is None:
            assert losses == ()
            continue
        (loss,) = losses
        node = rewritten.nodes[0]
        before, after = (
            real(g.tensors[n.inputs[1]], g.weights[n.inputs[1]])
            for g, n in ((graph, graph.nodes[0]), (rewritten, node))
        )
        assert loss.node == graph.nodes[0].name
        assert loss.largest == pytest.approx(np.abs(after - before).max())
        assert loss.largest <= max(per_channel.scale) / 2 * (1 + 1e-6)
        assert 0 < loss.relative < 0.05
        uint8 = activations_to_uint8(rewritten)
        check_graph(uint8, inputs)
        check_rewrite(rewritten, uint8, inputs)


def test_half_precision_is_computed_in_single() -> None:
    for seed in SEEDS:
        grower = Grower(seed, DType.F16, False)
        graph, inputs = conv(grower, pads_before=(0, 0), pads_after=(0, 0))
        assert refuses(graph.nodes[0], graph) is None, "accelerators take it as it is"
        rewritten = widen_halves(graph)
        check_rewrite(graph, rewritten, inputs, 2.0**-11)
        check_graph(rewritten, inputs)


@pytest.mark.parametrize("kind", [*TYPES, (DType.I16, True)], ids=["f32", "i8", "u8", "i16"])
def test_graphs_become_legal_and_compute_the_same(kind: tuple[DType, bool]) -> None:
    for seed in range(12):
        check_legalize(seed, kind)


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", [*TYPES, (DType.I16, True)], ids=["f32", "i8", "u8", "i16"])
def test_many_graphs_become_legal_and_compute_the_same(kind: tuple[DType, bool]) -> None:
    for seed in range(int(os.environ.get("MACE_FUZZ", "1000")) // 4):
        check_legalize(1000 + seed, kind)


def check_legalize(seed: int, kind: tuple[DType, bool]) -> None:
    graph, inputs = wild_graph(seed, *kind)
    if not graph.nodes:
        return
    legal = legalize(graph)
    check_rewrite(graph, legal, inputs, 1e-5)
    stated = {
        source for node in graph.nodes if not refuses_after_rewrites(node, graph) for source in node.sources
    }
    left = [(node, refuses(node, legal)) for node in legal.nodes if stated.issuperset(node.sources)]
    assert [(str(node), str(why)) for node, why in left if why] == []
    if not any(refuses(node, legal) for node in legal.nodes):
        check_graph(legal, inputs)


def test_random_graphs_of_half_precision_run_in_single() -> None:
    for seed in range(10):
        graph, inputs = random_graph(seed, DType.F16, False)
        rewritten = widen_halves(graph)
        assert {
            t.dtype for node in rewritten.nodes if node.op.name != "Cast" for t in rewritten.outputs_of(node)
        } <= {DType.F32}
        # Sums differ by a step of half precision for each node that they go through.
        check_rewrite(graph, rewritten, inputs, 2.0**-7)
        check_graph(rewritten, inputs)


def test_a_graph_keeps_uint8_for_what_has_no_other_kernel() -> None:
    grower = Grower(3, DType.U8, True)
    x = grower.input((1, 7, 8, 4))
    grower.dtype = DType.I8
    w = grower.weights((4, 3, 3, 4), 0)
    bias = grower.bias(x, w, 4)
    grower.dtype = DType.U8
    grower.is_wild = True
    y = grower.add("Conv", [x, w, bias], conv_attributes(grower, pads_before=(1, 1), pads_after=(1, 1)))
    assert y is not None
    assert grower.add("Div", [y, grower.constant(np.abs(grower.numbers((4,))) + 1)]) is not None
    graph = grower.finish()
    assert [refuses_after_rewrites(node, graph) for node in graph.nodes] == [None, None]
    legal = legalize(graph)
    check_rewrite(graph, legal, grower.inputs(graph))
    check_graph(legal, grower.inputs(graph))


def test_what_the_format_states_stays_as_it_is() -> None:
    for dtype, quantized in TYPES:
        for seed in range(5):
            graph, _ = random_graph(seed, dtype, quantized)
            rewritten = legalize(graph)
            assert [str(node) for node in rewritten.nodes] == [str(node) for node in graph.nodes]

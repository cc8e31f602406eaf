"""Rewrites keep what a graph computes, and make of it what the format states."""

from __future__ import annotations

import math
import os
from collections.abc import Callable

import numpy as np
import pytest
from rewrite_checks import SEEDS, TYPES, check_rewrite, conv, conv_attributes, growers, node_graph
from writer_cases import random_graph
from writer_grower import Grower
from writer_oracle import check_graph, evaluate, real
from writer_wild import wild_graph

from mace_core.ir import DType, Graph, Quant, Storage
from mace_tflite_writer import refuses
from mace_tflite_writer.rewrites import (
    activations_to_int8,
    activations_to_uint8,
    clips_as_limits,
    functions_by_steps,
    legalize,
    refuses_after_rewrites,
    requantize_inputs,
    separate_clamps,
    silence_channels,
    softmax_along_last,
    weights_per_tensor,
    widen_halves,
)

pytestmark = pytest.mark.slow  # every graph runs in LiteRT


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


INTEGER_BOUNDS = [
    (0, 3e9),
    (-3e9, 5),
    (3e9, 4e9),
    (0.5, 8.5),
    (-2.5, -0.5),
    (-math.inf, 9.9),
    (2**53 + 1, 1e30),
]


@pytest.mark.parametrize("dtype", [DType.I32, DType.I64])
@pytest.mark.parametrize("bounds", INTEGER_BOUNDS)
def test_clips_of_integers_keep_bounds_that_their_type_cannot_hold(
    bounds: tuple[float, float], dtype: DType
) -> None:
    grower = Grower(0, dtype, False)
    x = grower.input((6,))
    limits = np.iinfo(dtype.numpy)
    grower.samples[x] = np.array([limits.min, -7, 0, 1, 7, limits.max], dtype.numpy)
    graph, inputs = node_graph(grower, "Clip", [x], {"min": bounds[0], "max": bounds[1]})
    legal = legalize(graph)
    assert "Clip" not in [node.op.name for node in legal.nodes]
    check_rewrite(graph, legal, inputs)
    check_graph(legal, inputs)


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


def test_a_hard_swish_of_half_precision_keeps_large_numbers() -> None:
    grower = Grower(0, DType.F16, False)
    x = grower.input((6,))
    largest = float(np.finfo(np.float16).max)
    grower.samples[x] = np.array([-largest, -10920, 10912, 10920, 32768, largest], np.float16)
    graph, inputs = node_graph(grower, "HardSwish", [x])
    rewritten = functions_by_steps(graph, ["HardSwish"])
    assert "HardSwish" not in [node.op.name for node in rewritten.nodes]
    (expected,), (actual,) = evaluate(graph, inputs), evaluate(rewritten, inputs)
    np.testing.assert_array_equal(expected, [0, 0, 10912, 10920, 32768, largest])
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("dtype", [DType.F16, DType.F32])
def test_the_steps_of_a_hard_swish_round_three_times(dtype: DType) -> None:
    grower = Grower(0, dtype, False)
    x = grower.input((4001,))
    grower.samples[x] = np.linspace(-4, 4, 4001).astype(dtype.numpy)
    graph, inputs = node_graph(grower, "HardSwish", [x])
    (expected,), (actual,) = (evaluate(g, inputs) for g in (graph, functions_by_steps(graph, ["HardSwish"])))
    error = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
    step = float(np.finfo(dtype.numpy).eps)
    # The sum rounds by at most 2 steps of 1, which the sixth makes a third. The constant, the ramp, the result
    # and that of the reference each round by half a step of numbers up to |x|.
    bound = step * np.abs(grower.samples[x].astype(np.float64)) * (1 / 3 + 4 / 2) * 1.001
    assert (error <= bound).all()


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

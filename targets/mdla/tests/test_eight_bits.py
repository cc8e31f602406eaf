"""Activations of int8 as uint8 for MDLA 1.5, where need be with weights of one scale, whose loss is reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from mdla_rule_cases import one
from operator_files import stub_network

from mace_core.api import BuildConfig, Region
from mace_core.deployment import Model
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Quant, Storage
from mace_core.lint import LintReport
from mace_core.run.reference import execute
from mace_target_mdla.acceptance import examine
from mace_target_mdla.compilers.compiled import Compiled
from mace_target_mdla.legalize import legalize_for
from mace_target_mdla.network import NetworkKind, encode_network, find_tflite
from mace_target_mdla.options import MdlaOptions
from mace_target_mdla.target import Mdla
from mace_tflite_writer import refuses, write_tflite
from mace_tflite_writer.rewrites import weights_per_tensor

import executor  # isort: skip  # operator_files puts the folder of the stub in reach
import neuron_network  # isort: skip

KEEP = MdlaOptions("1.5")
EXACT = MdlaOptions("1.5", stores_uint8=True)
LOSSY = MdlaOptions("1.5", stores_uint8=True, weights_per_tensor=True)


CHANNELS = (0.01, 0.02, 0.005, 0.01)
"""Scales of the four output channels of a convolution."""


def network(seed: int, channels: Sequence[float] | None, dtype: DType = DType.I8) -> Graph:
    """Two convolutions and a sum around an activation; channels: the scales of the weights, None for one."""
    random = np.random.default_rng(seed)
    builder = Builder("m")
    zero = 0 if dtype is DType.I16 else int(random.integers(-20, 20))
    quant = Quant.of(0.05, zero)
    x = builder.input("x", dtype, (1, 6, 5, 3), quant)
    scales = tuple(channels or (0.01,))
    weight_quant = Quant(scales, (0,) * len(scales), 0 if channels else None)

    def result(name: str) -> str:
        return builder.reserve_output(name, Storage(dtype, quant))

    def convolve(source: str, inputs: int) -> str:
        array = random.integers(-127, 128, (4, 3, 3, inputs)).astype(np.int8)
        w = builder.weight("w", array, weight_quant)
        products = tuple(float(np.float32(0.05) * np.float32(s)) for s in scales)
        bias_quant = Quant(products, (0,) * len(products), weight_quant.axis)
        bias = builder.weight("b", random.integers(-500, 500, (4,)).astype(np.int32), bias_quant)
        window = {"pads_before": (1, 1), "pads_after": (1, 1), "strides": (1, 1), "dilations": (1, 1)}
        return builder.one("Conv", [source, w, bias], window, outputs=[result("conv")])

    first = convolve(x, 3)
    second = builder.one("Relu", [convolve(first, 4)], outputs=[result("relu")])
    return builder.finish([builder.one("Add", [first, second], outputs=[result("sum")])])


def sample(graph: Graph, seed: int) -> dict[str, Array]:
    """Return inputs that use the whole range of their type."""
    tensor = graph.tensors["x"]
    limits = np.iinfo(tensor.dtype.numpy)
    random = np.random.default_rng(seed)
    return {"x": random.integers(limits.min, limits.max, tensor.shape, tensor.dtype.numpy, endpoint=True)}


def outputs(graph: Graph, inputs: dict[str, Array]) -> Array:
    return execute(graph, inputs)[graph.outputs[0]]


def stored_types(graph: Graph) -> set[DType]:
    """The types of results that no Quantize at the edge of the region gives."""
    names = [name for node in graph.nodes for name in node.outputs if name not in graph.outputs]
    return {graph.tensors[name].dtype for name in names}


@pytest.mark.parametrize("seed", range(4))
def test_weights_of_one_scale_make_uint8_exact(seed: int) -> None:
    graph = network(seed, None)
    assert [examine(node, graph, EXACT).refusal for node in graph.nodes] == [None] * len(graph.nodes)
    legal, losses = legalize_for(graph, EXACT)
    assert losses == ()
    assert stored_types(legal) == {DType.U8}
    assert [refuses(node, legal) for node in legal.nodes] == [None] * len(legal.nodes)
    inputs = sample(graph, seed)
    np.testing.assert_array_equal(outputs(legal, inputs), outputs(graph, inputs))


@pytest.mark.parametrize("seed", range(4))
def test_only_the_reported_loss_of_weights_changes_results(seed: int) -> None:
    scales = tuple(float(s) for s in np.random.default_rng(seed).uniform(0.002, 0.02, 4))
    graph = network(seed, scales)
    legal, losses = legalize_for(graph, LOSSY)
    assert stored_types(legal) == {DType.U8}
    assert {loss.node for loss in losses} == {node.name for node in graph.nodes if node.op.name == "Conv"}
    assert all(loss.largest <= max(scales) / 2 * (1 + 1e-6) for loss in losses)
    one_scale, _ = weights_per_tensor(graph)
    inputs = sample(graph, seed)
    np.testing.assert_array_equal(outputs(legal, inputs), outputs(one_scale, inputs))


def test_a_clamp_from_stored_to_real_numbers_is_left_alone() -> None:
    builder = Builder("m")
    x = builder.input("x", DType.I8, (1, 4), Quant.of(0.5))
    graph = builder.finish([builder.one("Relu", [x])])
    assert examine(graph.nodes[0], graph, EXACT).refusal is not None


@pytest.mark.parametrize("seed", range(4))
def test_a_network_with_scales_by_channel_becomes_uint8_in_the_adapter_alone(seed: int) -> None:
    """A TFLite file has scales by channel in int8 only, so the adapter converts the activations to uint8."""
    graph = network(seed, CHANNELS)
    assert [examine(node, graph, EXACT).refusal for node in graph.nodes] == [None] * len(graph.nodes)
    legal, losses = legalize_for(graph, EXACT)
    assert losses == ()
    tflite = write_tflite(legal)
    encoded = encode_network(legal, tflite, unsigned=True)
    assert find_tflite(encoded) == tflite
    adapted = stub_network(encoded)
    operands = neuron_network.Network(adapted).operands
    filters = [o for o in operands if o.type == neuron_network.T_CHANNELS]
    assert len(filters) == 2
    assert all(o.scales and o.axis == 0 for o in filters)
    signed = [o for o in operands if o.type == neuron_network.T_INT8]
    assert len(signed) == 2, "the ports alone"
    x = sample(graph, seed)["x"].tobytes()
    assert executor.run(executor.translate(adapted), x) == executor.run(tflite, x)


def test_a_compiled_file_that_must_hold_int8_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = Compiled(b"compiled", NetworkKind.DLA, "ncc-tflite", "7.0", ("ncc-tflite",))
    monkeypatch.setattr("mace_target_mdla.compilers.compile_network", lambda *_: compiled)
    config = BuildConfig("host", "host+mdla", Model("m", ()))
    for channels, notes in ((CHANNELS, 1), (None, 0)):
        part = Mdla(EXACT).compile(Region(Mdla(EXACT), network(0, channels)), config)
        assert sum("was given int8" in note for note in part.notes) == notes


def test_scales_for_each_channel_are_refused_where_a_compiler_reads_the_file() -> None:
    graph = network(0, CHANNELS)
    options = replace(EXACT, compiler="ncc")
    answers = [examine(node, graph, options) for node in graph.nodes]
    refused = [answer.refusal for answer in answers if answer.refusal]
    assert [node.op.name for node, a in zip(graph.nodes, answers, strict=True) if a.refusal] == ["Conv"] * 2
    assert {refusal.code for refusal in refused} == {"quantization"}
    assert all("state `weights: per-tensor`" in refusal.remedy for refusal in refused)


@pytest.mark.parametrize("options", [KEEP, LOSSY])
def test_without_the_wish_or_with_the_leave_nothing_is_refused(options: MdlaOptions) -> None:
    graph = network(0, CHANNELS)
    assert [examine(node, graph, options).refusal for node in graph.nodes] == [None] * len(graph.nodes)


def test_integers_stay_as_they_are_unless_the_options_ask_for_it() -> None:
    graph = network(0, CHANNELS)
    legal, losses = legalize_for(graph, KEEP)
    assert losses == ()
    assert stored_types(legal) == {DType.I8}


def test_weights_beside_sixteen_bits_stay_int8() -> None:
    graph = network(0, None, DType.I16)
    legal, _ = legalize_for(graph, LOSSY)
    assert {legal.tensors[node.inputs[1]].dtype for node in legal.nodes if node.op.name == "Conv"} == {
        DType.I8
    }
    np.testing.assert_array_equal(outputs(legal, sample(graph, 0)), outputs(graph, sample(graph, 0)))


def test_int8_weights_beside_uint8_become_uint8() -> None:
    graph = network(0, CHANNELS, DType.U8)
    legal, losses = legalize_for(graph, LOSSY)
    assert len(losses) == 2
    assert {legal.tensors[node.inputs[1]].dtype for node in legal.nodes if node.op.name == "Conv"} == {
        DType.U8
    }
    one_scale, _ = weights_per_tensor(graph)
    inputs = sample(graph, 0)
    np.testing.assert_array_equal(outputs(legal, inputs), outputs(one_scale, inputs))


def lint(options: MdlaOptions) -> LintReport:
    return Mdla(options).lint(network(0, CHANNELS))


def test_lint_shows_the_loss_of_each_node() -> None:
    results = {
        node.op: [f.sentence for f in node.findings if f.rule == "weights-per-tensor"]
        for node in lint(LOSSY).nodes
    }
    assert "% of their norm" in results["Conv"][0]
    assert results["Add"] == []
    assert lint(replace(EXACT, compiler="ncc")).nodes[0].findings[0].rule == "weights-per-channel"


def test_the_part_notes_the_loss() -> None:
    graph = network(0, CHANNELS)
    config = BuildConfig("host", "host+mdla", Model("m", ()))
    part = Mdla(LOSSY).compile(Region(Mdla(LOSSY), graph), config)
    assert sum("of their norm" in note for note in part.notes) == 2


def test_the_part_notes_what_squares_with_16_bits_overflow() -> None:
    builder = Builder("m")
    x = builder.input("x", DType.F32, (1, 4, 16))
    scale = builder.weight("scale", np.ones(16, np.float32))
    graph = builder.finish([builder.one("LayerNorm", [x, scale, scale])])
    assert [note for note in notes_of(graph) if "squares overflow" in note]


@pytest.mark.parametrize("power", [1, 2])
def test_pools_of_magnitudes_square_nothing(power: int) -> None:
    window = {"kernel": (2, 2), "strides": (2, 2), "pads_before": (0, 0), "pads_after": (0, 0)}
    graph = one("LpPool", [(1, 4, 4, 16)], {**window, "dilations": (1, 1), "p": power})
    notes = [note for note in notes_of(graph) if "squares overflow" in note]
    assert len(notes) == (1 if power == 2 else 0)


def notes_of(graph: Graph) -> tuple[str, ...]:
    """Return what the target tells of a graph as one part."""
    target = Mdla(MdlaOptions("2.0"))
    part = target.compile(Region(target, graph), BuildConfig("host", "host+mdla", Model("m", ())))
    return part.notes

"""What a build compares before it writes anything: each layer of the simulated program, and each tensor of the graph."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from automatic_graphs import Writer
from test_simulator import DEVICES, network, with_register

from mace_core.api import BuildConfig
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Graph
from mace_frontend_ai8x.network import INPUT, Layer, LayerPlacement, Network, Operation, Weights
from mace_target_max78000 import project as project_module
from mace_target_max78000.check.graph_comparison import compare_with_graph
from mace_target_max78000.check.program import check_program
from mace_target_max78000.design import DesignedNetwork, design_network
from mace_target_max78000.device import MAX78000, Chip
from mace_target_max78000.encode import synthesize
from mace_target_max78000.image import Image
from mace_target_max78000.options import Options
from mace_target_max78000.quantize.plan import QuantizationPolicy
from mace_target_max78000.target import Max78000

SAME = {"pads_before": (1, 1), "pads_after": (1, 1)}


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
@pytest.mark.parametrize(
    "options", [Options(), Options(fifo=True), Options(one_shot=True)], ids=["memory", "fifo", "one shot"]
)
def test_a_right_program_passes(device: Chip, options: Options) -> None:
    result = network(options.fifo)
    assert check_program(result, synthesize(result, options, device), options) == ()


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
@pytest.mark.parametrize("fifo", [False, True], ids=["memory", "fifo"])
@pytest.mark.parametrize("cleared", [False, True], ids=["as it is", "cleared"])
def test_a_program_without_the_packing_loader_passes(device: Chip, fifo: bool, cleared: bool) -> None:
    options = Options(mexpress=False, fifo=fifo, zero_sram=cleared)
    result = network(fifo)
    assert check_program(result, synthesize(result, options, device), options) == ()


@pytest.mark.parametrize("packing", [False, True])
def test_a_program_that_loads_weights_in_another_way_than_its_control_register_says_is_found(
    packing: bool,
) -> None:
    made, options = network(False), Options(mexpress=not packing)
    right = synthesize(made, options, MAX78000)
    assert right.image.packing is not packing
    problem = "a run begins while the packing loader is off" if packing else "begin with a byte 1"
    with pytest.raises(
        MaceError,
        match=f"the simulator cannot execute the program: weight memory of processor 0: .*{problem}",
    ):
        check_program(made, replace(right, image=replace(right.image, packing=packing)), options)


@pytest.mark.parametrize(("layer", "name"), [(0, "first"), (1, "second")])
def test_the_first_layer_that_differs_is_named(layer: int, name: str) -> None:
    result = network(False)
    right = synthesize(result, Options(), MAX78000)
    shifted: Image = with_register(
        right.image, "POST", lambda value: value ^ 1 << 13, layer, right.image.quadrants
    )
    with pytest.raises(MaceError, match=f"layer '{name}'.*nothing was written"):
        check_program(result, replace(right, image=shifted), Options())


@pytest.mark.parametrize("options", [Options(), Options(fifo=True)], ids=["memory", "fifo"])
def test_a_program_that_is_right_for_its_sample_only_is_found(options: Options) -> None:
    """Zeros tell nothing of the weights: the program runs again with random data."""
    made = network(options.fifo)
    made = replace(made, sample=np.zeros_like(made.sample))
    right = synthesize(made, options, MAX78000)
    chunk, *rest = right.image.kernels
    wrong = replace(chunk, words=(chunk.words[0] ^ 1 << 20, *chunk.words[1:]))
    assert check_program(made, right, options) == ()
    with pytest.raises(MaceError, match=r"layer '(first|second)'.*nothing was written"):
        check_program(made, replace(right, image=replace(right.image, kernels=(wrong, *rest))), options)


def test_what_the_hardware_cannot_execute_is_no_program() -> None:
    result = network(False)
    right = synthesize(result, Options(), MAX78000)
    broken = with_register(right.image, "ENA", lambda value: 0, 0, right.image.quadrants)
    with pytest.raises(MaceError, match=r"the simulator cannot execute the program: layer 0.*ENA"):
        check_program(result, replace(right, image=broken), Options())


def test_results_lie_where_they_are_unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    result = network(False)
    right = synthesize(result, Options(), MAX78000)
    blocks = [replace(block, offset=block.offset + 4) for block in target_blocks(result)]
    monkeypatch.setattr("mace_target_max78000.check.program.list_results", lambda _: blocks)
    with pytest.raises(MaceError, match=r"layer 'second'.*cnn_unload"):
        check_program(result, right, Options())


def target_blocks(made: Network) -> list[object]:
    from mace_target_max78000.encode.data_memory import list_results

    return list(list_results(made))  # type: ignore[return-value]


def graph() -> Graph:
    w = Writer()
    x = w.conv(w.input(8, 8, 4), 8, (3, 3), low=0.0, **SAME)
    return w.graph(w.conv(w.pool(x, (2, 2), 2, average=True), 5, (3, 3), power=None, **SAME))


def designed() -> DesignedNetwork:
    return design_network(graph(), [], MAX78000, Options(), QuantizationPolicy())


def test_every_tensor_is_compared_with_the_graph() -> None:
    result = designed()
    results = synthesize(result.network, result.options, MAX78000).outputs
    compare_with_graph(result.collect_results(results), result.inputs, result.options)
    for index, layer in enumerate(result.network.layers):
        wrong = [r.copy() for r in results]
        wrong[index][0, 1, 1] += 1
        with pytest.raises(
            MaceError, match=f"layer '{layer.name}': .* differ from the graph's.*nothing was written"
        ):
            compare_with_graph(result.collect_results(wrong), result.inputs, result.options)


def test_a_project_that_computes_something_else_never_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that was formed wrongly passes its own known answer, and is told by the graph."""

    def wrong(*arguments: object) -> DesignedNetwork:
        result = design_network(*arguments)  # type: ignore[arg-type]
        first, *rest = result.network.layers
        assert first.weights is not None
        other = replace(first, weights=replace(first.weights, values=first.weights.values[:, :, ::-1]))
        return replace(result, network=replace(result.network, layers=(other, *rest)))

    config = BuildConfig("cortex-m4", "max78000", Model("net", (Path("net.onnx"),)))
    Max78000().emit(graph(), config)
    monkeypatch.setattr(project_module, "design_network", wrong)
    with pytest.raises(MaceError, match=r"layer 'y'.*differ from the graph's"):
        Max78000().emit(graph(), config)


def test_a_wrong_order_of_outputs_never_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    results = project_module.TensorBinding.results
    monkeypatch.setattr(
        project_module.TensorBinding,
        "results",
        lambda self, blocks: [r[..., ::-1] for r in results(self, blocks)],
    )
    with pytest.raises(MaceError, match="the application would compute another output"):
        Max78000().emit(graph(), BuildConfig("cortex-m4", "max78000", Model("net", (Path("net.onnx"),))))


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name)
def test_kernels_of_transposed_convolutions_are_shared_as_they_are_stored(device: Chip) -> None:
    """Equal weights of a plain and a transposed convolution are not the same words: the latter are flipped."""
    values = np.random.default_rng(0).integers(-128, 128, (4, 4, 3, 3))
    kernel = {"weights": Weights(values), "kernel": (3, 3), "pad": (1, 1)}
    plain = Layer("plain", Operation.CONV2D, (INPUT,), 4, (6, 6), 4, **kernel)
    up = Layer("up", Operation.CONV_TRANSPOSE2D, (0,), 4, (6, 6), 4, output=True, **kernel)
    places = (LayerPlacement(0xF, 0xF, 0, 0x1000), LayerPlacement(0xF, 0xF, 0x1000, 0x2000))
    made = Network("two", (plain, up), places, np.random.default_rng(1).integers(-128, 128, (4, 6, 6)))
    program = synthesize(made, Options(), device)
    assert program.runs[0] != program.runs[1]
    check_program(made, program, Options())
    flipped = replace(plain, weights=Weights(values[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)))
    shared = synthesize(replace(made, layers=(flipped, up)), Options(), device)
    assert shared.runs[0] == shared.runs[1]


def test_the_input_in_memory_is_compared_too() -> None:
    result = designed()
    right = result.collect_results(synthesize(result.network, result.options, MAX78000).outputs)
    sample = right.sample.copy()
    sample.flat[5] += 1
    with pytest.raises(MaceError, match="differ from the graph's"):
        compare_with_graph(replace(right, sample=sample), result.inputs, result.options)


def test_a_mean_in_memory_must_be_exact() -> None:
    w = Writer()
    pooled = w.pool(w.conv(w.input(8, 8, 4), 8, (3, 3), **SAME), (2, 2), 2, average=True)
    result = design_network(w.graph(pooled), [], MAX78000, Options(), QuantizationPolicy())
    results = [r.copy() for r in synthesize(result.network, result.options, MAX78000).outputs]
    compare_with_graph(result.collect_results(results), result.inputs, result.options)
    results[-1][0, 1, 1] += 1
    with pytest.raises(MaceError, match="differ from the graph's"):
        compare_with_graph(result.collect_results(results), result.inputs, result.options)

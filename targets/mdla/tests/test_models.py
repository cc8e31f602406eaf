"""Real models, split between the stub of the adapter and the CPU: what the library computes is what it computes without the device."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from neuron_session import EXECUTOR, STUB, SessionProgram, build_adapter, build_session, random_inputs

from mace_core.compilation import Compilation, compile_model
from mace_core.deployment import Model, Port, load_deployment
from mace_core.ir import Graph
from mace_core.registry import Registry
from mace_core.run.reference import execute
from mace_core.testing.arrays import load_arrays
from mace_target_mdla.legalize import legalize_for
from mace_target_mdla.options import MdlaOptions
from mace_target_mdla.target import Mdla

sys.path.insert(0, str(STUB))
import executor

MODELS = Path(os.environ.get("MACE_MODELS") or Path(__file__).parents[4] / "shared" / "models")
AT_OPEN = 1
QUANTIZED = (
    "mlperf_ic/ic_int8.tflite",
    "mlperf_kws/kws_int8.tflite",
    "mlperf_ad/ad_int8.tflite",
    "coral_mobilenet_v2_1.0_224_quant/mobilenet_v2_1.0_224_quant.tflite",
)


def model_graph(name: str, folder: Path) -> Graph:
    """A model's graph as targets are asked for it."""
    path = MODELS / name
    if not path.exists():
        pytest.skip(f"no {path}; set MACE_MODELS to the folder of real models")
    text = f"library_name: session\nmodels:\n  m:\n    model_file_path: {path}\n"
    (folder / "session.yml").write_text(text, encoding="utf-8")
    registry = Registry.load()
    (model,) = load_deployment(folder / "session.yml").models
    return compile_model(model, Compilation(registry.select("host")[0], registry)).graph


def run_device(program: SessionProgram, folder: Path, rounding: str) -> tuple[bytes, ...]:
    """The outputs with the stub of the adapter; rounding: "once", as this project, or "" as LiteRT."""
    vendor = {"LD_LIBRARY_PATH": str(build_adapter(folder / "vendor"))}
    told = program.run(environment={**vendor, **EXECUTOR, "NEURON_STUB_ROUNDING": rounding})
    assert told.said("run") == ["run 0 "]
    assert any("libneuron_adapter.so" in line for line in told.said("part"))
    return told.outputs


def run_cpu(program: SessionProgram, folder: Path) -> tuple[bytes, ...]:
    """The outputs of the same library where no library of the vendor is there."""
    told = program.run(AT_OPEN, environment={"LD_LIBRARY_PATH": str(folder)})
    assert "fallback" in told.said("part")[0]
    return told.outputs


def check_cpu(name: str, device: tuple[bytes, ...], cpu: tuple[bytes, ...]) -> None:
    """Fail unless the device's outputs are those of the CPU."""
    if "mobilenet" not in name:
        assert device == cpu
        return
    # The CPU's kernels are not the references bit for bit here: 12 of 1001 outputs differ, by two steps.
    steps = np.frombuffer(device[0], np.uint8).astype(int) - np.frombuffer(cpu[0], np.uint8)
    assert np.abs(steps).max() <= 2


def run_original(name: str, graph: Graph) -> tuple[bytes, ...]:
    """What LiteRT computes of the model's own file."""
    inputs = b"".join(array.tobytes() for array in random_inputs(graph).values())
    return (executor.run((MODELS / name).read_bytes(), inputs),)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("name", QUANTIZED)
def test_quantized_models_give_the_bits_of_the_cpu(name: str, tmp_path: Path) -> None:
    """And those of LiteRT for the original file, where the stub rounds as LiteRT does."""
    graph = model_graph(name, tmp_path)
    program = build_session(graph, tmp_path / "session", Mdla(MdlaOptions("3.0")), ("-O1",))
    device = run_device(program, tmp_path, "once")
    assert list(device) == program.expected()
    cpu = run_cpu(program, tmp_path)
    check_cpu(name, device, cpu)
    assert len({*device[0]}) > 1, "outputs of one value would hide everything"
    assert run_device(program, tmp_path, "") == run_original(name, graph)


UINT8 = MdlaOptions("1.5", stores_uint8=True, weights_per_tensor=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "taken", "lost", "kept_classes"),
    [
        pytest.param("ic", (15, 15, 15), 9, (3, 3), marks=pytest.mark.exhaustive),
        ("kws", (12, 12, 12), 9, (3, 4)),
        pytest.param("ad", (10, 10, 10), 0, (3, 3), marks=pytest.mark.exhaustive),
    ],
)
def test_int8_models_as_uint8_on_mdla_1_5(
    name: str, taken: tuple[int, ...], lost: int, kept_classes: tuple[int, int], tmp_path: Path
) -> None:
    """taken: nodes with int8, with uint8, with weights of one scale too.  kept_classes: samples whose largest output stays."""
    graph = model_graph(f"mlperf_{name}/{name}_int8.tflite", tmp_path)
    exact = replace(UINT8, weights_per_tensor=False)
    reports = [Mdla(options).lint(graph) for options in (MdlaOptions("1.5"), exact, UINT8)]
    assert tuple(sum(node.is_taken for node in report.nodes) for report in reports) == taken
    legal, losses = legalize_for(graph, UINT8)
    assert len(losses) == lost
    assert all(0 < loss.relative < 0.015 for loss in losses)
    golden = load_arrays(MODELS / f"mlperf_{name}" / f"golden_{name}_int8_tflite.npz")
    samples = [key[-1] for key in golden if key.startswith("in_0_")]
    references = [golden.get(f"ref_0_{i}", golden[f"out_0_{i}"]) for i in samples]
    results = [execute(legal, {legal.inputs[0]: golden[f"in_0_{i}"]})[legal.outputs[0]] for i in samples]
    kept = sum(r.argmax() == w.argmax() for r, w in zip(results, references, strict=True))
    assert (kept, len(samples)) == kept_classes


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("name", ["ic", "kws", "ad"])
def test_uint8_models_give_the_bits_of_their_references(name: str, tmp_path: Path) -> None:
    graph = model_graph(f"mlperf_{name}/{name}_int8.tflite", tmp_path)
    program = build_session(graph, tmp_path / "session", Mdla(UINT8), ("-O1",))
    legal, _ = legalize_for(graph, UINT8)
    values = execute(legal, random_inputs(graph))
    assert run_device(program, tmp_path, "once") == tuple(values[o].tobytes() for o in graph.outputs)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("name", ["ic", "kws", "ad"])
def test_int8_models_told_as_uint8_give_the_bits_of_the_cpu(name: str, tmp_path: Path) -> None:
    file = f"mlperf_{name}/{name}_int8.tflite"
    graph = model_graph(file, tmp_path)
    exact = replace(UINT8, weights_per_tensor=False)
    program = build_session(graph, tmp_path / "session", Mdla(exact), ("-O1",))
    device = run_device(program, tmp_path, "once")
    assert list(device) == program.expected()
    assert device == run_cpu(program, tmp_path)
    assert run_device(program, tmp_path, "") == run_original(file, graph)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlperf_ic/ic_fp32.tflite", "mlperf_kws/kws_fp32.tflite"])
def test_float_models_give_the_numbers_of_the_cpu(name: str, tmp_path: Path) -> None:
    """The stub computes with 32 bits: this holds what the adapter is told, not how a device rounds."""
    graph = model_graph(name, tmp_path)
    program = build_session(graph, tmp_path / "session", Mdla(MdlaOptions("3.0")), ("-O1",))
    pairs = zip(run_device(program, tmp_path, ""), run_cpu(program, tmp_path), strict=True)
    for device, cpu in pairs:
        np.testing.assert_allclose(
            np.frombuffer(device, np.float32), np.frombuffer(cpu, np.float32), rtol=1e-4, atol=1e-5
        )


HALF = 2.0**-11
"""The rounding error of a number of 16 bits, relative to it."""


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlperf_ic/ic_fp32.tflite", "mlperf_kws/kws_fp32.tflite"])
def test_float_models_with_16_bits_stay_near_the_cpu(name: str, tmp_path: Path) -> None:
    """Every tensor between operations is rounded to 16 bits; the bound allows eight such errors of the largest output."""
    graph = model_graph(name, tmp_path)
    program = build_session(graph, tmp_path / "session", Mdla(MdlaOptions("3.0")), ("-O1",))
    program = replace(program, environment={"NEURON_STUB_HALF": "1"})
    pairs = zip(run_device(program, tmp_path, ""), run_cpu(program, tmp_path), strict=True)
    for device, cpu in pairs:
        half, single = (np.frombuffer(data, np.float32) for data in (device, cpu))
        error = np.abs(half - single).max() / np.abs(single).max()
        assert 0 < error < 8 * HALF


@pytest.mark.emulator
@pytest.mark.slow
@pytest.mark.parametrize("name", QUANTIZED)
def test_quantized_models_as_arm64(name: str, tmp_path: Path) -> None:
    from test_arm64 import LIBRARIES, arm_compiler

    compiler = arm_compiler()
    graph = model_graph(name, tmp_path)
    program = build_session(
        graph, tmp_path / "session", Mdla(MdlaOptions("2.0")), ("-O1",), compiler=compiler
    )
    vendor = build_adapter(tmp_path / "vendor", compiler=compiler)
    emulate = ("qemu-aarch64", "-L", LIBRARIES)
    device = replace(program, command=(*emulate, "-E", f"LD_LIBRARY_PATH={vendor}"))
    alone = replace(program, command=(*emulate, "-E", f"LD_LIBRARY_PATH={tmp_path}"))
    told = device.run(environment={**EXECUTOR, "NEURON_STUB_ROUNDING": "once"})
    assert told.said("run") == ["run 0 "]
    assert list(told.outputs) == program.expected()
    check_cpu(name, told.outputs, alone.run(AT_OPEN).outputs)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_network_of_uint8_with_shuffles_is_rewritten_exactly(tmp_path: Path) -> None:
    """The device's results differ by two steps of 53: the adapter states a bias's scale by a product of floats."""
    path = MODELS / "onnxzoo_shufflenetv2_int8/shufflenet-v2-12-int8.onnx"
    if not path.exists():
        pytest.skip(f"no {path}; set MACE_MODELS to the folder of real models")
    registry = Registry.load()
    model = Model("m", (path,), inputs=(Port("input", shape=(1, 3, 224, 224)),))
    graph = compile_model(model, Compilation(registry.select("host")[0], registry)).graph
    options = MdlaOptions("2.0")
    assert all(node.is_taken for node in Mdla(options).lint(graph).nodes)
    inputs = random_inputs(graph)
    legal, _ = legalize_for(graph, options)
    before, after = execute(graph, inputs), execute(legal, inputs)
    compared = 0
    for name in set(before) & set(after):
        old, new = graph.tensors[name].quant, legal.tensors[name].quant
        if old is not None and new is not None:
            steps = before[name].astype(int) - old.zero_point[0]
            np.testing.assert_array_equal(after[name].astype(int) - new.zero_point[0], steps, name)
            compared += 1
    assert compared > 130
    program = build_session(graph, tmp_path / "session", Mdla(options), ("-O1",))
    (device,) = run_device(program, tmp_path, "once")
    (output,) = graph.outputs
    actual, expected = np.frombuffer(device, np.float32), before[output].reshape(-1)
    assert actual.argmax() == expected.argmax()
    assert np.abs(actual - expected).max() < 0.02 * 2 * np.abs(expected).max()

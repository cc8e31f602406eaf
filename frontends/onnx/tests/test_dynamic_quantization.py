"""Dynamic quantization has the bytes of ONNX Runtime wherever its inputs have the same bits: in the reference and in a library.

A step of a quantized activation may differ only where a float function before it, such as Tanh, differs by a last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from quantized_cases import runtime_outputs
from runtime_cases import RuntimeCase

from mace_core.deployment import Model, Port
from mace_core.ir import Array, Graph
from mace_core.levels import with_levels
from mace_core.ops import core_ops
from mace_core.run.reference import execute
from mace_core.testing.compiled import compile_graphs, load_registry, merge, split_by_graph
from mace_core.testing.processor import levels_here
from mace_core.transforms import run_phases
from mace_core.verify import verify
from mace_frontend_onnx import Onnx

LENGTH = 4099
"""No multiple of a vector, and enough that a quotient near a half is among them."""

NUMBERS: Mapping[str, Callable[[np.random.Generator], Array]] = {
    "normal": lambda rng: rng.standard_normal(LENGTH),
    "positive": lambda rng: rng.uniform(0.5, 1, LENGTH),
    "negative": lambda rng: -rng.uniform(0.5, 1, LENGTH),
    # The zero point lies at a half, and so do quotients: half of them are rounded down, to the even one.
    "halves": lambda rng: np.concatenate(([-127.5, 127.5], rng.integers(-255, 256, LENGTH - 2) / 2)),
    "bytes": lambda rng: rng.integers(0, 256, LENGTH) / 255,
    "subnormal": lambda rng: rng.standard_normal(LENGTH) * 1e-39,
    "large": lambda rng: rng.uniform(-1, 1, LENGTH) * 1.6e38,
}
QUANTIZE = RuntimeCase("y, s, z = DynamicQuantizeLinear(x)", f"float[{LENGTH}] x", outputs="y s z")
SIZES = (33, 65, 48, 10)


def draw(name: str, seed: int) -> dict[str, Array]:
    return {"x": NUMBERS[name](np.random.default_rng(seed)).astype(np.float32)}


def write_layers(path: Path, activation: str, *, rows: int = 5, per_channel: bool = False) -> None:
    """Write Linear layers, with an activation between them, as ONNX Runtime's dynamic quantizer makes them."""
    rng = np.random.default_rng(2)
    nodes: list[NodeProto] = []
    constants, tensor = [], "x"
    for i, (depth, columns) in enumerate(pairwise(SIZES)):
        weights = rng.standard_normal((columns, depth)) / np.sqrt(depth)
        arrays = {f"w{i}": weights, f"b{i}": rng.standard_normal(columns) * 0.1}
        constants += [numpy_helper.from_array(a.astype(np.float32), n) for n, a in arrays.items()]
        result = "y" if i == len(SIZES) - 2 else f"a{i}"
        nodes.append(helper.make_node("Gemm", [tensor, *arrays], [result], f"linear{i}", transB=1))
        if result != "y":
            nodes.append(helper.make_node(activation, [result], [f"r{i}"], f"active{i}"))
            tensor = f"r{i}"
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, size])
        for name, size in (("x", SIZES[0]), ("y", SIZES[-1]))
    ]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    options = {"per_channel": per_channel, "weight_type": QuantType.QUInt8}
    quantize_dynamic(path, path, **options)


def load(path: Path) -> Graph:
    return verify(Onnx().load((path,), Model("m", (path,)), core_ops()))


def layer_inputs(count: int, rows: int = 5) -> list[dict[str, Array]]:
    rng = np.random.default_rng(7)
    return [{"x": rng.standard_normal((rows, SIZES[0])).astype(np.float32)} for _ in range(count)]


def assert_bits(actual: Mapping[str, Array], expected: Mapping[str, Array], names: Iterable[str]) -> None:
    for name in names:
        np.testing.assert_array_equal(actual[name], expected[name], err_msg=name)
        assert actual[name].dtype == expected[name].dtype, name


@pytest.mark.parametrize("name", NUMBERS)
def test_bytes_scale_and_zero_point_are_those_of_onnx_runtime(name: str, tmp_path: Path) -> None:
    graph = QUANTIZE.load(tmp_path / "m.onnx")
    for seed in range(5):
        arrays = draw(name, seed)
        assert_bits(execute(graph, arrays), runtime_outputs(tmp_path / "m.onnx", arrays), "ysz")


def test_zeros_are_quantized_to_zeros(tmp_path: Path) -> None:
    """ONNX's definition divides 0 by 255 and gives a scale of 0; ONNX Runtime gives 1: the real numbers are 0 by both."""
    graph = QUANTIZE.load(tmp_path / "m.onnx")
    values = execute(graph, {"x": np.zeros(LENGTH, np.float32)})
    assert not any(values[name].any() for name in "ysz")
    write_layers(tmp_path / "layers.onnx", "Relu")
    zeros = {"x": np.zeros((5, SIZES[0]), np.float32)}
    expected = runtime_outputs(tmp_path / "layers.onnx", zeros)
    assert_bits(execute(load(tmp_path / "layers.onnx"), zeros), expected, "y")


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("rows", [1, 5])
def test_linear_layers_have_the_bits_of_onnx_runtime(rows: int, per_channel: bool, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    write_layers(path, "Relu", rows=rows, per_channel=per_channel)
    graph = load(path)
    for arrays in layer_inputs(8, rows):
        assert_bits(execute(graph, arrays), runtime_outputs(path, arrays), "y")


LAYERS = {"x": "a0", "r0": "a1", "r1": "y"}
"""Tensors that a Linear layer reads -> its result."""


@pytest.mark.slow
def test_libraries_have_the_bits_of_onnx_runtime(tmp_path: Path) -> None:
    target = pytest.importorskip("mace_target_cpu").Cpu()
    paths = {name: tmp_path / f"{name}.onnx" for name in ("quantize", "Relu", "Tanh")}
    QUANTIZE.write(paths["quantize"])
    for name in ("Relu", "Tanh"):
        write_layers(paths[name], name)
    graphs = {name: run_phases(load(path), load_registry()).with_name(name) for name, path in paths.items()}
    graphs["Tanh"] = replace(graphs["Tanh"], outputs=("y", "a0", "r0", "a1", "r1"))
    for level in levels_here(target.known_levels("host")):
        merged = merge("merged", graphs.values())
        model = compile_graphs(with_levels(target, [level]), [merged], tmp_path / level.name)["merged"]
        for seed, (name, arrays) in enumerate(zip(NUMBERS, layer_inputs(len(NUMBERS)), strict=True)):
            inputs = {"quantize": draw(name, seed), "Relu": arrays, "Tanh": arrays}
            values = {
                f"{graph}/{port}": array for graph, ports in inputs.items() for port, array in ports.items()
            }
            results = model.run(values)
            outputs = {
                name: {**inputs[name], **split_by_graph(results, graph)} for name, graph in graphs.items()
            }
            assert_bits(outputs["quantize"], runtime_outputs(paths["quantize"], inputs["quantize"]), "ysz")
            assert_bits(outputs["Relu"], runtime_outputs(paths["Relu"], arrays), "y")
            check_each_layer(paths["Tanh"], outputs["Tanh"])


def check_each_layer(path: Path, values: Mapping[str, Array]) -> None:
    """Assert that ONNX Runtime computes the same bits from what each layer of the library has read.

    So what differs behind a Tanh comes from the Tanh, which is right to a last bit in neither.
    """
    for source, result in LAYERS.items():
        model = Model("m", (path,), inputs=(Port(source),), outputs=(Port(result),))
        run = Onnx().reference((path,), model)
        assert run is not None
        assert_bits(values, run({source: values[source]}), [result])


def test_a_last_bit_of_tanh_is_a_step_of_what_it_is_quantized_to(tmp_path: Path) -> None:
    """Why networks with Tanh, Gelu or Elu are not compared by their outputs alone."""
    graph = QUANTIZE.load(tmp_path / "m.onnx")
    arrays = {"x": np.linspace(-127, 128, LENGTH, dtype=np.float32)}
    arrays["x"][1:3] = 2.5, np.nextafter(np.float32(2.5), np.float32(3))
    stored = execute(graph, arrays)["y"].astype(int)
    assert stored[2] - stored[1] == 1
    np.testing.assert_array_equal(stored, runtime_outputs(tmp_path / "m.onnx", arrays)["y"])

"""`weights: as-stored` with weights of eight and four bits, beside ONNX Runtime and LiteRT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tflite_cases import bytes_of, expected, floats, load
from tflite_cases import stored as stored_value
from tflite_write import Step, Value, Written

from mace_core.compilation import Compilation, CompiledModel, compile_graph, compile_model
from mace_core.deployment import Model
from mace_core.emit import code
from mace_core.errors import MaceError
from mace_core.ir import Array, DType, Graph
from mace_core.registry import Registry
from mace_core.run import native
from mace_core.run.compile import shared_library
from mace_core.run.reference import execute
from mace_core.testing.compiled import host
from mace_core.testing.processor import levels_here
from mace_core.transforms import run_phases
from mace_target_cpu import Cpu

onnxruntime = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.slow

KEYS = {"weights": "as-stored"}


@dataclass(frozen=True)
class Product:
    """A product of floats [rows, depth] with weights of so many bits, a scale for each block of a column."""

    rows: int
    depth: int
    columns: int
    bits: int
    block: int
    has_zeros: bool

    def node(self, name: str) -> tuple[onnx.NodeProto, list[onnx.TensorProto]]:
        """MatMulNBits from NAME_x to NAME, and its constants."""
        rng = np.random.default_rng(self.depth + self.bits + self.block)
        blocks = -(-self.depth // self.block)
        scales = rng.uniform(0.5, 1, (self.columns, blocks)) * rng.choice([-1, 1], (self.columns, blocks))
        scales /= self.depth**0.5 * (1 << (self.bits - 1))
        shape = (self.columns, blocks, self.block * self.bits // 8)
        arrays = {"w": rng.integers(0, 256, shape, np.uint8), "s": scales.astype(np.float32)}
        if self.has_zeros:
            points = (self.columns, -(-blocks * self.bits // 8))
            arrays["z"] = rng.integers(0, 256, points, np.uint8)
        constants = [numpy_helper.from_array(a, f"{name}_{key}") for key, a in arrays.items()]
        attributes = {"K": self.depth, "N": self.columns, "bits": self.bits, "block_size": self.block}
        inputs = [f"{name}_x", *(constant.name for constant in constants)]
        node = helper.make_node("MatMulNBits", inputs, [name], domain="com.microsoft", **attributes)
        return node, constants


PRODUCTS = [
    Product(rows, depth, columns, bits, block, has_zeros)
    for bits in (4, 8)
    for rows, depth, columns, block, has_zeros in (
        (1, 301, 45, 16, False),  # the depth is odd, and no multiple of the block
        (1, 301, 45, 32, True),
        (3, 256, 64, 128, True),
        (7, 130, 77, 64, False),
        (1, 512, 33, 256, True),
    )
]


def save(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    constants: Sequence[onnx.TensorProto],
    ports: Mapping[str, Sequence[int]],
) -> None:
    """Write a model; ports: shapes by name, those of the nodes' results are outputs."""
    results = {name for node in nodes for name in node.output}
    values = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ports.items()
    }
    inputs = [value for name, value in values.items() if name not in results]
    outputs = [value for name, value in values.items() if name in results]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)


def of_onnx_runtime(path: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    options = onnxruntime.SessionOptions()
    # With optimizations it makes MatMulNBits of other products and rounds activations to eight bits for it.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def compilation() -> Compilation:
    registry = Registry.load()
    return Compilation(registry.select("host")[0], registry)


def run(compiled: CompiledModel, folder: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    level = replace(levels_here(Cpu().levels("host"))[0], available="", probe=None)
    sources = code.library("stored", [compiled.plan], [level])
    return native.load(shared_library(sources, host(), folder), "stored")[compiled.name].run(inputs)


def kernels(compiled: CompiledModel) -> list[str]:
    return [call.kernel.name for call in compiled.plan.program.calls]


def test_products_of_few_bits_as_onnx_runtime(tmp_path: Path) -> None:
    path, rng = tmp_path / "bits.onnx", np.random.default_rng(0)
    nodes, constants, ports = [], [], {}
    for number, product in enumerate(PRODUCTS):
        node, arrays = product.node(f"y{number}")
        nodes.append(node)
        constants += arrays
        ports |= {
            f"y{number}_x": (product.rows, product.depth),
            f"y{number}": (product.rows, product.columns),
        }
    save(path, nodes, constants, ports)
    inputs = {n: rng.standard_normal(s).astype(np.float32) for n, s in ports.items() if n.endswith("_x")}
    compiled = compile_model(Model("bits", (path,), keys=KEYS), compilation())
    assert kernels(compiled) == [f"matmul_i{product.bits}_f32" for product in PRODUCTS]
    actual, theirs = run(compiled, tmp_path, inputs), of_onnx_runtime(path, inputs)
    for number in range(len(PRODUCTS)):
        np.testing.assert_allclose(actual[f"y{number}"], theirs[f"y{number}"], rtol=2e-6, atol=2e-6)
    figures = compiled.report().as_json()
    assert isinstance(figures, dict)
    details = figures["weights_as_stored"]
    assert details["weights"] == len(PRODUCTS)
    assert details["widened_bytes"] == 0
    # Blocks of 16 and 32 with zero points cost most beside the integers.
    assert details["stored_bytes"] < 0.27 * details["packed_bytes"]


FORMS = {
    "blocks of int4": (TensorProto.INT4, (96, 40), (3, 40), {"axis": 0, "block_size": 32}),
    "blocks of uint4": (TensorProto.UINT4, (96, 40), (3, 40), {"axis": 0, "block_size": 32}),
    "columns of int4": (TensorProto.INT4, (96, 40), (40,), {"axis": 1}),
    "columns of int8": (TensorProto.INT8, (96, 40), (40,), {"axis": 1}),
    "a scale of uint8": (TensorProto.UINT8, (96, 40), (), {}),
    "blocks of int8": (TensorProto.INT8, (96, 40), (6, 40), {"axis": 0, "block_size": 16}),
}


@pytest.mark.parametrize("form", FORMS)
def test_dequantized_weights_as_onnx_runtime(form: str, tmp_path: Path) -> None:
    kind, shape, of_scales, attributes = FORMS[form]
    path, rng = tmp_path / "linear.onnx", np.random.default_rng(1)
    bits = 4 if "int4" in form else 8
    low = 0 if "uint" in form else -(1 << (bits - 1))
    integers, zeros = (rng.integers(low, low + (1 << bits), s) for s in (shape, of_scales))
    scales = (rng.uniform(0.5, 1, of_scales) / (10 << (bits - 1))).astype(np.float32)
    constants = [
        helper.make_tensor("w", kind, shape, integers.reshape(-1).tolist()),
        numpy_helper.from_array(scales, "s"),
        helper.make_tensor("z", kind, of_scales, zeros.reshape(-1).tolist()),
    ]
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["real"], **attributes),
        helper.make_node("MatMul", ["x", "real"], ["y"]),
    ]
    save(path, nodes, constants, {"x": (1, shape[0]), "y": (1, shape[1])})
    compiled = compile_model(Model("linear", (path,), keys=KEYS), compilation())
    assert kernels(compiled) == [f"matmul_i{bits}_f32"]
    inputs = {"x": rng.standard_normal((1, shape[0])).astype(np.float32)}
    actual, theirs = run(compiled, tmp_path, inputs), of_onnx_runtime(path, inputs)
    np.testing.assert_allclose(actual["y"], theirs["y"], rtol=2e-6, atol=2e-6)


def test_four_bits_where_their_range_counts_are_refused(tmp_path: Path) -> None:
    """A QuantizeLinear saturates at the ends of the type of its zero point, which the IR has not."""
    path = tmp_path / "down.onnx"
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    constants = [
        numpy_helper.from_array(np.float32(0.1), "s"),
        helper.make_tensor("z", TensorProto.INT4, (), [1]),
    ]
    save(path, nodes, constants, {"x": (4,), "y": (4,)})
    with pytest.raises(MaceError, match="its elements are of type INT4, which is not supported"):
        compile_model(Model("down", (path,)), compilation())


def fully_connected(rows: int) -> Written:
    weights = stored_value(bytes_of(40, 120), np.linspace(0.001, 0.002, 40).tolist())
    values = [
        Value("x", DType.F32, (rows, 120)),
        Value.constant("w", np.asarray(weights.data), weights.scales),
    ]
    step = Step("FULLY_CONNECTED", ["x", "w", ""], ["y"], ("FullyConnectedOptions", {}))
    return Written([*values, Value("y")], [step], ["x"], ["y"])


def convolution(size: int) -> Written:
    weights = stored_value(bytes_of(24, size, size, 48), np.linspace(0.001, 0.002, 24).tolist())
    values = [
        Value("x", DType.F32, (1, 9, 8, 48)),
        Value.constant("w", np.asarray(weights.data), weights.scales),
    ]
    bias = Value.constant("b", floats(24))
    options = {"Padding": 0, "StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    step = Step("CONV_2D", ["x", "w", "b"], ["y"], ("Conv2DOptions", options))
    return Written([*values, bias, Value("y")], [step], ["x"], ["y"])


HYBRIDS = {
    "one row": (fully_connected(1), ["matmul_i8_f32"]),
    "rows": (fully_connected(6), ["matmul_i8_f32"]),
    "pixels": (convolution(1), ["widen_i8", "conv_f32"]),
    "windows": (convolution(3), ["widen_i8", "conv_f32"]),
}


@pytest.mark.parametrize("name", HYBRIDS)
def test_dynamic_range_models_of_tflite(name: str, tmp_path: Path) -> None:
    """LiteRT quantizes activations to eight bits at run time, so it is only near to products of floats."""
    written, names = HYBRIDS[name]
    registry = Registry.load()
    graph: Graph = run_phases(load(tmp_path, written), registry)
    compiled = compile_graph(Model("hybrid", (), keys=KEYS), graph.with_name("hybrid"), compilation())
    assert [kernel for kernel in kernels(compiled) if not kernel.startswith("copy")] == names
    inputs = {"x": floats(*graph.tensors["x"].shape, seed=2)}
    (y,) = run(compiled, tmp_path, inputs).values()
    np.testing.assert_allclose(y, execute(graph, inputs)["y"], rtol=2e-6, atol=2e-6)
    theirs = expected(tmp_path, inputs)["y"]
    depth = graph.tensors["x"].shape[-1] * (9 if name == "windows" else 1)
    # Activations are rounded to steps of 1 / 127, each multiplied by a weight of 127 * 0.002 at most, both
    # spread evenly: six standard deviations of such a sum.
    deviation = 1 / 127 / 12**0.5 * 127 * 0.002 / 3**0.5 * depth**0.5
    assert np.abs(y - theirs).max() < 6 * deviation
    assert np.abs(theirs).max() > 0.5

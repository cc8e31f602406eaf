"""What ONNX Runtime's quantizer writes of small networks: read, computed as ONNX Runtime does, and nothing newly refused.

Results are one step of the output from ONNX Runtime's at most. We round the exact result of a node once; ONNX Runtime
computes quotients in single precision, so that a result beside a half goes either way, adds odd zero points before it
rounds averages, and its QLinearSoftmax sums an exponential of its own. Networks are so shallow that a step of an inner
tensor is no whole step of the output.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from quantized_cases import runtime_outputs
from quantizer_networks import FORMS, NETWORKS, Form

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Array, Graph
from mace_core.ops import core_ops
from mace_core.run.reference import execute
from mace_core.testing.compiled import load_registry, run_merged
from mace_core.testing.processor import levels_here
from mace_core.transforms import run_phases
from mace_core.verify import verify
from mace_frontend_onnx import Onnx

UNWRITTEN = {
    # Of ONNX Runtime 1.32: it forgets to quantize the operands of a Where without a constant.
    ("where", "qoperator"): "unknown initializers",
    # It takes scales of a bias from an axis of the weights that has one for each of a group.
    ("transposed_groups", "qdq"): "could not be broadcast",
}
"""Networks and kinds of forms that the quantizer fails to write -> its message; the others of the kind are tried."""

REFUSED = {
    # ONNX Runtime has no kernel for it either.
    ("cubic", "qoperator"): "cubic interpolation of [iu]8; export the model with floats around it",
}
"""Networks and kinds of forms that we refuse -> the message."""

TIES = ("average", "same_average", "bilinear")
"""Networks with results that lie at a half very often."""

CONSTANT = ("table",)
"""Networks with a product of constants: ONNX Runtime computes it before it makes int8 weights precise."""

SOFTMAX = ("softmax", "attention")
"""Networks of which ONNX Runtime's optimizer makes another computation; few results, so that one is a large share."""

WEIGHTS = {
    "QLinearConv": (3, 5),
    "QLinearMatMul": (3, 5),
    "QGemm": (3, 5),
    "ConvInteger": (1, 3),
    "MatMulInteger": (1, 3),
}
"""Operators of integers -> the positions of their weights and of the zero points of these."""


def step_of(path: Path) -> float | None:
    """Return the step of the output of a quantized model; None where that is computed as floats."""
    graph = onnx.load(path).graph
    (last,) = (node for node in graph.node if "y" in node.output)
    if last.op_type != "DequantizeLinear":
        return None
    (scale,) = (tensor for tensor in graph.initializer if tensor.name == last.input[1])
    return float(numpy_helper.to_array(scale))


def assert_near(actual: Array, expected: Array, step: float | None, share: float) -> None:
    """Assert that results are a step apart at most, floats equal but for their last bits, and that few differ.

    share: of the results, how many may differ.
    """
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    apart = np.abs(actual.astype(np.float64) - expected)
    rounding = 2e-6 * np.abs(expected).max()
    assert apart.max() <= (step or 0) + rounding, f"{apart.max()} apart, a step is {step}"
    assert (apart > rounding).mean() <= share


def optimized_share(name: str) -> float:
    """Return how many of a network's results may be a step from those of ONNX Runtime's optimized session."""
    return 0.35 if name in TIES + SOFTMAX else 0.05


def write_unsigned(path: Path) -> Path:
    """Write a twin of a model beside it whose int8 weights are uint8, 128 higher with their zero points; return its path.

    It computes the same, and without what ONNX Runtime does on x86-64 processors without VNNI: sums of two products
    of uint8 and int8 saturate there at 16 bits, products of uint8 are computed in full.
    """
    model = onnx.load(path)
    signed = {t.name for t in model.graph.initializer if t.data_type == onnx.TensorProto.INT8}
    # ONNX Runtime multiplies int8 with int8 alone, and in full. The third input is the zero point of activations.
    products = [node for node in model.graph.node if node.op_type in WEIGHTS and node.input[2] not in signed]
    raised = {node.input[position] for node in products for position in WEIGHTS[node.op_type]}
    for tensor in model.graph.initializer:
        if tensor.name in raised & signed:
            unsigned = (numpy_helper.to_array(tensor).astype(np.int16) + 128).astype(np.uint8)
            tensor.CopyFrom(numpy_helper.from_array(unsigned, tensor.name))
    twin = path.with_suffix(".unsigned.onnx")
    onnx.save(model, twin)
    return twin


def optimized_outputs(name: str, path: Path, arrays: Mapping[str, Array]) -> Array:
    """Return what ONNX Runtime computes of a network as a deployment is validated against it."""
    return runtime_outputs(write_unsigned(path) if name in CONSTANT else path, arrays)["y"]


def literal_outputs(path: Path, arrays: Mapping[str, Array]) -> Array:
    """Return what ONNX Runtime computes without optimization: every operator by itself, as ONNX defines it."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(write_unsigned(path), options)
    return np.asarray(session.run(["y"], dict(arrays))[0])


def load(name: str, form: Form, path: Path) -> Graph | None:
    """Return the graph of a network in a form; None where the quantizer or the frontend refuses as listed."""
    try:
        form.write(NETWORKS[name], path)
    except (RuntimeError, ValueError) as error:
        if not re.search(UNWRITTEN.get((name, form.kind), "no network is listed"), str(error)):
            raise
        return None
    message = REFUSED.get((name, form.kind))
    if message is None:
        return verify(Onnx().load((path,), Model("m", (path,)), core_ops()))
    with pytest.raises(MaceError, match=message):
        Onnx().load((path,), Model("m", (path,)), core_ops())
    return None


@pytest.mark.sampled(every=7)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_network_is_a_step_from_onnx_runtime(form: Form, name: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    graph = load(name, form, path)
    if graph is None:
        return
    target = pytest.importorskip("mace_target_cpu").Cpu()
    transformed = run_phases(graph, load_registry())
    assert [refusal for node in transformed.nodes if (refusal := target.refuses(node, transformed))] == []
    step = step_of(path)
    for seed in (10, 11):
        arrays = NETWORKS[name].draw(seed)
        for values in (execute(graph, arrays), execute(transformed, arrays)):
            assert_near(values["y"], optimized_outputs(name, path, arrays), step, optimized_share(name))
            assert_near(values["y"], literal_outputs(path, arrays), step, 0.35 if name in TIES else 0.02)


@pytest.mark.slow
@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_library_is_a_step_from_onnx_runtime(form: Form, tmp_path: Path) -> None:
    target = pytest.importorskip("mace_target_cpu").Cpu()
    graphs, arrays, paths = [], {}, {name: tmp_path / f"{name}.onnx" for name in NETWORKS}
    for name, path in paths.items():
        graph = load(name, form, path)
        if graph is not None:
            graphs.append(run_phases(graph, load_registry()).with_name(name))
            arrays[name] = NETWORKS[name].draw(12)
    results = run_merged(target, graphs, tmp_path, arrays, levels_here(target.levels("host"))[:1])
    for name, outputs in results.items():
        expected = optimized_outputs(name, paths[name], arrays[name])
        assert_near(outputs["y"], expected, step_of(paths[name]), optimized_share(name))

"""Half precision as storage: what is stored so, and how far results are from those of floats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from opencl_device import load_on_device, measure_error, require_device

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_core.program import Program
from mace_core.run.reference import execute
from mace_core.testing.compiled import random_inputs
from mace_target_opencl.enqueue import render_program
from mace_target_opencl.half_storage import store_in_half
from mace_target_opencl.options import OpenclOptions
from mace_target_opencl.target import Opencl

ATTRS = {"strides": (1, 1), "pads_before": (1, 1), "pads_after": (1, 1), "dilations": (1, 1)}


def network(largest_weight: float = 1.0) -> Graph:
    """Return two convolutions with a pool between them, and a softmax over a reshape of the last."""
    builder, rng = Builder("network"), np.random.default_rng(0)
    x = builder.input("x", DType.F32, (1, 8, 8, 4))
    first = rng.uniform(-1, 1, (8, 3, 3, 4)).astype(np.float32)
    first[0, 0, 0, 0] = largest_weight
    second = rng.uniform(-1, 1, (4, 3, 3, 8)).astype(np.float32)
    bias = builder.weight("bias", rng.uniform(-1, 1, 8).astype(np.float32))
    y = builder.one("Conv", [x, builder.weight("first", first), bias], ATTRS)
    y = builder.one("MaxPool", [y], {**ATTRS, "kernel": (3, 3)})
    y = builder.one("Conv", [builder.one("Tanh", [y]), builder.weight("second", second)], ATTRS)
    y = builder.one("Reshape", [y], {"shape": (16, 16)})
    return builder.finish([builder.one("Softmax", [y], {})])


def lower_in_half(graph: Graph) -> Program:
    return store_in_half(Opencl().lower(graph))


def test_inner_tensors_and_filters_are_stored_in_half_and_ports_are_not() -> None:
    graph = network()
    program = lower_in_half(graph)
    types = {name: tensor.dtype for name, tensor in program.tensors.items()}
    ports = (*graph.inputs, *graph.outputs)
    assert {types[name] for name in ports} == {DType.F32}
    assert {dtype for name, dtype in types.items() if name not in ports} == {DType.F16}
    stored = {name: weight.make().dtype for name, weight in program.weights.items()}
    assert stored == {"first_packed": np.float16, "second_packed": np.float16, "bias": np.float32}
    for weight in program.weights.values():
        assert weight.make().nbytes == weight.bytes


def test_kernels_load_and_store_halves_without_an_extension_of_the_device() -> None:
    source = render_program(call.kernel for call in lower_in_half(network()).calls)
    # NVIDIA's compiler makes four loads or stores of vloada_half4 and vstorea_half4.
    assert "mace_widen(*(__global const ushort4 *)" in source
    assert "= mace_narrow(v)" in source
    assert "vloada_half4" not in source
    assert "cl_khr_fp16" not in source


def test_a_weight_that_half_precision_cannot_hold_stays_a_float() -> None:
    weights = lower_in_half(network(1e5)).weights
    assert weights["first_packed"].make().dtype == np.float32
    assert weights["second_packed"].make().dtype == np.float16


@pytest.mark.device
@pytest.mark.exhaustive
def test_results_are_near_those_of_floats(tmp_path: Path) -> None:
    require_device()
    graph = network()
    target = Opencl(OpenclOptions(storage="f16"))
    model = load_on_device([graph], tmp_path, target)["network"]
    inputs = random_inputs(graph)
    expected, outputs = execute(graph, inputs), model.run(inputs)
    errors = [measure_error(outputs[name], expected[name]) for name in graph.outputs]
    # Different, or half precision was not in use; a rounding is 2 ** -11, and the sums have 72 terms.
    assert 1e-6 < max(errors) < 1e-2

"""Fused ops: names of their operands, the types that their steps take, and what the kernels compute."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from opencl_device import load_on_device, require_device

from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph
from mace_core.ops import core_ops
from mace_core.program import Call
from mace_core.run.reference import execute
from mace_core.testing.compiled import assert_close, merge, random_inputs
from mace_core.testing.samples import samples
from mace_target_opencl.enqueue import MAX_OPERANDS, operands_of, render_kernel
from mace_target_opencl.fusion import MAX_STEPS
from mace_target_opencl.steps import ElementStep
from mace_target_opencl.target import Opencl
from mace_target_opencl.types import value_type

POINT = {"strides": (1, 1), "pads_before": (0, 0), "pads_after": (0, 0), "dilations": (1, 1)}
SHAPE = (2, 4, 4, 8)


def build_chain(ops: Sequence[tuple[str, bool]]) -> Graph:
    """Return a convolution and ops on its result, each with an input of its own.

    ops: name, and whether the result so far is the op's second operand.
    """
    builder = Builder("chain")
    w = builder.weight("w", np.random.default_rng(0).normal(0, 0.3, (8, 1, 1, 8)).astype(np.float32))
    y = builder.one("Conv", [builder.input("x", DType.F32, SHAPE), w], POINT)
    for number, (op, is_second) in enumerate(ops):
        other = builder.input(f"s{number}", DType.F32, SHAPE)
        y = builder.one(op, [other, y] if is_second else [y, other])
    return builder.finish([y])


def build_selections(count: int) -> Graph:
    """Return a convolution and selections behind it, each with a condition and another operand."""
    builder = Builder("selections")
    w = builder.weight("w", np.random.default_rng(0).normal(0, 0.3, (8, 1, 1, 8)).astype(np.float32))
    y = builder.one("Conv", [builder.input("x", DType.F32, SHAPE), w], POINT)
    for number in range(count):
        condition = builder.input(f"c{number}", DType.BOOL, SHAPE)
        y = builder.one("Where", [condition, y, builder.input(f"s{number}", DType.F32, SHAPE)])
    return builder.finish([y])


def test_a_kernel_has_no_more_steps_than_small_devices_have_registers_for() -> None:
    calls = Opencl().lower(build_chain([("Add", False)] * (MAX_STEPS + 3))).calls
    assert [len(call.kernel.params["steps"]) for call in calls] == [MAX_STEPS, 3]


def test_a_kernel_has_no_more_operands_than_devices_take() -> None:
    counts = [len(operands_of(call)) for call in Opencl().lower(build_selections(14)).calls]
    assert len(counts) == 2
    # A selection is a step with two operands, so that one place of the most may stay empty.
    assert counts[0] in (MAX_OPERANDS, MAX_OPERANDS - 1)


CHAINS = (
    [("Mul", False), ("Add", True)],
    [("Mul", True), ("Sub", True), ("Add", False), ("Sub", True), ("Mul", False)],
)
"""A fusion through the first operand and then one through the second gave both the same name once."""


def lower_to_one(graph: Graph) -> Call:
    (call,) = Opencl().lower(graph).calls
    return call


def compare(graph: Graph, inputs: dict[str, Array], folder: Path) -> None:
    """Assert that the device computes what the references do."""
    expected, outputs = execute(graph, inputs), load_on_device([graph], folder)[graph.name].run(inputs)
    for name in graph.outputs:
        assert_close(outputs[name], expected[name], name)


@pytest.mark.parametrize("ops", CHAINS, ids=len)
def test_operands_of_fused_ops_have_names_of_their_own(ops: Sequence[tuple[str, bool]]) -> None:
    call = lower_to_one(build_chain(ops))
    names = [operand.name for operand in operands_of(call)]
    assert len(names) == len(call.reads) + 1 == len(ops) + 3
    assert len({*names}) == len(names), names


@pytest.mark.device
@pytest.mark.sampled(cases="5")
@pytest.mark.parametrize("ops", CHAINS, ids=len)
def test_chains_of_fused_ops_compute_what_the_references_do(
    ops: Sequence[tuple[str, bool]], tmp_path: Path
) -> None:
    require_device()
    graph = build_chain(ops)
    compare(graph, random_inputs(graph), tmp_path)


BELOW_ZERO = (("Relu", {}), ("Abs", {}), ("Cast", {"to": "f32"}))
TOTALS = ("CumSum", "CumProd")
SIGNED = {DType.I8: "char", DType.I16: "short", DType.I32: "int", DType.I64: "long"}


def build_totals(dtype: DType) -> Graph:
    """Return running totals and products of signed integers, each with one op that sees their sign."""
    builder, results = Builder(f"totals_{dtype.value}"), []
    x = builder.input("x", dtype, (3, 5))
    for op, attrs in BELOW_ZERO:
        results += [builder.one(op, [builder.one(total, [x], {"axis": 1})], attrs) for total in TOTALS]
    return builder.finish(results)


@pytest.mark.parametrize("dtype", SIGNED)
def test_an_op_behind_a_running_total_takes_the_type_of_its_result(dtype: DType) -> None:
    calls = Opencl().lower(build_totals(dtype)).calls
    assert len(calls) == len(BELOW_ZERO) * len(TOTALS), "each op is fused"
    for call in calls:
        source = render_kernel(call.kernel)
        assert f"const {SIGNED[dtype]} v0 = a;" in source
        assert f"{call.kernel.name}_0({SIGNED[dtype]} x) {{" in source


@pytest.mark.device
@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", [DType.I8, DType.I32])
def test_ops_behind_running_totals_compute_what_the_references_do(dtype: DType, tmp_path: Path) -> None:
    require_device()
    # Sums of both signs, and some that wrap.
    x = np.random.default_rng(0).integers(-100, 100, (3, 5)).astype(dtype.numpy)
    compare(build_totals(dtype), {"x": x}, tmp_path)


TYPES = (DType.BOOL, DType.I8, DType.I32, DType.F16, DType.F32)


@pytest.mark.slow
def test_the_last_step_of_every_kernel_has_the_type_of_its_result() -> None:
    """A fused op takes what the last step computed for what a kernel of its own would load."""
    target, count = Opencl(), 0
    for graph in chain.from_iterable(samples(name, TYPES, [DType.I8]) for name in core_ops()):
        if any(target.refuses(node, graph) for node in graph.nodes):
            continue
        for call in target.lower(graph).calls:
            if call.kernel.params["is_fusible"]:
                kind = value_type(operands_of(call)[-1].type)
                assert find_last_type(call) == kind, (graph.name, call.kernel.template.name)
                count += 1
    assert count > 400


def find_last_type(call: Call) -> object:
    """Return the type of what a kernel stores, before it is stored."""
    steps: Sequence[ElementStep] = call.kernel.params["steps"]  # type: ignore[assignment]
    if steps:
        return steps[-1].type
    return call.kernel.params.get("value_type") or value_type(operands_of(call)[-1].type)


def build_halves() -> dict[str, Graph]:
    """Return graphs in which half precision lies between two kernels, as numbers to one or to both."""
    graphs = {}
    for name in ("moved", "joined", "chosen", "rounded"):
        builder = Builder(name)
        x = builder.input("x", DType.F32 if name in ("chosen", "rounded") else DType.F16, (4, 6))
        if name == "moved":
            y = builder.one("Transpose", [x], {"perm": (1, 0)})
        elif name == "joined":
            y = builder.one("Concat", [x, builder.input("z", DType.F16, (4, 2))], {"axis": 1})
        else:
            y = builder.one("Cast", [x], {"to": "f16"})
        if name == "chosen":
            condition, other = builder.input("c", DType.BOOL, (4, 6)), builder.input("z", DType.F16, (4, 6))
            y = builder.one("Where", [condition, y, other])
        else:
            y = builder.one("Cast", [y], {"to": "f32"})
        graphs[name] = builder.finish([y])
    return graphs


HALVES = build_halves()


@pytest.mark.parametrize("graph", HALVES.values(), ids=HALVES)
def test_half_precision_between_two_ops_is_stored(graph: Graph) -> None:
    first, second = Opencl().lower(graph).calls
    assert first.writes[0] in second.reads


@pytest.mark.device
@pytest.mark.exhaustive
def test_half_precision_between_two_ops_is_what_the_references_have(tmp_path: Path) -> None:
    require_device()
    graph = merge("halves", HALVES.values())
    compare(graph, random_inputs(graph), tmp_path)

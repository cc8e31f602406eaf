"""Kernels and calls that lowerings make: names, sizes, operands, and the source."""

from __future__ import annotations

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_core.program import Program
from mace_core.testing.compiled import case
from mace_target_opencl.enqueue import MAX_OPERANDS, render_kernel, render_program
from mace_target_opencl.target import Opencl
from mace_target_opencl.types import MAX_ELEMENTS


def lower(graph: Graph) -> Program:
    for node in graph.nodes:
        assert Opencl().refuses(node, graph) is None, node
    return Opencl().lower(graph)


def build_pair(first: str, second: str, shape: tuple[int, ...] = (6, 10)) -> Graph:
    """Return a graph of two ops that do not depend on each other, so that none is fused."""
    builder = Builder("pair")
    x, y = (builder.input(name, DType.F32, shape) for name in ("x", "y"))
    return builder.finish([builder.one(first, [x]), builder.one(second, [y])])


def test_equal_kernels_have_one_name_and_others_another() -> None:
    same, other = lower(build_pair("Relu", "Relu")), lower(build_pair("Relu", "Abs"))
    assert len({call.kernel.name for call in same.calls}) == 1
    assert len({call.kernel.name for call in other.calls}) == 2
    assert render_program(call.kernel for call in same.calls).count("__kernel") == 1


def test_a_call_covers_its_result_with_groups_that_divide_the_global_size() -> None:
    (call,) = lower(case("add", "Add", [np.zeros((7, 10), np.float32)] * 2)).calls
    total, local = call.args["global_size"], call.args["local_size"]
    assert isinstance(total, tuple)
    assert isinstance(local, tuple)
    assert len(total) == len(local) == 3
    assert total[0] >= 70
    assert all(size % group == 0 for size, group in zip(total, local, strict=True))
    assert f"reqd_work_group_size({local[0]}, 1, 1)" in render_kernel(call.kernel)


def test_operands_are_pairs_in_the_order_of_the_call() -> None:
    (call,) = lower(case("add", "Add", [np.zeros((7, 10), np.float32)] * 2)).calls
    assert (*call.reads, *call.writes) == ("x0", "x1", "y0")
    source = render_kernel(call.kernel)
    arguments = source[source.index("__kernel") :].partition("(")[2]
    names = [word for word in arguments.replace("*", " ").replace(",", " ").split() if word.endswith("_base")]
    assert names[:3] == ["x_base", "other_base", "y_base"]
    assert "const ulong y_offset" in arguments


def test_nothing_is_computed_for_a_result_without_elements() -> None:
    assert lower(case("relu", "Relu", [np.zeros((3, 0), np.float32)])).calls == ()


def test_constants_are_exact_floats_and_no_doubles() -> None:
    (call,) = lower(case("leaky", "LeakyRelu", [np.zeros(4, np.float32)], {"alpha": 0.1})).calls
    assert "x * 0.1f" in render_kernel(call.kernel)


def test_an_op_is_a_step_of_the_kernel_before_it() -> None:
    builder = Builder("chain")
    x, z = (builder.input(name, DType.F32, (1, 4, 4, 8)) for name in ("x", "z"))
    w = builder.weight("w", np.ones((8, 1, 1, 8), np.float32))
    attrs = {"strides": (1, 1), "pads_before": (0, 0), "pads_after": (0, 0), "dilations": (1, 1)}
    y = builder.one("Tanh", [builder.one("Sub", [z, builder.one("Conv", [x, w], attrs)])])
    (call,) = lower(builder.finish([y])).calls
    assert call.reads == ("x", "w_packed", "z")
    # The result of the convolution is the second operand of the difference.
    source = render_kernel(call.kernel)
    assert "float x, float y) { return x - y; }" in source
    assert source.index("return x - y") < source.index("return tanh(x)")


def test_an_op_that_reads_only_a_part_is_a_kernel_of_its_own() -> None:
    builder = Builder("part")
    x = builder.input("x", DType.F32, (8, 4))
    cut = {"starts": (0, 0), "sizes": (4, 4), "steps": (1, 1)}
    part = builder.one("Slice", [builder.one("Relu", [x])], cut)
    assert len(lower(builder.finish([part])).calls) == 2


def test_many_tensors_are_joined_in_several_steps() -> None:
    count = 2 * MAX_OPERANDS
    program = lower(case("concat", "Concat", [np.zeros((2, 3), np.float32)] * count, {"axis": 1}))
    assert len(program.calls) == 3
    assert max(len(call.reads) + len(call.writes) for call in program.calls) <= MAX_OPERANDS


def test_arithmetic_of_doubles_which_devices_need_not_have_is_refused() -> None:
    graph = case("sum", "Add", [np.zeros(4, np.float64)] * 2)
    refusal = Opencl().refuses(graph.nodes[0], graph)
    assert refusal is not None
    assert refusal.code == "dtype"
    assert "cast it to f32" in refusal.remedy


def test_a_tensor_of_more_elements_than_kernels_count_is_refused() -> None:
    builder = Builder("large")
    x = builder.input("x", DType.U8, (MAX_ELEMENTS // 2, 3))
    graph = builder.finish([builder.one("Cast", [x], {"to": "i8"})])
    refusal = Opencl().refuses(graph.nodes[0], graph)
    assert refusal is not None
    assert refusal.code == "too-large"

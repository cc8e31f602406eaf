"""Element-wise ops in the epilogue of convolutions and matrix products: fewer calls, the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mace_core.attributes import Attribute
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph, Quant, Storage
from mace_core.levels import Level
from mace_core.run.reference import execute
from mace_core.testing.compiled import assert_close, random_inputs, run_merged
from mace_core.testing.processor import levels_here
from mace_core.testing.separate_calls import SeparateCalls
from mace_target_cpu import Cpu
from mace_target_cpu.isa import X86


class Separate(SeparateCalls, Cpu):
    """The CPU target, except that it fuses no element-wise op into another call."""


class Net:
    """A graph that begins with one convolution or matrix product."""

    def __init__(self, name: str) -> None:
        self.new = Builder(name)
        self.rng = np.random.default_rng(len(name))

    def weight(self, *shape: int, scale: float = 1.0) -> str:
        return self.new.weight("w", (scale * self.rng.standard_normal(shape)).astype("f4"))

    def input(self, *shape: int) -> str:
        return self.new.input(f"x{len(self.new.inputs)}", DType.F32, shape)

    def conv(self, results: int, *, kernel: int = 1, group: int = 1) -> str:
        x = self.input(2, 7, 5, 6)
        pads = (kernel // 2,) * 2
        attrs = {
            "strides": (1, 1),
            "pads_before": pads,
            "pads_after": pads,
            "dilations": (1, 1),
            "group": group,
        }
        operands = [x, self.weight(results, kernel, kernel, 6 // group), self.weight(results)]
        return self.new.one("Conv", operands, attrs)

    def then(self, op: str, x: str, *others: str, **attrs: Attribute) -> str:
        return self.new.one(op, [x, *others], attrs)

    def operand(self, like: str) -> str:
        return self.input(*self.new.shape(like))


def sum_behind_conv(net: Net, results: int, **attrs: Attribute) -> str:
    y = net.conv(results, **attrs)
    return net.then("Relu", net.then("Add", y, net.operand(y)))


def sum_of_two_convs(net: Net) -> str:
    """The sum becomes the epilogue of the later of both convolutions."""
    first = net.conv(19)
    return net.then("Add", first, net.conv(19, kernel=3))


def difference_to_other(net: Net) -> str:
    y = net.conv(33)
    return net.then("Sub", y, net.operand(y))


def sum_of_other(net: Net) -> str:
    """The operands of Add are exchanged; the same kernel computes both orders."""
    y = net.conv(3)
    return net.then("Relu", net.then("Add", net.operand(y), y))


def difference_from_other(net: Net) -> str:
    y = net.conv(33)
    return net.then("Sub", net.operand(y), y)


def functions_in_a_row(net: Net) -> str:
    y = net.conv(17)
    y = net.then("LeakyRelu", net.then("Add", y, net.operand(y)), alpha=0.1)
    return net.then("Clip", net.then("HardSwish", y), min=-0.2, max=1.5)


def gate_behind_product(net: Net) -> str:
    y = net.then("MatMul", net.input(3, 5, 8), net.weight(8, 37))
    return net.then("Sigmoid", net.then("Add", net.operand(y), y))


def sum_behind_products(net: Net) -> str:
    """The product and the sum round one after the other; a compiler must not contract them to a multiply-add."""
    y = net.conv(40, kernel=3)
    y = net.then("HardSwish", net.then("Mul", y, net.operand(y)))
    return net.then("Add", y, net.operand(y))


def deep(net: Net) -> str:
    """The depth exceeds one block, so partial sums are stored in the result and loaded again."""
    x = net.input(1, 4, 4, 600)
    attrs = {"strides": (1, 1), "pads_before": (1, 1), "pads_after": (1, 1), "dilations": (1, 1)}
    y = net.new.one("Conv", [x, net.weight(64, 3, 3, 600, scale=0.01)], attrs)
    return net.then("Add", y, net.operand(y))


def repeating_operands(net: Net) -> str:
    """One number for all, one row for all rows, and one element of each."""
    y = net.then("MatMul", net.input(3, 9, 8), net.weight(8, 37))
    y = net.then("Mul", y, net.input(1))
    y = net.then("Sub", net.input(37), y)
    return net.then("Relu", net.then("Add", y, net.operand(y)))


def products_of_integers(net: Net, rows: int = 45, columns: int = 150) -> str:
    """Of bytes that are quantized while the network runs, as ONNX Runtime's quantizer leaves them."""
    a = net.new.input("bytes", DType.U8, (1, rows, 33))
    b = net.new.weight("matrix", net.rng.integers(-128, 128, (33, columns)).astype(np.int8))
    zero = net.new.input("zero", DType.U8, ())
    sums = net.new.one("Cast", [net.new.one("MatMulInteger", [a, b, zero])], {"to": "f32"})
    real = net.then("Mul", sums, net.input(1))
    return net.then("Gelu", net.then("Add", net.input(columns), real))


def sums_of_integers(net: Net) -> str:
    a = net.new.input("bytes", DType.I8, (4, 20))
    b = net.new.weight("matrix", net.rng.integers(0, 256, (20, 5)).astype(np.uint8))
    return net.new.one("Cast", [net.new.one("MatMulInteger", [a, b])], {"to": "f32"})


CASES = {
    "repeating": (repeating_operands, ["matmul_f32_mul_one_sub_from_columns_add_relu"]),
    "integers": (products_of_integers, ["matmul_integer_u8_f32_mul_one_add_columns_gelunone"]),
    "row": (
        lambda net: products_of_integers(net, 1, 20),
        ["matmul_integer_u8_f32_mul_one_add_gelunone"],
    ),
    "sums": (sums_of_integers, ["matmul_integer_i8_f32"]),
    "narrow": (lambda net: sum_behind_conv(net, 3), ["conv_f32_add_relu"]),
    "wide": (lambda net: sum_behind_conv(net, 70, kernel=3), ["conv_f32_add_relu"]),
    "groups": (lambda net: sum_behind_conv(net, 22, group=2), ["conv_f32_add_relu"]),
    "two": (sum_of_two_convs, ["conv_f32", "conv_f32_add"]),
    "difference": (difference_to_other, ["conv_f32_sub"]),
    "order": (sum_of_other, ["conv_f32_add_relu"]),
    "swapped": (difference_from_other, ["conv_f32_sub_from"]),
    "chain": (functions_in_a_row, ["conv_f32_add_leakyrelu_hardswish_clip"]),
    "product": (gate_behind_product, ["matmul_f32_add_sigmoid"]),
    "products": (sum_behind_products, ["conv_f32_mul_hardswish_add"]),
    "deep": (deep, ["conv_f32_add"]),
}


def build(name: str) -> Graph:
    net = Net(name)
    return net.new.finish([CASES[name][0](net)])


def list_kernels(graph: Graph, target: Cpu | None = None) -> list[str]:
    return [call.kernel.name for call in (target or Cpu()).lower(graph).calls]


@pytest.mark.parametrize("name", CASES)
def test_products_take_in_what_follows(name: str) -> None:
    assert list_kernels(build(name)) == CASES[name][1]


@pytest.mark.slow
def test_epilogues_compute_the_same_bits(tmp_path: Path) -> None:
    graphs = [build(name) for name in CASES]
    inputs = {graph.name: random_inputs(graph, 5) for graph in graphs}
    fused, separate = (
        run_merged(target, graphs, tmp_path / target.__class__.__name__, inputs)
        for target in (Cpu(), Separate())
    )
    for graph in graphs:
        for name, expected in execute(graph, inputs[graph.name]).items():
            if name in graph.outputs:
                np.testing.assert_array_equal(fused[graph.name][name], separate[graph.name][name])
                assert_close(fused[graph.name][name], expected, f"{graph.name}/{name}")


def run_fused(
    graphs: Sequence[Graph], inputs: dict[str, dict[str, Array]], folder: Path, level: Level
) -> dict[str, dict[str, Array]]:
    """Return the outputs of graphs, which must have the bits of separate calls."""
    fused, separate = (
        run_merged(target, graphs, folder / target.__class__.__name__, inputs, [level])
        for target in (Cpu(), Separate())
    )
    for graph in graphs:
        for name in graph.outputs:
            np.testing.assert_array_equal(fused[graph.name][name], separate[graph.name][name], graph.name)
    return fused


@pytest.mark.slow
@pytest.mark.parametrize("level", levels_here(X86), ids=lambda level: str(level.name))
def test_every_level_converts_sums_of_integers(level: Level, tmp_path: Path) -> None:
    graphs = [build(name) for name in ("repeating", "integers", "row", "sums")]
    inputs = {graph.name: random_inputs(graph, 6) for graph in graphs}
    run_fused(graphs, inputs, tmp_path, level)


def stored_sum(name: str, dtype: DType, operands: str, *, group: int = 1, results: int = 37) -> Graph:
    """A convolution of eight bits, and the sum with another tensor; operands: "yr" or "ry", the order of both."""
    new, rng = Builder(name), np.random.default_rng(7)
    lowest = np.iinfo(dtype.numpy).min
    x = new.input("x", dtype, (2, 6, 5, 8), Quant.of(0.05, lowest + 3))
    r = new.input("r", dtype, (2, 6, 5, results), Quant.of(0.033, lowest + 90))
    array = rng.integers(-127, 128, (results, 3, 3, 8 // group)).astype(np.int8)
    w = new.weight("w", array, Quant(tuple(rng.uniform(0.002, 0.006, results).tolist()), (0,) * results, 0))
    attrs = {
        "strides": (1, 1),
        "pads_before": (1, 1),
        "pads_after": (1, 1),
        "dilations": (1, 1),
        "group": group,
    }
    y = new.reserve_output("y", Storage(dtype, Quant.of(0.11, lowest + 120)))
    new.add("Conv", [x, w], {**attrs, "low": -3.0, "high": 6.0}, outputs=[y])
    total = new.reserve_output("sum", Storage(dtype, Quant.of(0.09, lowest + 101)))
    order = [y, r] if operands == "yr" else [r, y]
    return new.finish(new.add("Add", order, outputs=[total]))


STORED = [
    stored_sum("bytes", DType.I8, "yr"),
    stored_sum("unsigned", DType.U8, "yr", results=70),
    stored_sum("other_order", DType.I8, "ry"),
    stored_sum("stored_groups", DType.U8, "ry", group=2, results=38),
]


@pytest.mark.exhaustive
def test_sums_of_stored_integers_keep_both_roundings(tmp_path: Path) -> None:
    assert [list_kernels(graph)[0] for graph in STORED] == [
        "conv_quantized_add_i8_i8_i8",
        "conv_quantized_add_u8_u8_u8",
        "conv_quantized_add_i8_i8_i8_swapped",
        "conv_quantized_add_u8_u8_u8_swapped",
    ]
    rng, inputs = np.random.default_rng(3), {}
    for graph in STORED:
        tensors = [graph.tensors[name] for name in graph.inputs]
        limits = np.iinfo(tensors[0].dtype.numpy)
        inputs[graph.name] = {
            t.name: rng.integers(limits.min, limits.max + 1, t.shape, limits.dtype) for t in tensors
        }
    fused, separate = (
        run_merged(target, STORED, tmp_path / target.__class__.__name__, inputs)
        for target in (Cpu(), Separate())
    )
    for graph in STORED:
        sums = fused[graph.name]["sum"]
        np.testing.assert_array_equal(sums, separate[graph.name]["sum"])
        expected = execute(graph, inputs[graph.name])["sum"]
        assert np.abs(sums.astype(int) - expected).max() <= 1


def test_a_sum_of_another_type_stays_apart() -> None:
    graph = stored_sum("wide", DType.I8, "yr")
    tensors = {**graph.tensors, "sum": replace(graph.tensors["sum"], dtype=DType.I16)}
    assert list_kernels(replace(graph, tensors=tensors))[0] == "conv_quantized"


def test_sources_and_numbers_of_both_stay() -> None:
    (call,) = Cpu().lower(build("chain")).calls
    assert len(call.sources) == 5
    assert [value for name, value in call.args.items() if name[-2:] in ("_1", "_3")] == [0.1, -0.2, 1.5]


def keep_apart(graph_of: Any, kernels: Sequence[str]) -> None:
    net = Net("apart")
    assert list_kernels(net.new.finish(graph_of(net))) == kernels


def test_a_result_that_others_read_is_stored() -> None:
    def outputs(net: Net) -> list[str]:
        y = net.conv(8)
        return [y, net.then("Relu", y)]

    keep_apart(outputs, ["conv_f32", "relu_f32"])

    def readers(net: Net) -> list[str]:
        y = net.conv(8)
        return [net.then("Add", net.then("Relu", y), net.then("Sigmoid", y))]

    keep_apart(readers, ["conv_f32", "relu_f32", "chain_f32_sigmoid_add"])


def test_an_operand_that_is_longer_than_a_row_is_no_epilogue() -> None:
    def plane(net: Net) -> list[str]:
        y = net.then("MatMul", net.input(2, 3, 8), net.weight(8, 4))
        return [net.then("Add", y, net.input(3, 4))]

    keep_apart(plane, ["matmul_f32", "add_f32"])

    def column(net: Net) -> list[str]:
        y = net.then("MatMul", net.input(2, 3, 8), net.weight(8, 4))
        return [net.then("Add", y, net.input(3, 1))]

    keep_apart(column, ["matmul_f32", "add_f32"])

    def longer_result(net: Net) -> list[str]:
        y = net.then("MatMul", net.input(1, 8), net.weight(8, 4))
        return [net.then("Add", y, net.input(3, 4))]

    keep_apart(longer_result, ["matmul_f32", "add_f32"])


def test_operands_of_other_shapes_are_no_epilogue() -> None:
    keep_apart(lambda net: [net.then("Add", net.conv(8), net.input(8))], ["conv_f32", "add_f32"])
    keep_apart(lambda net: [net.then("Mul", net.conv(8), net.weight(1))], ["conv_f32", "mul_f32"])

    def square(net: Net) -> list[str]:
        y = net.conv(8)
        return [net.then("Add", y, y)]

    keep_apart(square, ["conv_f32", "add_f32"])


def test_a_result_that_waits_for_a_later_operand_is_stored() -> None:
    """If the convolution ran where the late operand exists, its input would stay in memory until then."""

    def outputs(net: Net) -> list[str]:
        early = net.conv(8)
        late = net.then("Exp", net.then("ReduceMean", net.input(2, 7, 5, 8, 3), axes=(4,), keepdims=False))
        return [net.then("Add", early, late)]

    keep_apart(outputs, ["conv_f32", "reducemean_f32", "chain_f32_exp_add"])

"""Element-wise ops of floats one behind the other: one call, the same bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_epilogue import run_fused

from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph
from mace_core.levels import Level
from mace_core.run.reference import execute
from mace_core.testing.compiled import random_inputs, run_merged
from mace_core.testing.processor import levels_here
from mace_target_cpu import Cpu
from mace_target_cpu.isa import GENERIC, X86

SHAPE = (3, 5, 7)
LEVELS = levels_here((*X86, *GENERIC))


def begin(name: str, *shapes: tuple[int, ...]) -> tuple[Builder, list[str]]:
    new = Builder(name)
    return new, [new.input(f"x{i}", DType.F32, shape) for i, shape in enumerate(shapes)]


def quantize(name: str, dtype: DType) -> Graph:
    """As QuantizeLinear whose scale and zero point are computed."""
    new, (x, scale, zero) = begin(name, SHAPE, (1,), ())
    y = new.one("Add", [new.one("Round", [new.one("Div", [x, scale])]), zero])
    limits = np.iinfo(dtype.numpy)
    y = new.one("Clip", [y], {"min": float(limits.min), "max": float(limits.max)})
    return new.finish([new.one("Cast", [y], {"to": dtype.value})])


def numbers_first() -> Graph:
    """The operand with all elements is the second one of each op."""
    new, (x, one, other) = begin("numbers_first", SHAPE, (1, 1, 1), SHAPE)
    y = new.one("Div", [other, new.one("Sub", [one, x])])
    return new.finish([new.one("LeakyRelu", [y], {"alpha": 0.1})])


def square() -> Graph:
    new, (x,) = begin("square", SHAPE)
    return new.finish([new.one("Sigmoid", [new.one("Mul", [x, x])])])


def single() -> Graph:
    new, (x, one) = begin("single", (1,), (1,))
    return new.finish([new.one("Tanh", [new.one("Add", [x, one])])])


GRAPHS = {
    "chain_f32_div_one_round_add_one_clip_u8": quantize("to_u8", DType.U8),
    "chain_f32_div_one_round_add_one_clip_i8": quantize("to_i8", DType.I8),
    "chain_f32_div_one_round_add_one_clip_i16": quantize("to_i16", DType.I16),
    "chain_f32_sub_from_one_div_from_leakyrelu": numbers_first(),
    "chain_f32_mul_sigmoid": square(),
    "chain_f32_add_tanh": single(),
}


def make_inputs(graph: Graph) -> dict[str, Array]:
    inputs = random_inputs(graph, 4)
    for array in inputs.values():
        # Halves are ties where the scale is one; a few elements are none that an integer holds.
        array *= 37.0
        flat = array.reshape(-1)
        flat[: flat.size // 2] = np.rint(flat[: flat.size // 2]) + 0.5
        if flat.size > 50:
            flat[20:28] = [np.nan, np.inf, -np.inf, -0.0, 8388609.0, -3e38, 2147483648.0, 0.49999997]
    if "x1" in inputs and inputs["x1"].size == 1:
        inputs["x1"][...] = 1.0
    return inputs


@pytest.mark.parametrize("name", GRAPHS)
def test_elementwise_ops_are_one_call(name: str) -> None:
    assert [call.kernel.name for call in Cpu().lower(GRAPHS[name]).calls] == [name]


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS, ids=lambda level: str(level.name))
def test_a_chain_computes_the_bits_of_its_ops(level: Level, tmp_path: Path) -> None:
    graphs = list(GRAPHS.values())
    inputs = {graph.name: make_inputs(graph) for graph in graphs}
    results = run_fused(graphs, inputs, tmp_path, level)
    # Both may be wrong together: what is quantized is also the reference's.
    for graph in graphs:
        expected = execute(graph, inputs[graph.name])
        for name in graph.outputs:
            if expected[name].dtype.kind != "f":
                np.testing.assert_array_equal(results[graph.name][name], expected[name], graph.name)


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS, ids=lambda level: str(level.name))
def test_round_has_the_bits_of_numpy(level: Level, tmp_path: Path) -> None:
    new, (x,) = begin("nearest", (5, 21))
    graph = new.finish([new.one("Round", [x])])
    borders = np.array([0.0, 0.5, 1.5, 2.5, 0.49999997, 8388607.5, 8388608.0, 8388609.0, 3e38, np.inf], "f4")
    near = np.concatenate(
        [borders, np.nextafter(borders, np.float32(0)), np.nextafter(borders, np.float32(np.inf))]
    )
    numbers = np.concatenate([near, -near, np.linspace(-9, 9, 44, dtype="f4"), [np.nan]]).astype("f4")
    found = run_merged(Cpu(), [graph], tmp_path, {"nearest": {"x0": numbers.reshape(5, 21)}}, [level])
    bits, expected = found["nearest"][graph.outputs[0]].reshape(-1), np.rint(numbers)
    np.testing.assert_array_equal(bits, expected)
    np.testing.assert_array_equal(np.signbit(bits[:-1]), np.signbit(expected[:-1]), "the sign of zeros")


def test_a_result_of_integers_ends_a_chain() -> None:
    new, (x,) = begin("ends", SHAPE)
    y = new.one("Cast", [new.one("Cast", [new.one("Exp", [x])], {"to": "u8"})], {"to": "f32"})
    names = [call.kernel.name for call in Cpu().lower(new.finish([new.one("Neg", [y])])).calls]
    assert names == ["chain_f32_exp_u8", "cast_u8_f32", "neg_f32"]


def test_a_row_for_all_rows_is_no_operand_of_a_chain() -> None:
    new, (x, row) = begin("row", SHAPE, (7,))
    y = new.one("Abs", [new.one("Add", [new.one("Exp", [x]), row])])
    assert [call.kernel.name for call in Cpu().lower(new.finish([y])).calls] == [
        "exp_f32",
        "add_f32",
        "abs_f32",
    ]

"""Elementwise ops and conversions of quantized tensors against the exact meaning: real numbers, rounded once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from quantized_graphs import I8, I16, POOL, U8, check, graph, storage

from mace_core.graph_builder import Builder
from mace_core.integer_tables import compute_table
from mace_core.ir import DType, Graph, Quant
from mace_core.levels import Level
from mace_core.lowering import Lowering
from mace_core.run.reference import execute
from mace_core.testing.compiled import run_merged
from mace_target_cpu import Cpu
from mace_target_cpu.isa import X86
from mace_target_cpu.quantized.table import find_line

pytestmark = pytest.mark.slow


def test_elementwise(tmp_path: Path) -> None:
    shapes = [(1, 5, 37), (37,)]
    graphs = [
        graph(
            "add",
            "Add",
            [(I8, shapes[0]), (storage(DType.I8, 0.0311, -5), shapes[1])],
            {},
            storage(DType.I8, 0.0817, 1),
        ),
        graph("mul", "Mul", [(U8, shapes[0]), (U8, shapes[0])], {}, storage(DType.U8, 0.2, 30)),
        graph("sub", "Sub", [(I8, shapes[1]), (I8, shapes[0])], {}, I8),
        graph("wide", "Add", [(I16, shapes[0]), (I16, shapes[0])], {}, storage(DType.I16, 0.002)),
        graph("mixed", "Mul", [(None, shapes[0]), (I8, (1,))], {}, None),
        graph("tanh", "Tanh", [(I8, shapes[0])], {}, storage(DType.I8, 1 / 128)),
        graph("sigmoid", "Sigmoid", [(U8, shapes[0])], {}, storage(DType.U8, 1 / 256)),
        graph("leaky", "LeakyRelu", [(I8, shapes[0])], {"alpha": 0.1}, I8),
    ]
    kernels = check(graphs, tmp_path)
    assert kernels["tanh"] == "table_8"


def test_every_byte_is_looked_up(tmp_path: Path) -> None:
    """At each place of a vector, and behind the last whole one."""
    every = np.concatenate([np.roll(np.arange(-128, 128), shift) for shift in range(32)])
    every = np.append(every, [127, -128, 0]).astype(np.int8)
    graphs = [
        graph("tanh", "Tanh", [(I8, every.shape)], {}, storage(DType.I8, 1 / 128)),
        graph("elu", "Elu", [(U8, every.shape)], {}, U8),
    ]
    inputs = {"tanh": {"x0": every}, "elu": {"x0": every.view(np.uint8)}}
    results = run_merged(Cpu(), graphs, tmp_path, inputs)
    for g in graphs:
        (name,) = g.outputs
        np.testing.assert_array_equal(results[g.name][name], execute(g, inputs[g.name])[name], g.name)


LINES = {
    "narrower": ("Quantize", storage(DType.I8, 0.05, 3), storage(DType.U8, 0.07, 100)),
    "saturated": ("Quantize", storage(DType.U8, 0.3, 200), storage(DType.I8, 0.011, -128)),
    "ties": ("Quantize", storage(DType.U8, 0.5, 7), storage(DType.U8, 1.0, 3)),
    "tiny": ("Quantize", storage(DType.I8, 1e-6, -128), storage(DType.I8, 40.0, 127)),
    "clamped": ("Relu", storage(DType.I8, 0.02, -7), storage(DType.I8, 0.013, -60)),
}
"""Changes of scale: the op, and how its operand and its result are stored."""


def make_line(name: str) -> Graph:
    """The graph of one change of scale of every byte, at each place of a vector and behind the last whole one."""
    op, stored, result = LINES[name]
    return graph(name, op, [(stored, (8193,))], {}, result)


@pytest.mark.parametrize("levels", [None, (X86[-1],)], ids=["best", "without_vectors"])
def test_lines_are_their_tables(levels: Sequence[Level] | None, tmp_path: Path) -> None:
    every = np.concatenate([np.roll(np.arange(256, dtype=np.uint8), shift) for shift in range(32)])
    graphs = [make_line(name) for name in LINES]
    for g in graphs:
        assert [call.kernel.name for call in Cpu().lower(g).calls] == ["table_8_line"], g.name
    inputs = {
        g.name: {"x0": np.append(every, np.uint8(255)).view(g.tensors["x0"].dtype.numpy)} for g in graphs
    }
    results = run_merged(Cpu(), graphs, tmp_path, inputs, levels)
    for g in graphs:
        (name,) = g.outputs
        np.testing.assert_array_equal(results[g.name][name], execute(g, inputs[g.name])[name], g.name)


def test_a_table_that_bends_is_no_line() -> None:
    """Also if it differs from a line at one value, or is beyond the floats that hold each integer."""
    change = make_line("narrower")
    x, y = change.tensors["x0"], change.tensors["y"]
    line = compute_table(change.nodes[0], Lowering(change), x)
    assert find_line(x, y, line)
    for place in (0, 77, 255):
        bent = line.copy()
        bent[place] ^= 1
        assert find_line(x, y, bent) is None
    assert find_line(x, replace(y, quant=Quant.of(1e-9, 100)), line) is None


GATE = storage(DType.I16, 2.0**-12)
UNIT = storage(DType.I16, 2.0**-15)


def test_curves_of_sixteen_bits_are_less_than_a_step_off(tmp_path: Path) -> None:
    """Every value that the type can store is tested."""
    every = np.arange(-(1 << 15), 1 << 15).astype(np.int16)
    shape = every.shape
    graphs = [
        graph("tanh", "Tanh", [(GATE, shape)], {}, UNIT),
        graph("sigmoid", "Sigmoid", [(GATE, shape)], {}, UNIT),
        graph("narrow", "Sigmoid", [(GATE, shape)], {}, storage(DType.U8, 1 / 256)),
        graph("elu", "Elu", [(I16, shape)], {}, I16),
        graph("gelu", "Gelu", [(I16, shape)], {}, I16),
        graph("sharp", "Sigmoid", [(storage(DType.I16, 1.0), shape)], {}, UNIT),
        graph("root", "Sqrt", [(I16, shape)], {}, I16),
    ]
    results = run_merged(Cpu(), graphs, tmp_path, {g.name: {"x0": every} for g in graphs})
    for g in graphs:
        calls = [c.kernel.name for c in Cpu().lower(g).calls]
        assert (calls[0][:6] == "curve_") == (g.name not in ("sharp", "root")), calls
        if g.name == "root":
            continue  # none of negative numbers
        exact = execute(
            replace(g, tensors={n: t.real if n in g.outputs else t for n, t in g.tensors.items()}),
            {"x0": every},
        )["y"]
        made, found = g.tensors["y"].quant, results[g.name]["y"]
        assert made is not None
        limits = np.iinfo(found.dtype)
        steps = np.clip(exact.astype(np.float64) / made.scale[0] + made.zero_point[0], limits.min, limits.max)
        assert np.abs(found - steps).max() < 1.001, g.name  # float32 has no more of a step


def test_conversions(tmp_path: Path) -> None:
    shape = (3, 77)
    graphs = [
        graph("to_i8", "Quantize", [(None, shape)], {}, I8),
        graph("to_u8", "Quantize", [(None, shape)], {}, U8),
        graph("to_i16", "Quantize", [(None, shape)], {}, I16),
        graph("to_i32", "Quantize", [(None, shape)], {}, storage(DType.I32, 1e-8)),
        graph("again", "Quantize", [(I8, shape)], {}, U8),
        graph("narrow", "Quantize", [(I16, shape)], {}, I8),
        graph("back", "Dequantize", [(U8, shape)], {}, None),
        graph("back_wide", "Dequantize", [(I16, shape)], {}, None),
        graph("back_i32", "Dequantize", [(storage(DType.I32, 1e-9), shape)], {}, None),
    ]
    check(graphs, tmp_path)


def test_numbers_that_are_stored_alike_stay_as_they_are(tmp_path: Path) -> None:
    shape = (3, 7)
    pair = [(I8, shape), (I8, (7,))]
    graphs = [
        *(
            graph(op.lower(), op, pair, {}, None)
            for op in ("Equal", "Less", "LessEqual", "Greater", "GreaterEqual")
        ),
        graph("apart", "Less", [(I8, shape), (U8, shape)], {}, None),
        graph("max_pool_16", "MaxPool", [(I16, (1, 6, 7, 5))], POOL, I16),
    ]
    new = Builder("where")
    names = [
        new.input("c", DType.BOOL, shape),
        *(new.input(f"x{i}", DType.I8, shape, I8.quant) for i in range(2)),
    ]
    graphs.append(new.finish(new.add("Where", names, outputs=[new.reserve_output("y", I8)])))
    kernels = check(graphs, tmp_path)
    assert {n for n, k in kernels.items() if "quantize" in k} == {"apart"}

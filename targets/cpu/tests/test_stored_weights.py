"""Products of floats with weights that a library stores as integers of eight and four bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from emulated_levels import SEEN_FLOATS
from test_workers import shuffled

from mace_core.compact_weights import compact_weights
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Graph
from mace_core.levels import Level, with_levels
from mace_core.numerics import Numerics
from mace_core.program import Program
from mace_core.run.reference import execute
from mace_core.testing.compiled import (
    OPTIMIZATION,
    compile_graphs,
    merge,
    plan_graph,
    random_inputs,
    run_merged,
    split_by_graph,
)
from mace_core.testing.processor import levels_here
from mace_core.testing.sanitized import Sanitized
from mace_core.tuning import NO_TUNING, Tuning
from mace_target_cpu import Cpu, is_x86
from mace_target_cpu.isa import GENERIC, X86
from mace_target_cpu.lower.widening import FEW_ROWS

LEVELS = levels_here((*X86, *GENERIC) if is_x86("host") else Cpu().levels("host"))
TOLERANCE = 2e-6
"""Of a result, in parts of the sum of its products' magnitudes: what sums of floats of depths below 300 lose."""


class Storing(Cpu):
    """The CPU target as a model with `weights: as-stored` gets it."""

    def lower(self, graph: Graph, abi: str = "host", tuning: Tuning = NO_TUNING) -> Program:
        return compact_weights(super().lower(graph, abi, tuning), self.widening_kernels()).program


def weights(depth: int, columns: int, bits: int, block: int, zeros: bool) -> Array:
    """Floats [depth, columns] of random integers, a scale for each column of a block."""
    rng = np.random.default_rng(depth + columns + bits + block)
    blocks = -(-depth // block)
    scales = rng.uniform(0.5, 1, (blocks, columns)) * rng.choice([-1, 1], (blocks, columns))
    scales /= (1 << (bits - 1)) * depth**0.5
    points = rng.integers(0, 1 << bits, scales.shape) if zeros else np.full(scales.shape, 1 << (bits - 1))
    of_block = np.arange(depth) // block
    integers = rng.integers(0, 1 << bits, (depth, columns)) - points[of_block]
    return integers.astype(np.float32) * scales.astype(np.float32)[of_block]


def product(name: str, left: Sequence[int], stored: Array, *, tail: bool = False) -> Graph:
    """A product with constant weights, with bias, limits and an epilogue where `tail` is set."""
    new = Builder(name)
    operands = [new.input("x", DType.F32, tuple(left)), new.weight("w", stored)]
    if not tail:
        return new.finish([new.one("MatMul", operands)])
    bias = np.linspace(-1, 1, stored.shape[-1]).astype(np.float32)
    y = new.one("MatMul", [*operands, new.weight("bias", bias)], {"low": -1.5, "high": 1.0})
    # One number, one row for all rows, and all elements.
    number, row = new.weight("number", bias[:1]), new.weight("row", bias[::-1].copy())
    for operand in (number, row, new.input("other", DType.F32, new.shape(y))):
        y = new.one("Add", [y, operand])
    return new.finish([new.one("Sigmoid", [y])])


def products() -> list[Graph]:
    """Few and many rows; odd depths and columns, one block and several with a rest, batches and epilogues."""
    graphs = []
    for bits in (8, 4):
        forms = ((101, 149, 101, False), (77, 30, 16, True), (130, 97, 32, False), (64, 300, 64, True))
        for depth, columns, block, zeros in forms:
            stored = weights(depth, columns, bits, block, zeros)
            name = f"b{bits}_{depth}"
            graphs += [product(f"{name}_{rows}", (rows, depth), stored) for rows in (1, 2, 3, 4, 5, 37)]
            graphs += [product(f"{name}_tail{n}", (n, depth), stored, tail=True) for n in (1, 3, 19)]
        batch = np.stack([weights(48, 33, bits, 16, zeros=True), weights(48, 33, bits, 16, zeros=False)])
        graphs += [product(f"b{bits}_batch{n}", (3, 2, n, 48), batch) for n in (2, 9)]
        graphs += [product(f"b{bits}_vector", (77,), weights(77, 30, bits, 16, zeros=True))]
    return graphs


def rows_of(graph: Graph) -> int:
    shape = graph.tensors["x"].shape
    return shape[-2] if len(shape) > 1 else 1


def magnitude(graph: Graph, inputs: dict[str, Array]) -> Array:
    """The sums of the magnitudes of all products, and 1 for what is added to them."""
    return np.abs(inputs["x"]).astype(np.float64) @ np.abs(graph.weights["w"]) + 1


@pytest.mark.slow
@pytest.mark.sampled(cases="avx2|avx512vnni|neon")
@pytest.mark.parametrize("level", LEVELS, ids=lambda level: str(level.name))
def test_products_at_every_level(level: Level, tmp_path: Path) -> None:
    graphs = products()
    inputs = {graph.name: random_inputs(graph, 3) for graph in graphs}
    stored = run_merged(Storing(), graphs, tmp_path / "stored", inputs, [level])
    floats = run_merged(Cpu(), graphs, tmp_path / "floats", inputs, [level])
    for graph in graphs:
        (name,) = graph.outputs
        actual = stored[graph.name][name]
        expected = execute(graph, inputs[graph.name])[name]
        error = np.abs(actual - expected) / magnitude(graph, inputs[graph.name])
        assert error.max() < TOLERANCE, graph.name
        # Panels that are widened hold the weights themselves, so many rows have the bits of floats.
        if rows_of(graph) > FEW_ROWS:
            assert actual.tobytes() == floats[graph.name][name].tobytes(), graph.name


def test_each_product_is_one_call_and_has_no_floats() -> None:
    for graph in products():
        program = Storing().lower(graph)
        bits = int(graph.name[1])
        assert [call.kernel.name.startswith(f"matmul_i{bits}_f32") for call in program.calls] == [True]
        kinds = {weight.make().dtype.name for weight in program.weights.values()}
        assert kinds <= {"int8", "uint8", "float32"}
        packed = sum(weight.bytes for weight in Cpu().lower(graph).weights.values())
        assert sum(weight.bytes for weight in program.weights.values()) < packed * (
            0.4 if bits == 8 else 0.33
        )


@pytest.mark.slow
def test_other_calls_read_widened_weights(tmp_path: Path) -> None:
    """A convolution reads the floats that it would have read, so its bits are the same."""
    new = Builder("convs")
    x = new.input("x", DType.F32, (1, 9, 8, 12))
    for results, bits, size in ((24, 8, 3), (40, 4, 1), (37, 8, 1)):
        depth = size * size * new.shape(x)[-1]
        filters = weights(depth, results, bits, depth, zeros=bits == 4).T
        w = new.weight("w", np.ascontiguousarray(filters).reshape(results, size, size, -1))
        attrs = dict.fromkeys(("pads_before", "pads_after"), (size // 2,) * 2)
        x = new.one("Conv", [x, w], {"strides": (1, 1), "dilations": (1, 1), "group": 1, **attrs})
    graph = new.finish([x])
    kernels = [call.kernel.name for call in Storing().lower(graph).calls]
    assert [name for name in kernels if name.startswith("widen")] == ["widen_i8", "widen_i4", "widen_i8"]
    inputs = {"convs": random_inputs(graph)}
    results = [run_merged(t, [graph], tmp_path / t.__class__.__name__, inputs) for t in (Cpu(), Storing())]
    bits_of = [result["convs"][graph.outputs[0]].tobytes() for result in results]
    assert bits_of[0] == bits_of[1]


def tables() -> list[Graph]:
    """Tables with scales for each row, each block of a row, and each column, and indices in an odd order."""
    graphs = []
    for bits in (8, 4):
        rows = np.ascontiguousarray(weights(37, 200, bits, 37, zeros=bits == 4).T)
        blocks = np.ascontiguousarray(weights(65, 200, bits, 32, zeros=False).T)
        for name, table in (
            ("rows", rows),
            ("blocks", blocks),
            ("columns", weights(200, 37, bits, 200, zeros=True)),
        ):
            new = Builder(f"{name}{bits}")
            operands = [new.weight("table", table), new.input("at", DType.I64, (2, 3))]
            graphs.append(new.finish([new.one("Gather", operands, {"axis": 0})]))
    return graphs


@pytest.mark.slow
@pytest.mark.sampled(cases="avx2|avx512vnni|neon")
@pytest.mark.parametrize("level", LEVELS, ids=lambda level: str(level.name))
def test_tables_widen_the_rows_that_are_read(level: Level, tmp_path: Path) -> None:
    graphs = tables()
    indices = np.array([[3, 0, 199], [77, 77, -1]], np.int64)
    results = run_merged(
        Storing(), graphs, tmp_path, {graph.name: {"at": indices} for graph in graphs}, [level]
    )
    for graph in graphs:
        expected = graph.weights["table"][indices]
        assert np.array_equal(results[graph.name][graph.outputs[0]], expected), graph.name
        first, *_ = Storing().lower(graph).calls
        assert first.kernel.name == f"gather_i{graph.name[-1]}_i64"


def test_a_table_that_is_read_along_another_axis_is_widened_whole() -> None:
    new = Builder("along")
    table = new.weight("table", np.ascontiguousarray(weights(40, 100, 8, 40, zeros=False).T))
    indices = new.input("indices", DType.I64, (3,))
    graph = new.finish([new.one("Gather", [table, indices], {"axis": 1})])
    names = [call.kernel.name for call in Storing().lower(graph).calls]
    assert names == ["widen_i8", "gather_i64"]


@pytest.mark.slow
def test_reproducible_products_have_the_same_bits_at_every_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without optimization compilers round each product and each sum anyway, whatever the flag says.
    monkeypatch.setenv(OPTIMIZATION, "-O1")
    chosen = [graph for graph in products() if graph.name.endswith(("_1", "_3", "_5", "tail3"))]
    graphs = [replace(graph, numerics=Numerics.REPRODUCIBLE) for graph in chosen]
    inputs = {graph.name: random_inputs(graph, 7) for graph in graphs}
    levels = [
        replace(level, flags=(*level.flags, "-ffp-contract=off"))
        for level in LEVELS
        if level.name in ("avx512", "avx2", "sse2", "neon")
    ]
    results = [run_merged(Storing(), graphs, tmp_path / str(i.name), inputs, [i]) for i in levels]
    for graph in graphs:
        first, *others = (result[graph.name][graph.outputs[0]].tobytes() for result in results)
        assert others == [first] * len(others), graph.name


@pytest.mark.slow
def test_threads_change_no_bit(tmp_path: Path) -> None:
    """Products that are large enough for several tasks, of few and of many rows."""
    graphs = []
    for bits in (8, 4):
        for rows in (1, 4, 40):
            stored = weights(512, 700, bits, 64, zeros=True)
            graphs.append(product(f"b{bits}_{rows}", (rows, 512), stored, tail=rows == 4))
    merged = merge("all", graphs)
    model = compile_graphs(with_levels(Storing(), LEVELS[:1]), [merged], tmp_path)["all"]
    inputs = random_inputs(merged)
    outputs, counts = shuffled(model, inputs)
    assert min(counts[:1]) > 1
    assert max(counts) > 2
    for name, array in model.run(inputs).items():
        assert array.tobytes() == outputs[name].tobytes(), name


@pytest.mark.slow
@pytest.mark.sampled(every=7)
@pytest.mark.parametrize(
    "level", SEEN_FLOATS.values() if is_x86("host") else LEVELS, ids=lambda level: str(level.name)
)
def test_under_sanitizers(level: Level, tmp_path: Path) -> None:
    endings = ("_1", "_3", "_5", "2", "vector", "19")
    graphs = [graph for graph in products() if graph.name.endswith(endings)]
    merged = merge("all", graphs)
    plan = plan_graph(with_levels(Storing(), [level]), merged)
    library = Sanitized({"all": plan}, [replace(level, available="", probe=None)], tmp_path)
    inputs = random_inputs(merged, 5)
    results = library.run("all", inputs)
    for graph in graphs:
        of_graph = split_by_graph(inputs, graph)
        (name,) = graph.outputs
        error = np.abs(split_by_graph(results, graph)[name] - execute(graph, of_graph)[name])
        assert (error / magnitude(graph, of_graph)).max() < TOLERANCE, graph.name

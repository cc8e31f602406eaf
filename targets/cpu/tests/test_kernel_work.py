"""How much the kernels do for each node, exactly, and that their numbers are the reference's.

`kernel_work` has a file for each level, with a line for each node of `test_lowered_calls.txt` and one for the samples
of each op; indented below stand the kernels and what they did. A loop that goes once too often, or a fast way that is
not taken, changes a number there. `python targets/cpu/tests/test_kernel_work.py Conv MatMul amx` writes the lines of
these ops at these levels anew; without ops those of all, and without levels at all of them: read every line of the
difference before you commit it.
"""

from __future__ import annotations

import ctypes as c
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from counted_work import Work, count_work, read_work
from emulated_levels import LEVELS
from test_epilogue import CASES, STORED, build
from test_lowered_calls import BLOCKS, read_graph
from test_placement import GRAPHS as JOINED
from test_workers import PARALLEL, Threads

from mace_core.ir import Array, DType, Graph, Tensor
from mace_core.levels import with_levels
from mace_core.program import Call
from mace_core.run import native
from mace_core.run.compile import shared_library
from mace_core.run.reference import execute
from mace_core.testing.compiled import CASES as LIBRARY
from mace_core.testing.compiled import (
    generate_library,
    host,
    merge,
    plan_graph,
    split_by_graph,
    with_quick_flags,
)
from mace_core.testing.samples import samples
from mace_target_cpu import Cpu
from mace_target_cpu.lower import strided

FOLDER = Path(__file__).with_name("kernel_work")
"""A file for each level, because kernels of different levels change in different commits."""

MAX_ELEMENTS = 50_000
"""Nodes with larger tensors are lowered only: without optimization they take seconds."""

TASK_BYTES = 512
"""So few that small tensors are shared out."""

WORKERS = 3

FLAGS = ("-w", "-DMACE_GRAIN_NS=1", "-ffp-contract=off")
"""Shares work however short it is, and rounds every product, so that iterations end alike with every compiler."""

FUSED = "fused"
"""Stands for an op: graphs of several nodes that become one call, or that share a result."""

PRODUCTS = ("Conv", "MatMul", "MatMulInteger", FUSED)
"""Ops with kernels that each level has its own instructions for."""
TILED = (*PRODUCTS, "ConvTranspose", "LSTM", "GRU", "RNN", "MaxPool", "AveragePool")
"""Ops with kernels that differ with the width of a level's vectors."""

BATCH = 12
"""Ops of few kernels that one library tries."""

FIXED = ("Conv by tflite-reference", "MatMul by tflite-reference")
"""Products that round otherwise, with instructions of AVX-512."""

OPS_OF_LEVELS: Mapping[str, tuple[str, ...] | None] = {
    "avx2": None,
    "sse2": TILED,
    "avxvnni": PRODUCTS,
    "avx512vnni": (*TILED, *FIXED),
    "amx": (*PRODUCTS, *FIXED),
    "avx512": ("MatMul",),
    "generic": ("MatMul",),
    "by_lane": ("MatMul",),
    "plain_pairs": ("MatMul",),
    "plain_quads": ("MatMul", "Add", "AveragePool"),
}
"""Level -> the ops that are tried on it; None for all."""

TOLERANCE = 1e-5
TOLERANCES = {"GRU": 1e-3, "LSTM": 1e-3, "RNN": 1e-3}
"""Steps of a recurrent op multiply what single precision lost in the step before, by weights of up to 12."""

JUMPING = ("Mod", "Tan")
"""Ops that jump: a number that is rounded before them as the reference does not lands on another side."""


def op_of(line: str) -> str:
    """Return the op of a line of the table, or of test_lowered_calls.txt, with its numerics if they are stated."""
    op = line.removeprefix("samples of ").removeprefix("kernels of ").split(" ")[0]
    _, stated, rule = line.partition(" by ")
    return f"{op} by {rule}" if stated else op


OPS = (*dict.fromkeys(op_of(line) for line, _ in BLOCKS), FUSED)


def graphs_of(op: str) -> dict[str, list[Graph]]:
    """The lines of the table for an op, each with its graphs."""
    if op == FUSED:
        return {f"{FUSED} {graph.name}": [graph] for graph in (*map(build, CASES), *STORED, *JOINED)}
    graphs: dict[str, list[Graph]] = {}
    for line in dict.fromkeys(line for line, _ in BLOCKS if op_of(line) == op):
        if line.startswith("kernels of "):
            line, made = f"samples of {op}", samples(op, tuple(DType), (DType.I8, DType.U8, DType.I16))
        else:
            made = [read_graph(line)]
        accepted = [graph for graph in made if _is_computed(graph)]
        if accepted:
            graphs[line] = [graph.with_name(f"g{len(graphs)}_{i}") for i, graph in enumerate(accepted)]
    return graphs


def _is_computed(graph: Graph) -> bool:
    elements = sum(int(np.prod(tensor.shape, dtype=np.int64)) for tensor in graph.tensors.values())
    # Ops that only rename a tensor have no kernel; NumPy's functions end at a rank below that of some lines.
    ranks = max(len(tensor.shape) for tensor in graph.tensors.values())
    if elements > MAX_ELEMENTS or ranks > 8:
        return False
    target = Cpu()
    return not any(target.refuses(node, graph) for node in graph.nodes) and bool(
        target.lower(graph, "x86_64").calls
    )


def choose_inputs(graph: Graph) -> dict[str, Array]:
    """Small numbers of both signs, integers of the whole range where they are quantized; the same everywhere."""
    random = np.random.RandomState(0)  # its numbers never change, as those of a Generator may
    return {name: _choose(random, graph.tensors[name]) for name in graph.inputs}


def _choose(random: np.random.RandomState, tensor: Tensor) -> Array:
    kind = tensor.dtype.numpy
    if tensor.dtype.is_float:
        return (random.randint(-40, 41, tensor.shape) / 8).astype(kind)
    if tensor.quant:
        limits = np.iinfo(kind)
        return random.randint(limits.min, limits.max + 1, tensor.shape).astype(kind)
    if tensor.dtype is DType.BOOL:
        return random.randint(0, 2, tensor.shape).astype(bool)
    return random.randint(0 if tensor.dtype.value.startswith("u") else -3, 5, tensor.shape).astype(kind)


@dataclass(frozen=True)
class Trial:
    """The graphs of an op under names that no other op has, by line of the table, and their inputs."""

    op: str
    lines: Mapping[str, Sequence[Graph]]
    inputs: Mapping[str, Array]

    @property
    def graphs(self) -> list[Graph]:
        """The graphs of all lines."""
        return [graph for graphs in self.lines.values() for graph in graphs]


def prepare(op: str) -> Trial:
    """Return the trial of an op, whose inputs do not depend on the other ops of its library."""
    lines = {
        line: [graph.with_name(f"{op} {graph.name}") for graph in graphs]
        for line, graphs in graphs_of(op).items()
    }
    graphs = [graph for of_line in lines.values() for graph in of_line]
    return Trial(op, lines, choose_inputs(merge("all", graphs)))


def measure(ops: Sequence[str], level: str, folder: Path) -> dict[str, list[str]]:
    """Run the kernels of ops in one library; what they did by line of the table.

    Their numbers must be the reference's.
    """
    tried = [trial for trial in map(prepare, ops) if trial.lines]
    if not tried:
        return {}
    merged = merge("all", [graph for trial in tried for graph in trial.graphs])
    target = with_levels(Cpu(), [LEVELS[level]])
    sources = with_quick_flags(count_work(generate_library([target], [merged])))
    path = shared_library(sources, host(), folder, FLAGS)
    inputs = {name: array for trial in tried for name, array in trial.inputs.items()}
    read_work(path)
    outputs = _run_on_workers(native.load(path, LIBRARY)["all"], inputs)
    work = read_work(path)
    # Once for all lines: to plan the graph takes as long as to compile its library.
    calls = plan_graph(target, merged).program.calls
    table: dict[str, list[str]] = {}
    for trial in tried:
        if trial.op not in JUMPING:
            check_numbers(trial.graphs, inputs, outputs, TOLERANCES.get(trial.op, TOLERANCE))
        for line, graphs in trial.lines.items():
            table[line] = _describe(_by_kernel(calls, graphs, work))
    return table


def _run_on_workers(model: native.LoadedModel, inputs: dict[str, Array]) -> dict[str, Array]:
    """Run a model whose work is shared out, as one worker after the other would do it."""

    def parallel(_: object, task: object, context: int, tasks: int) -> None:
        assert callable(task)
        for index in range(tasks):
            task(context, index, index % WORKERS)

    threads = Threads(c.sizeof(Threads), WORKERS, None, PARALLEL(parallel))
    config = native.Config(c.sizeof(native.Config), 0, c.cast(c.pointer(threads), c.c_void_p))
    return native.LoadedModel(model._raw, model._functions, config).run(inputs)


def check_numbers(
    graphs: Sequence[Graph], inputs: Mapping[str, Array], outputs: Mapping[str, Array], tolerance: float
) -> None:
    """Assert that outputs are those of the references: exactly, or within a part of the largest number."""
    for graph in graphs:
        expected = execute(graph, split_by_graph(inputs, graph))
        for name, found in split_by_graph(outputs, graph).items():
            number, reference = found.astype(np.float64), expected[name].astype(np.float64)
            near = 0.0
            if graph.tensors[name].quant:
                near = 1.0  # kernels round from floats, the reference from doubles
            elif graph.tensors[name].dtype.is_float:
                finite = np.abs(reference[np.isfinite(reference)])
                near = tolerance_of(graph.tensors[name].dtype, tolerance) * max(1.0, finite.max(initial=0.0))
            np.testing.assert_allclose(number, reference, 0, near, err_msg=f"{graph.nodes[0]}: {name}")


def tolerance_of(dtype: DType, tolerance: float) -> float:
    """Return the tolerance of a type: half precision has steps of a thousandth."""
    return max(tolerance, 1e-3) if dtype is DType.F16 else tolerance


def _by_kernel(calls: Sequence[Call], graphs: Sequence[Graph], work: Sequence[Work]) -> dict[str, Work]:
    """Return what the kernels of some of the merged graphs did together.

    calls: those of all the merged graphs.  work: what each of them did.
    """
    names = {graph.name for graph in graphs}
    result: dict[str, Work] = {}
    for call, done in zip(calls, work, strict=True):
        if call.node.partition("/")[0] in names:
            result[call.kernel.name] = done + result.get(call.kernel.name, Work())
    return result


def _describe(work: Mapping[str, Work]) -> list[str]:
    return [f"{kernel}: {done}" for kernel, done in work.items()]


def trials() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Levels, each with the ops that one library of it tries.

    A library takes half a second beside its kernels, as long as the kernels of most ops. Products, of which each
    library has hundreds, stay apart: a failure then names the op.
    """
    for level, tried in OPS_OF_LEVELS.items():
        ops = tried or OPS
        yield from ((level, (op,)) for op in ops if is_large(op))
        small = [op for op in ops if not is_large(op)]
        for rule in dict.fromkeys(map(rule_of, small)):
            same = [op for op in small if rule_of(op) == rule]
            yield from ((level, tuple(same[i : i + BATCH])) for i in range(0, len(same), BATCH))


def is_large(op: str) -> bool:
    """Tell whether an op has more kernels than others."""
    return op.partition(" by ")[0] in TILED


def rule_of(op: str) -> str:
    """Return the rule of numerics that an op of the table states, "" for none: a graph has one alone."""
    return op.partition(" by ")[2]


def read_table(op: str, level: str) -> dict[str, list[str]]:
    """The lines of a level's file for an op, each with what its kernels do."""
    table: dict[str, list[str]] = {}
    node = ""
    for line in _file(level).read_text(encoding="utf-8").splitlines():
        if not line.startswith("  "):
            node = line
        elif op_of(node) == op:
            table.setdefault(node, []).append(line.strip())
    return table


def _file(level: str) -> Path:
    return FOLDER / f"{level}.txt"


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")  # quantized results beyond doubles
@pytest.mark.skipif(
    "avx2" not in LEVELS, reason="the processor has no AVX2, with which the other levels are emulated"
)
@pytest.mark.parametrize(
    ("level", "ops"), [*trials()], ids=lambda value: value if isinstance(value, str) else "-".join(value)
)
def test_kernels_do_this_work(
    level: str, ops: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strided, "TASK_BYTES", TASK_BYTES)
    table = {line: work for op in ops for line, work in read_table(op, level).items()}
    assert measure(ops, level, tmp_path) == table


def write(ops: Sequence[str], levels: Sequence[str]) -> None:
    """Write the lines of some ops at some levels anew, with what their kernels do now."""
    np.seterr(over="ignore")  # quantized results beyond the range of doubles
    strided.TASK_BYTES = TASK_BYTES
    for level in levels:
        table: dict[str, list[str]] = {}
        tried = OPS_OF_LEVELS[level] or OPS
        for op in (op for op in OPS if op in tried):
            if op not in ops:
                table |= read_table(op, level)
                continue
            with tempfile.TemporaryDirectory() as folder:
                table |= measure([op], level, Path(folder))
        text = "".join(f"{line}\n" + "".join(f"  {row}\n" for row in rows) for line, rows in table.items())
        _file(level).write_text(text, encoding="utf-8")


def main(words: Sequence[str]) -> None:
    """Write what the words of the command line name, each an op or a level."""
    if unknown := {*words} - {*OPS} - {*OPS_OF_LEVELS}:
        raise SystemExit(f"{min(unknown)}: neither an op of the table nor a level; see OPS and OPS_OF_LEVELS")
    ops = [word for word in words if word in OPS]
    levels = [word for word in words if word in OPS_OF_LEVELS]
    write(ops or OPS, levels or [*OPS_OF_LEVELS])


if __name__ == "__main__":
    main(sys.argv[1:])

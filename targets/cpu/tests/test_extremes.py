"""Every op on the ends of its types, under the undefined-behavior sanitizer, beside its numpy reference.

The data: the least and the greatest integer, -1, 0, 1; NaN, infinities, denormals, 1e38. The plain run
checks that no op is left out; `-m exhaustive` tries each on the types that users have, and every type on every level.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest

from mace_core.api import Compiler
from mace_core.emit import code
from mace_core.ir import Array, DType, Graph
from mace_core.levels import Level, with_levels
from mace_core.ops import core_ops
from mace_core.plan import plan_calls
from mace_core.run import native
from mace_core.run.compile import shared_library
from mace_core.run.reference import execute
from mace_core.testing.compiled import merge, split_by_graph
from mace_core.testing.processor import levels_here
from mace_core.testing.requirements import require
from mace_core.testing.samples import extreme_inputs, samples
from mace_target_cpu import Cpu
from mace_target_cpu.isa import GENERIC, X86
from mace_target_cpu.lower import binary, unary

SANITIZE = ("-O0", "-fsanitize=undefined,float-cast-overflow")
"""Without optimization the sanitizer checks as much, and all kernels compile in a third of the time."""

LEVELS = {level.name: level for level in levels_here((*X86, *GENERIC))}
COMMON = (DType.F32, DType.I32, DType.U8, DType.BOOL)
ELEMENTWISE = {*unary.LOWERINGS, *binary.LOWERINGS, "Cast"}
"""Ops whose results are the reference's even where floats overflow.

Others add up in another order or precision.
"""


def accepted(types: Iterable[DType], quantized: Iterable[DType] = ()) -> list[Graph]:
    """The samples that the CPU computes."""
    target = Cpu()
    graphs = [g for name in core_ops() for g in samples(name, types, quantized)]
    return [g for g in graphs if not any(target.refuses(n, g) for n in g.nodes)]


def differences(graph: Graph, found: dict[str, Array], given: dict[str, Array]) -> list[str]:
    """Which outputs are not the reference's: integers exactly, floats of element-wise ops nearly."""
    wrong = []
    reference = execute(graph, given)
    for name in graph.outputs:
        expected = reference[name]
        floats = expected.dtype.kind == "f"
        if graph.tensors[name].quant or (floats and not {n.op.name for n in graph.nodes} <= ELEMENTWISE):
            continue
        # A step of half precision is 1e-3; the halfway cases of floats and of the reference's doubles round
        # to either side.
        near = 1e-3 if expected.dtype == np.float16 else 2e-6
        same = (
            np.isclose(found[name], expected, near, near, equal_nan=True)
            if floats
            else found[name] == expected
        )
        if not same.all():
            at = np.flatnonzero(~same)[:5]
            wrong.append(f"{graph.name}: {found[name].reshape(-1)[at]} expected {expected.reshape(-1)[at]}")
    return wrong


def check(graphs: Sequence[Graph], level: Level, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    require(None if shutil.which("gcc") else "gcc is not installed: apt-get install gcc")
    whole = merge("ends", graphs)
    program = with_levels(Cpu(), [level]).lower(whole)
    sources = code.library("ends", [plan_calls(program)], (level,))
    model = native.load(shared_library(sources, Compiler(("gcc",), ("ar",)), folder, SANITIZE), "ends")[
        "ends"
    ]
    wrong: list[str] = []
    capfd.readouterr()
    for seed in range(2):
        inputs = extreme_inputs(whole, seed)
        results = model.run(inputs)
        for graph in graphs:
            wrong += differences(graph, split_by_graph(results, graph), split_by_graph(inputs, graph))
    reported = capfd.readouterr().err
    wrong += [line for line in reported.splitlines() if "runtime error" in line]
    assert not wrong, "\n".join(wrong)


def test_every_op_is_tried() -> None:
    tried = {n.op.name for g in accepted((*COMMON, DType.I8), (DType.I8,)) for n in g.nodes}
    refused = {op for op in core_ops() if not samples(op, tuple(DType), (DType.I8,))}
    assert set(core_ops()) - tried - refused == set(), "no kernel: see docs/contributing.md, Add a kernel"
    assert refused <= {op for op in core_ops() if op.startswith("ml::")}, "samples.py has no example of them"


@pytest.mark.exhaustive
def test_common_types(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    check(accepted(COMMON), LEVELS["sse2"], tmp_path, capfd)


GROUPS = {
    "narrow integers": ((DType.BOOL, DType.I8, DType.U8, DType.I16, DType.U16), ()),
    "wide integers": ((DType.I32, DType.U32, DType.I64, DType.U64), ()),
    "floats": ((DType.F16, DType.F32, DType.F64, DType.I64, DType.U32), ()),
    "quantized": ((), (DType.I8, DType.U8, DType.I16)),
}


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("group", GROUPS)
def test_every_type_on_every_level(
    level: str, group: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    check(accepted(*GROUPS[group]), LEVELS[level], tmp_path, capfd)

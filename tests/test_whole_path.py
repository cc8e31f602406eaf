"""Models that are damaged or changed, of every frontend, through all that a build does.

Some compiled and run under sanitizers.

MACE_FUZZ says how many models of each frontend the tests marked `fuzz` take, a fifth of them to the end:
MACE_FUZZ=1000 pytest -m fuzz.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_core.plan import Plan as ModelPlan
from mace_core.plan import plan_calls
from mace_core.program import Program
from mace_core.testing.compiled import plan_graph
from mace_core.testing.malformed import Damaged
from mace_core.testing.sanitized import GAP, Sanitized, SanitizerFinding, space
from mace_core.testing.separate_calls import SeparateCalls
from mace_core.testing.whole_path import WholePathOptions, take_whole_path
from mace_target_cpu import Cpu

sys.path.insert(0, str(Path(__file__).parent / "fuzz"))
from mutants import FRONTENDS, mutants

COMPILED: Mapping[str, int] = {"onnx": 6, "tflite": 6}
"""Models of a frontend that the plain tests compile; of the others they take all to C."""

VALID = 0.2
"""The share of models that must reach C: of nothing but refusals nobody learns anything."""

pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="gcc is not installed: apt-get install gcc")


@pytest.mark.slow
@pytest.mark.sampled(cases="caffe")
@pytest.mark.parametrize("frontend", FRONTENDS)
def test_changed_models_are_built_right_or_refused(frontend: str, tmp_path: Path) -> None:
    models = mutants(frontend, seed=11, count=60, originals=12)
    report = take_whole_path(frontend, models, tmp_path, WholePathOptions(COMPILED.get(frontend, 0)))
    assert not report.findings, report
    assert report.models == 60
    assert report.valid >= VALID * 60, report
    assert report.compiled == min(report.valid, COMPILED.get(frontend, 0))


@pytest.mark.fuzz
@pytest.mark.timeout(0)
@pytest.mark.skipif("MACE_FUZZ" not in os.environ, reason="MACE_FUZZ says how many models")
@pytest.mark.parametrize("frontend", FRONTENDS)
def test_many_changed_models_are_built_right_or_refused(frontend: str, tmp_path: Path) -> None:
    count = int(os.environ["MACE_FUZZ"])
    report = take_whole_path(
        frontend,
        mutants(frontend, seed=1, count=count),
        tmp_path,
        WholePathOptions(count // 5, projects=("max78000",)),
    )
    sys.stdout.write(f"{frontend}: {report}\n")
    assert not report.findings, report


class SeparateCpu(SeparateCalls, Cpu):
    """The CPU target without fused calls."""


def lowered(graph: Graph) -> ModelPlan:
    return plan_graph(SeparateCpu(), graph)


def chain() -> Graph:
    """Three tensors in the arena and a weight."""
    new = Builder("chain")
    x = new.input("x", DType.F32, (5,))
    for name in ("a", "b", "c"):
        x = new.one("Exp" if name != "b" else "Tanh", [x], outputs=[name])
    result = new.add("Add", [x, new.weight("w", np.ones(5, np.float32))], outputs=["y"])
    return new.finish(result)


def test_tensors_of_a_spaced_program_share_no_byte() -> None:
    plan = lowered(chain())
    program, spaced = plan.program, space(plan)
    offsets = spaced.plan.host.offsets
    places = sorted({offsets[t]: program.tensors[program.root(t)].bytes for t in offsets}.items())
    assert len(places) == 3
    for (start, size), (following, _) in itertools.pairwise(places):
        assert following >= start + size + GAP
    assert all(end > start for start, end in (*spaced.arena_gaps, *spaced.weight_gaps))


@pytest.mark.exhaustive
def test_a_kernel_that_reads_beside_its_tensor_is_found(tmp_path: Path) -> None:
    """A call is told of one element more than its tensors hold, in the arena and in the weights."""
    plan = lowered(chain())
    program = plan.program
    for wrong in range(1, len(program.calls)):
        calls = list(program.calls)
        call = calls[wrong]
        longer = {name: value + 1 if value == 5 else value for name, value in call.args.items()}
        longer |= {
            name: tuple(6 if v == 5 else v for v in value)
            for name, value in call.args.items()
            if isinstance(value, tuple)
        }
        calls[wrong] = type(call)(
            call.kernel, longer, call.reads, call.writes, call.scratch, call.inplace, call.node
        )
        damaged = Program(
            "chain",
            tuple(calls),
            program.tensors,
            program.weights,
            program.aliases,
            program.inputs,
            program.outputs,
        )
        library = Sanitized({"chain": plan_calls(damaged)}, Cpu().levels("host")[-1:], tmp_path / str(wrong))
        with pytest.raises(SanitizerFinding, match="AddressSanitizer: use-after-poison"):
            library.run("chain", {"x": np.ones(5, np.float32)})


@pytest.mark.slow
def test_a_sound_program_runs_under_sanitizers(tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 5, dtype=np.float32)
    actual = Sanitized({"chain": lowered(chain())}, Cpu().levels("host")[-1:], tmp_path).run(
        "chain", {"x": x}
    )
    np.testing.assert_allclose(actual["y"], np.exp(np.tanh(np.exp(x))) + 1, rtol=1e-5)


def test_a_missing_toolchain_is_one_error_and_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "ziglang", None)
    with pytest.raises(MaceError, match="no toolchain is ready"):
        take_whole_path("onnx", [Damaged("nothing", {"m.onnx": b""})], tmp_path, WholePathOptions())

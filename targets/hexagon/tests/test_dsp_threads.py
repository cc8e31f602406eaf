"""Threads of the DSP: the pool on QuRT's functions, and models whose bits do not depend on their number."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from dsp_session import NEVER, SessionProgram, build_session, make_emulator
from emulated import Built, require_compiler, run_here
from test_dsp_products import I8, OUT, POINT, convolve

from mace_core.ir import Graph
from mace_core.testing.compiled import random_inputs
from mace_target_hexagon.emulator import PACKAGE

PROBE = Path(__file__).parent / "probe" / "threads_probe.c"
RUNTIME = PACKAGE.parents[3] / "core/src/mace_core/runtime"


def wide_graph() -> Graph:
    """A convolution that takes long enough to be divided among four threads."""
    return convolve("m", (1, 24, 24, 64), (96, 1, 1, 64), I8, OUT, **POINT)


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pool in a program of its own, with the system of the emulated DSP."""
    compiler, folder = require_compiler(), tmp_path_factory.mktemp("probe")
    includes = [f"-I{PACKAGE / name}" for name in ("driver", "dsp", "emulator")]
    sources = [PROBE, PACKAGE / "dsp/hexagon_threads.c", PACKAGE / "emulator/dsp_system.c"]
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{RUNTIME}", *includes]
    command = [*compiler.cc, *compiler.flags, *compiler.program, *flags, *map(str, sources), "-pthread"]
    subprocess.run([*command, "-o", "threads_probe"], cwd=folder, check=True)
    return folder / "threads_probe"


def run_probe(probe: Path, workers: int, meets: bool, environment: Mapping[str, str]) -> list[str]:
    """Return the lines that the program prints; a meeting to which a worker never comes runs out of time."""
    command = ["qemu-hexagon", str(probe), str(workers), str(int(meets))]
    surroundings = {**os.environ, **environment}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=surroundings, timeout=60)
    return done.stdout.splitlines()


@pytest.mark.exhaustive
@pytest.mark.parametrize("workers", [2, 4])
def test_every_worker_computes_and_every_task_runs_once(probe: Path, workers: int) -> None:
    expected = [f"workers {workers}", "missed 0 clashes 0"]
    assert run_probe(probe, workers, False, {}) == expected
    assert run_probe(probe, workers, True, {}) == expected


@pytest.mark.exhaustive
def test_the_pool_has_a_worker_for_each_vector_unit(probe: Path) -> None:
    assert run_probe(probe, 0, True, {"MACE_DSP_UNITS": "3"}) == ["workers 3", "missed 0 clashes 0"]
    assert run_probe(probe, 0, False, {"MACE_DSP_UNITS": "1"}) == ["workers 1"]
    assert run_probe(probe, 0, False, {"MACE_DSP_UNITS": "0"}) == ["workers 1"]
    assert run_probe(probe, 99, False, {})[0] == "workers 8"


@pytest.mark.exhaustive
def test_workers_without_a_vector_unit_leave_their_tasks_to_the_others(probe: Path) -> None:
    expected = ["workers 4", "missed 0 clashes 0"]
    assert run_probe(probe, 4, False, {"MACE_DSP_UNITS": "2"}) == expected
    assert run_probe(probe, 4, False, {"MACE_DSP_UNITS": "1"}) == expected


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> SessionProgram:
    emulator = make_emulator(tmp_path_factory.mktemp("emulator"))
    return build_session(wide_graph(), tmp_path_factory.mktemp("session"), emulator)


@pytest.mark.slow
@pytest.mark.emulator
@pytest.mark.parametrize("threads", [1, 2, 4])
def test_remote_calls_have_the_same_bits_with_any_number_of_threads(
    session: SessionProgram, threads: int
) -> None:
    told = session.run(NEVER, 2, options=f"hexagon.threads={threads}")
    word = "thread" if threads == 1 else "threads"
    assert told.said("part")[0].endswith(f"libcdsprpc.so, {threads} {word}")
    started = [line for line in told.calls if line.startswith("thread mace priority=192")]
    assert len(started) == threads - 1
    assert told.said("run") == ["run 0 "] * 2
    assert list(told.outputs) == session.expected()


@pytest.mark.slow
@pytest.mark.emulator
def test_a_dsp_whose_vector_units_are_taken_computes_without_them(session: SessionProgram) -> None:
    told = session.run(NEVER, 1, environment={"MACE_DSP_UNITS": "0"})
    assert told.said("part")[0].endswith("libcdsprpc.so, 1 thread, no vector unit: plain C computes")
    assert list(told.outputs) == session.expected()


@pytest.mark.slow
@pytest.mark.emulator
def test_programs_of_the_dsp_have_the_same_bits_with_any_number_of_threads(tmp_path: Path) -> None:
    """`target=hexagon-v66` has core's pool of POSIX threads, which starts no more than there are processors."""
    graph = wide_graph()
    inputs = random_inputs(graph)
    expected = run_here(graph, inputs, tmp_path / "here")
    built = Built.from_graph(graph, tmp_path)
    for threads in (1, 2, 4):
        outputs = built.run([inputs[name] for name in graph.inputs], flags=[f"--threads={threads}"])
        for name, array in outputs.items():
            assert (array == expected[name]).all(), f"{threads} threads: {name}"

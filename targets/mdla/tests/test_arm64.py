"""The driver as a 64-bit ARM processor runs it, emulated, with the stub built for it; LiteRT executes on this machine."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace

import pytest
from neuron_session import EXECUTOR, SessionProgram, build_adapter, build_session, small_graph

from mace_core.api import Compiler
from mace_core.registry import Registry
from mace_core.testing.requirements import require

LIBRARIES = "/usr/aarch64-linux-gnu"


def arm_compiler() -> Compiler:
    """The compiler for arm64; the test is skipped where it or the emulator is not installed."""
    registry = Registry.load()
    require(registry.toolchains["gnu"].missing("arm64"))
    require(
        None if shutil.which("qemu-aarch64") else "qemu-aarch64 is not in PATH: apt-get install qemu-user"
    )
    require(None if os.path.isdir(LIBRARIES) else f"{LIBRARIES}: apt-get install libc6-dev-arm64-cross")
    # Dynamically linked, because the driver loads a library.
    return replace(registry.toolchains["gnu"].compiler("arm64"), program=())


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> SessionProgram:
    compiler = arm_compiler()
    vendor = build_adapter(tmp_path_factory.mktemp("vendor"), compiler=compiler)
    program = build_session(small_graph(), tmp_path_factory.mktemp("session"), compiler=compiler)
    return replace(program, command=("qemu-aarch64", "-L", LIBRARIES, "-E", f"LD_LIBRARY_PATH={vendor}"))


@pytest.mark.emulator
@pytest.mark.slow
@pytest.mark.parametrize("executor", [{}, EXECUTOR], ids=["stub", "LiteRT"])
def test_results_are_those_of_the_references(executor: dict[str, str], emulated: SessionProgram) -> None:
    told = emulated.run(runs=2, environment=executor)
    assert told.said("run") == ["run 0 "] * 2
    assert told.said("part") == ["part 0 mdla: libneuron_adapter.so 6.0.3, device of its choice"]
    assert list(told.outputs) == emulated.expected()


@pytest.mark.emulator
@pytest.mark.slow
def test_faults_end_as_on_this_machine(emulated: SessionProgram) -> None:
    for fault, status in (("NeuronCompilation_finish=4", 7), ("NeuronModel_create=15", 10)):
        (line,) = emulated.run(runs=0, environment={"NEURON_STUB_FAULT": fault}).said("open")
        assert line.startswith(f"open {status} ")
    told = emulated.run(2, 2, environment={"NEURON_STUB_FAULT": "NeuronExecution_compute=15"})
    assert [line[:5] for line in told.said("run")] == ["run 0"] * 2
    assert list(told.outputs) == emulated.expected()

"""Networks that were compiled before they came to the device: for the adapter, and files of ncc-tflite for the runtime of both versions."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from neuron_session import (
    SANITIZED,
    Direct,
    SessionProgram,
    build_adapter,
    build_runtime,
    build_session,
    compile_by_stub,
    small_graph,
)

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_target_mdla.driver import RUNTIMES
from mace_target_mdla.network import NetworkKind, encode_compiled

NEVER, AT_OPEN = 0, 1
REFUSED, NO_DEVICE, STALE, FAILED = 5, 6, 7, 11
COUNT = 24


def doubled_graph() -> Graph:
    builder = Builder("m")
    x = builder.input("x", DType.F32, (2, COUNT // 2))
    two = builder.weight("two", np.full((1, 1), 2, np.float32))
    return builder.finish(list(builder.add("Mul", [x, two], {})))


def dla(count: int = COUNT) -> bytes:
    """A file of the stub of the runtime, which no compiler of the vendor's wrote and no device reads."""
    return b"STUBDLA1" + struct.pack("<If", count, 2.0)


def status_of(line: str) -> int:
    return int(line.split()[1])


pytestmark = pytest.mark.exhaustive  # a library with sanitizers for each version of the runtime


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> SessionProgram:
    graph = doubled_graph()
    network = encode_compiled(graph, dla(), NetworkKind.DLA)
    return build_session(graph, tmp_path_factory.mktemp("dla"), Direct(network), SANITIZED)


@pytest.fixture(scope="module", params=["version 2", "version 1"])
def runtime(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    flags = ["-DONLY_V1"] if request.param == "version 1" else []
    return {"LD_LIBRARY_PATH": str(build_runtime(tmp_path_factory.mktemp("vendor"), flags=flags))}


@pytest.fixture
def version(runtime: dict[str, str], request: pytest.FixtureRequest) -> str:
    return str(request.node.callspec.params["runtime"])


@pytest.mark.slow
def test_the_runtime_executes_files(session: SessionProgram, runtime: dict[str, str], version: str) -> None:
    told = session.run(NEVER, 2, 2, environment=runtime)
    assert told.said("run") == ["run 0 "] * 4
    assert told.said("part") == [f"part 0 mdla: libneuron_runtime.so, API {version[-1]}"] * 2
    assert list(told.outputs) == session.expected()


CREATE = {"version 2": "NeuronRuntimeV2_createFromBuffer", "version 1": "NeuronRuntime_create"}
RUN = {"version 2": "NeuronRuntimeV2_run", "version 1": "NeuronRuntime_inference"}


@pytest.mark.slow
def test_faults_of_the_runtime(session: SessionProgram, runtime: dict[str, str], version: str) -> None:
    prefix = "NeuronRuntimeV2_" if version == "version 2" else "NeuronRuntime_"
    names = ["getInputNumber", "getOutputNumber", "getInputSize", "getOutputSize"]
    for function in (CREATE[version], *(prefix + name for name in names)):
        for code, status in ((1, FAILED), (4, STALE), (6, FAILED)):
            environment = {**runtime, "NEURON_STUB_FAULT": f"{function}={code}"}
            (line,) = session.run(NEVER, 0, environment=environment).said("open")
            assert status_of(line) == status, (function, code)
            assert f"{function} of libneuron_runtime.so answered {code}" in line
            told = session.run(AT_OPEN, 1, environment=environment)
            assert list(told.outputs) == session.expected()
    environment = {**runtime, "NEURON_STUB_FAULT": f"{RUN[version]}=6"}
    lines = session.run(NEVER, 2, environment=environment).said("run")
    assert [status_of(line) for line in lines] == [FAILED, FAILED]
    told = session.run(2, 2, environment=environment)
    assert list(told.outputs) == session.expected()


@pytest.mark.slow
def test_dma_bufs_are_for_version_2_alone(
    session: SessionProgram, runtime: dict[str, str], version: str
) -> None:
    told = session.run(NEVER, 1, bind=1, environment=runtime)
    statuses = {status_of(line) for line in told.said("bind")}
    if version == "version 2":
        assert statuses == {0}
        assert list(told.outputs) == session.expected()
    else:
        assert statuses == {REFUSED}
        assert "imports no such buffer; bind host memory" in told.said("bind")[0]
    (line, *_) = session.run(NEVER, 0, bind=2, environment=runtime).said("bind")
    assert status_of(line) == REFUSED, "the runtime knows no AHardwareBuffer"


def test_without_a_runtime_the_text_says_what_was_looked_for(session: SessionProgram, tmp_path: Path) -> None:
    (line,) = session.run(NEVER, 0, environment={"LD_LIBRARY_PATH": str(tmp_path)}).said("open")
    assert status_of(line) == NO_DEVICE
    assert all(name in line for name in RUNTIMES)


@pytest.mark.slow
def test_a_runtime_that_has_neither_version_whole_is_passed_over(
    session: SessionProgram, tmp_path: Path
) -> None:
    build_runtime(tmp_path, RUNTIMES[0], ["-DONLY_V1", "-DNeuronRuntime_inference=NeuronRuntime_infer"])
    build_runtime(tmp_path, RUNTIMES[1], ["-DNeuronRuntimeV2_run=NeuronRuntimeV2_walk"])
    told = session.run(NEVER, 1, environment={"LD_LIBRARY_PATH": str(tmp_path)})
    assert told.said("part") == [f"part 0 mdla: {RUNTIMES[1]}, API 1"]
    assert list(told.outputs) == session.expected()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "text"),
    [(dla(COUNT + 1), "takes 100 bytes, and the build gives 96"), (b"no DLA", "answered 4")],
    ids=["size", "damaged"],
)
def test_files_that_do_not_fit_are_stale(content: bytes, text: str, tmp_path: Path) -> None:
    graph = doubled_graph()
    network = encode_compiled(graph, content, NetworkKind.DLA)
    program = build_session(graph, tmp_path / "session", Direct(network), ("-O0",))
    environment = {"LD_LIBRARY_PATH": str(build_runtime(tmp_path / "vendor"))}
    (line,) = program.run(NEVER, 0, environment=environment).said("open")
    assert status_of(line) == STALE
    assert text in line


@pytest.mark.slow
def test_the_adapter_restores_what_it_has_compiled(tmp_path: Path) -> None:
    graph = small_graph()
    compiled = compile_by_stub([graph], tmp_path / "compiled")["m"]
    network = encode_compiled(graph, compiled, NetworkKind.COMPILED)
    program = build_session(graph, tmp_path / "session", Direct(network), SANITIZED)
    program = replace(program, environment={"LD_LIBRARY_PATH": str(build_adapter(tmp_path / "vendor"))})
    log = tmp_path / "log"
    told = program.run(
        NEVER, 2, 2, cache_file=str(tmp_path / "entry"), environment={"NEURON_STUB_LOG": str(log)}
    )
    assert told.said("run") == ["run 0 "] * 4
    assert list(told.outputs) == program.expected()
    calls = log.read_text().split()
    assert "NeuronModel_addOperand" not in calls
    assert not (tmp_path / "entry").exists(), "what came compiled is not kept a second time"
    for code, status in ((4, STALE), (8, STALE), (1, FAILED), (10, NO_DEVICE)):
        fault = {"NEURON_STUB_FAULT": f"NeuronModel_restoreFromCompiledNetwork={code}"}
        (line,) = program.run(NEVER, 0, environment=fault).said("open")
        assert status_of(line) == status
        assert "a network of mace-target-mdla 0.1.0" in line
        told = program.run(AT_OPEN, 1, environment=fault)
        assert list(told.outputs) == program.expected()

"""The driver against a stub of the Neuron adapter that checks each call: what goes well, what the library lacks, faults in every call."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from neuron_session import (
    BUILDS,
    SANITIZED,
    Direct,
    SessionProgram,
    Told,
    build_adapter,
    build_session,
    small_graph,
)

from mace_core.testing.requirements import require
from mace_target_mdla.driver import ADAPTERS
from mace_target_mdla.network import encode_network
from mace_target_mdla.neuron import NeuronOperation
from mace_tflite_writer import write_tflite

pytestmark = pytest.mark.slow  # a compiler makes driver and stub

NEVER, AT_OPEN, AT_RUN = 0, 1, 2
STALE, TIMEOUT, NO_DEVICE, LOST, FAILED, REFUSED = 7, 9, 6, 10, 11, 5

BUILDING = {1: FAILED, 4: STALE, 8: STALE, 10: NO_DEVICE, 13: FAILED, 15: LOST, 99: FAILED}
"""Of the vendor's code while a session is opened to the status that it becomes."""
RUNNING = {1: FAILED, 4: FAILED, 7: FAILED, 10: LOST, 11: TIMEOUT, 15: LOST}
"""As BUILDING, in a run."""
RUNS = (
    "NeuronExecution_setInput",
    "NeuronExecution_setOutput",
    "NeuronExecution_setBoostHint",
    "NeuronExecution_compute",
)
DEAD = "15"


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which the stub of the adapter is installed."""
    return {"LD_LIBRARY_PATH": str(build_adapter(tmp_path_factory.mktemp("vendor")))}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory, adapter: dict[str, str]) -> SessionProgram:
    result = build_session(small_graph(), tmp_path_factory.mktemp("session"), flags=SANITIZED)
    return replace(result, environment=adapter)


def fault(function: str, code: object, call: int = 1) -> dict[str, str]:
    return {"NEURON_STUB_FAULT": f"{function}:{call}={code}"}


def status_of(line: str) -> int:
    return int(line.split()[1])


@pytest.mark.slow
def test_results_are_those_of_the_references(session: SessionProgram) -> None:
    told = session.run(NEVER, 3, 2)
    assert told.said("open") == ["open 0 "] * 2
    assert told.said("run") == ["run 0 "] * 6
    assert told.said("part") == ["part 0 mdla: libneuron_adapter.so 6.0.3, device of its choice"] * 2
    assert list(told.outputs) == session.expected()


def test_calls_have_the_order_that_the_header_states(session: SessionProgram, tmp_path: Path) -> None:
    session.run(NEVER, 2, environment={"NEURON_STUB_LOG": str(tmp_path / "log")})
    calls = (tmp_path / "log").read_text().split()
    firsts = list(dict.fromkeys(calls))
    assert [name for name in firsts if name in BUILDS] == list(BUILDS)
    assert calls.count("NeuronExecution_compute") == 2
    assert calls.count("NeuronExecution_create") == 1
    frees = ["NeuronExecution_free", "NeuronCompilation_free", "NeuronModel_free"]
    assert calls[-3:] == frees, "the execution needs the compilation, which needs the model"


@pytest.mark.sampled(cases="10")
@pytest.mark.slow
@pytest.mark.parametrize("code", BUILDING)
def test_a_fault_while_opening_gives_a_status_and_a_text(code: int, session: SessionProgram) -> None:
    for function in BUILDS:
        (line,) = session.run(NEVER, 0, environment=fault(function, code)).said("open")
        assert status_of(line) == BUILDING[code], (function, line)
        assert f"{function} answered {code} (" in line
        assert "mdla 0.1.0" in line
        assert "; " in line, "the text says what to do"


@pytest.mark.sampled(cases="15")
@pytest.mark.slow
@pytest.mark.parametrize("code", BUILDING)
def test_a_fault_while_opening_leaves_the_model_to_the_cpu_if_asked(
    code: int, session: SessionProgram
) -> None:
    for function in BUILDS:
        told = session.run(AT_OPEN, 2, environment=fault(function, code))
        assert told.said("open")[0].startswith("open 0"), function
        (part,) = told.said("part")
        assert "fallback" in part
        assert f"{function} answered {code}" in part
        assert list(told.outputs) == session.expected()


@pytest.mark.slow
def test_later_calls_of_a_function_fail_as_the_first(session: SessionProgram) -> None:
    for function, count in (
        ("NeuronModel_addOperand", 6),
        ("NeuronModel_setOperandValue", 2),
        ("NeuronModel_addOperation", 3),
    ):
        (line,) = session.run(NEVER, 0, environment=fault(function, 1, count)).said("open")
        assert status_of(line) == FAILED, function


@pytest.mark.slow
def test_a_fault_in_a_run_gives_a_status_and_a_text(session: SessionProgram) -> None:
    for function in RUNS:
        for code, status in RUNNING.items():
            lines = session.run(NEVER, 3, environment=fault(function, code)).said("run")
            assert status_of(lines[0]) == status, (function, code)
            assert f"{function} answered {code} (" in lines[0]
            # A lost device stays lost; after all others the session is usable.
            assert [status_of(line) for line in lines[1:]] == ([LOST] * 2 if status == LOST else [0] * 2)


@pytest.mark.slow
def test_a_fault_in_a_run_leaves_it_to_the_cpu_if_asked(session: SessionProgram) -> None:
    for function in RUNS:
        for code in (1, 7, DEAD):
            told = session.run(AT_RUN, 2, environment=fault(function, code))
            assert [status_of(line) for line in told.said("run")] == [0, 0], (function, code)
            assert "fallback" in told.said("after")[0]
            assert list(told.outputs) == session.expected()


def test_an_operation_that_the_device_lacks_is_named(session: SessionProgram) -> None:
    refused = {"NEURON_STUB_REFUSES": str(int(NeuronOperation.MUL))}
    (line,) = session.run(NEVER, 0, environment=refused).said("open")
    assert status_of(line) == STALE
    assert "libneuron_adapter.so 6.0.3 does not support MUL" in line
    assert "operation 2 of 3" in line
    told = session.run(AT_OPEN, 1, environment=refused)
    assert list(told.outputs) == session.expected()


def test_without_the_library_the_text_says_what_was_looked_for(
    session: SessionProgram, tmp_path: Path
) -> None:
    empty = {"LD_LIBRARY_PATH": str(tmp_path)}
    (line,) = session.run(NEVER, 0, environment=empty).said("open")
    assert status_of(line) == NO_DEVICE
    assert all(f"{name}: not found" in line for name in ADAPTERS)
    assert "install NeuroPilot" in line
    told = session.run(AT_OPEN, 1, environment=empty)
    assert list(told.outputs) == session.expected()


def build_lacking(folder: Path, name: str, function: str) -> None:
    build_adapter(folder, name, [f"-D{function}={function}_absent"])


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_library_without_a_function_is_passed_over(session: SessionProgram, tmp_path: Path) -> None:
    build_lacking(tmp_path, ADAPTERS[0], "NeuronModel_finish")
    environment = {"LD_LIBRARY_PATH": str(tmp_path)}
    (line,) = session.run(NEVER, 0, environment=environment).said("open")
    assert status_of(line) == NO_DEVICE
    assert f"{ADAPTERS[0]}: no NeuronModel_finish" in line
    build_adapter(tmp_path, ADAPTERS[1])
    build_adapter(tmp_path, ADAPTERS[2], ["-DNeuron_getVersion=Neuron_getVersion_absent"])
    told = session.run(NEVER, 1, environment=environment)
    assert ADAPTERS[1] in told.said("part")[0], "the first that is complete, and not the last"
    assert list(told.outputs) == session.expected()


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.parametrize("function", ["NeuronExecution_setBoostHint", "NeuronMemory_createFromFd"])
def test_the_driver_does_without_functions_that_old_adapters_lack(
    function: str, session: SessionProgram, tmp_path: Path
) -> None:
    build_lacking(tmp_path, ADAPTERS[2], function)
    told = session.run(NEVER, 1, environment={"LD_LIBRARY_PATH": str(tmp_path)})
    assert told.said("run") == ["run 0 "]
    assert list(told.outputs) == session.expected()


def test_the_accelerator_is_chosen_by_name(session: SessionProgram, tmp_path: Path) -> None:
    """Otherwise the adapter may take the CPU without a word."""
    log = tmp_path / "log"
    environment = {"NEURON_STUB_DEVICES": "mtk-mdla", "NEURON_STUB_LOG": str(log)}
    told = session.run(NEVER, 1, environment=environment)
    assert told.said("part") == ["part 0 mdla: libneuron_adapter.so 6.0.3, mtk-mdla"]
    assert "NeuronCompilation_createForDevices" in log.read_text()
    told = session.run(NEVER, 1, environment={"NEURON_STUB_DEVICES": "mtk-gpu"})
    assert "device of its choice" in told.said("part")[0]
    for function in ("Neuron_getDeviceCount", "Neuron_getDevice", "NeuronDevice_getName"):
        told = session.run(NEVER, 1, environment={**environment, **fault(function, 4)})
        assert "device of its choice" in told.said("part")[0]
    (line,) = session.run(
        environment={**environment, **fault("NeuronCompilation_createForDevices", 10)}
    ).said("open")
    assert status_of(line) == NO_DEVICE


@pytest.mark.parametrize(
    "option",
    [
        "mdla.boost=101",
        "mdla.boost=",
        "mdla.preference=fastest",
        "mdla.speed=1",
        "mdla.priority",
        "mdla.boost=1x",
    ],
)
def test_unknown_options_are_refused(option: str, session: SessionProgram) -> None:
    (line,) = session.run(NEVER, 0, options=option).said("open")
    assert status_of(line) == REFUSED
    assert option in line


def test_options_reach_the_adapter(session: SessionProgram, tmp_path: Path) -> None:
    log = {"NEURON_STUB_LOG": str(tmp_path / "log")}
    options = "mdla.preference=sustained;mdla.priority=high;mdla.boost=100;mdla.compile=--opt-bw"
    told = session.run(NEVER, 1, options=options, environment=log)
    assert told.said("run") == ["run 0 "]
    calls = (tmp_path / "log").read_text().split()
    assert "NeuronCompilation_createWithOptions" in calls
    assert "NeuronExecution_setBoostHint" in calls
    (line,) = session.run(NEVER, 0, options="mdla.compile=--nonsense").said("open")
    assert status_of(line) == STALE
    assert "NeuronCompilation_createWithOptions" in line


@pytest.mark.parametrize(
    ("bind", "create"),
    [(1, "NeuronMemory_createFromFd"), (2, "NeuronMemory_createFromAHardwareBuffer")],
    ids=["dma-buf", "AHardwareBuffer"],
)
def test_shared_memory_is_imported_once_and_not_copied(
    bind: int, create: str, session: SessionProgram, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    told = session.run(NEVER, 3, bind=bind, environment={"NEURON_STUB_LOG": str(log)})
    assert told.said("bind") == ["bind 0 "] * 3
    assert told.said("run") == ["run 0 "] * 3
    assert list(told.outputs) == session.expected()
    calls = log.read_text().split()
    assert calls.count(create) == 3
    assert calls.count("NeuronMemory_free") == 3
    assert "NeuronExecution_setInput" not in calls
    for code, status in ((6, REFUSED), (15, LOST)):
        lines = session.run(NEVER, 0, bind=bind, environment=fault(create, code)).said("bind")
        assert status_of(lines[0]) == status
    for function in ("NeuronExecution_setInputFromMemory", "NeuronExecution_setOutputFromMemory"):
        lines = session.run(NEVER, 1, bind=bind, environment=fault(function, 4)).said("run")
        assert status_of(lines[0]) == FAILED


def test_what_the_device_compiles_is_kept(session: SessionProgram, tmp_path: Path) -> None:
    entry = tmp_path / "entry"

    def run(function: str = "", code: int = 0) -> tuple[Told, list[str]]:
        log = tmp_path / "log"
        log.unlink(missing_ok=True)
        environment = {"NEURON_STUB_LOG": str(log), **(fault(function, code) if function else {})}
        told = session.run(NEVER, 1, cache_file=str(entry), environment=environment)
        assert list(told.outputs) == session.expected()
        return told, log.read_text().split()

    run("NeuronCompilation_getCompiledNetworkSize", 7)
    assert not entry.exists(), "a network that cannot be kept is compiled at each open"
    run("NeuronCompilation_storeCompiledNetwork", 7)
    assert not entry.exists()
    _, calls = run()
    assert "NeuronModel_addOperand" in calls
    assert entry.exists()
    _, calls = run()
    assert "NeuronModel_restoreFromCompiledNetwork" in calls
    assert "NeuronModel_addOperand" not in calls
    _, calls = run("NeuronModel_restoreFromCompiledNetwork", 4)
    assert "NeuronCompilation_finish" in calls, "what cannot be restored is compiled again"


@pytest.mark.exhaustive  # test_network.py damages every number of one
@pytest.mark.slow
def test_a_damaged_network_is_refused(adapter: dict[str, str], tmp_path: Path) -> None:
    graph = small_graph()
    network = bytearray(encode_network(graph, write_tflite(graph)))
    network[100] ^= 1
    program = build_session(graph, tmp_path, Direct(bytes(network)), SANITIZED)
    (line,) = program.run(NEVER, 0, environment=adapter).said("open")
    assert status_of(line) == STALE
    assert "its checksum is wrong" in line
    told = program.run(AT_OPEN, 1, environment=adapter)
    assert list(told.outputs) == program.expected()


def test_no_symbol_of_the_vendor_is_linked(session: SessionProgram) -> None:
    folder = session.program.parent
    objects = sorted(folder.glob("mdla_*.o"))
    assert len(objects) == 5
    listed = subprocess.run(["nm", "-u", *objects], capture_output=True, text=True, check=True).stdout
    assert not re.search(r"\bNeuron", listed)
    needed = subprocess.run(
        ["readelf", "-d", session.program], capture_output=True, text=True, check=True
    ).stdout
    assert "neuron" not in needed.lower()


@pytest.mark.exhaustive
@pytest.mark.slow
def test_valgrind_finds_nothing(adapter: dict[str, str], tmp_path: Path) -> None:
    require(None if shutil.which("valgrind") else "valgrind is not installed: apt-get install valgrind")
    program = build_session(small_graph(), tmp_path, flags=("-O1", "-g"))
    checked = replace(
        program, environment=adapter, command=("valgrind", "-q", "--leak-check=full", "--error-exitcode=9")
    )
    for fallback, code in ((NEVER, 1), (AT_RUN, DEAD)):
        for function in (*BUILDS, *RUNS):
            checked.run(fallback, 2, environment=fault(function, code))
    checked.run(NEVER, 2, 2, bind=1)
    checked.run(NEVER, 1, 2, cache_file=str(tmp_path / "entry"))

"""The driver with a DSP under QEMU: what goes well, the order of remote calls, faults in every function, and a DSP that dies."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from dsp_session import (
    AT_OPEN,
    AT_RUN,
    BURST,
    FAILED,
    LOST,
    MEMORY,
    NEVER,
    NO_DEVICE,
    REFUSED,
    SANITIZED,
    STALE,
    SessionProgram,
    Told,
    build_session,
    make_emulator,
    small_graph,
)

# Compilers make driver, stand-in and DSP library, and on a new machine a C library for it, which takes minutes.
pytestmark = pytest.mark.exhaustive

HEADER = Path(__file__).parents[1] / "src/mace_target_hexagon/driver/hexagon_library.h"
DEVICE = "hexagon: compute DSP through libcdsprpc.so, 4 threads"
OUT_OF_MEMORY, UNABLE_TO_LOAD, BAD_SIGNATURE = 2, 0x80000406, 0x38
RESET, NO_SUCH, BAD_STATE = 104, 39, 0x8000040D


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> SessionProgram:
    emulator = make_emulator(tmp_path_factory.mktemp("emulator"))
    return build_session(small_graph(), tmp_path_factory.mktemp("session"), emulator)


def functions(told: Told) -> list[str]:
    """Return the names of the functions of FastRPC in the order of their calls."""
    return [line.split()[0] for line in told.calls if re.match(r"r(emote|pcmem)_|fastrpc_", line)]


def methods(told: Told) -> list[int]:
    """Return the methods that were invoked."""
    words = [line.split()[1] for line in told.calls if line.startswith("remote_handle64_invoke")]
    return [int(word, 16) >> 24 & 31 for word in words]


def test_results_are_those_of_the_references(session: SessionProgram) -> None:
    told = session.run(NEVER, 3, 2)
    assert told.said("open") == ["open 0 "] * 2
    assert told.said("run") == ["run 0 "] * 6
    # The product, 100 floats in lines of 128 bytes, lies in VTCM, because Relu reads it by vectors.
    assert told.said("part") == [f"part 0 {DEVICE}, 512 bytes of VTCM"] * 2
    assert list(told.outputs) == session.expected()


def test_calls_have_the_order_of_fastrpc(session: SessionProgram) -> None:
    """Open, load, map, run, unload, unmap, close; one call computes the region."""
    told = session.run(NEVER, 2)
    load, region, unload = (["remote_handle64_invoke"] for _ in range(3))
    assert functions(told) == [
        "rpcmem_alloc",
        "rpcmem_to_fd",
        "remote_session_control",
        "remote_session_control",
        "remote_handle64_open",
        *load,
        "fastrpc_mmap",
        *region,
        *region,
        *unload,
        "fastrpc_munmap",
        "rpcmem_free",
        "remote_handle64_close",
    ]
    assert methods(told) == [2, 5, 5, 3]
    assert " stack 131072 priority -1" in told.calls


def test_power_becomes_votes_that_end_with_the_session(session: SessionProgram) -> None:
    told = session.run(NEVER, 1, power=BURST)
    assert methods(told) == [2, 4, 5, 4, 3]
    votes = [line for line in told.calls if line.startswith("vote dcvs")]
    assert votes[0] == "vote dcvs=0 option=16 latency=1/100 corner=1/6", "turbo, at a fixed clock"
    assert all(line.endswith("corner=1/0") for line in votes[1:]), "released at rest and at close"
    latencies = [line for line in told.calls if "latency" in line and "control" in line]
    assert latencies == ["remote_handle64_control latency 1 100", "remote_handle64_control latency 0 0"]


@pytest.mark.parametrize(
    ("options", "vote"),
    [
        ("hexagon.corner=svs2", "dcvs=0 option=16 latency=1/100 corner=1/1"),
        ("hexagon.corner=nominal;hexagon.dcvs=1", "dcvs=1 option=1 latency=1/100 corner=1/4"),
        ("hexagon.latency_us=5000", "dcvs=0 option=16 latency=1/5000 corner=1/6"),
        ("hexagon.performance=burst", "dcvs=0 option=16 latency=1/40 corner=1/6"),
        ("hexagon.performance=balanced", "dcvs=0 option=16 latency=1/1000 corner=1/5"),
        ("hexagon.performance=low_power_saver;hexagon.dcvs=1", "dcvs=1 option=1 latency=1/1000 corner=1/1"),
    ],
)
def test_options_change_the_votes(session: SessionProgram, options: str, vote: str) -> None:
    told = session.run(NEVER, 1, options=options, power=BURST)
    assert told.status("run") == 0
    assert f"vote {vote}" in told.calls


@pytest.mark.parametrize(
    "options",
    [
        "hexagon.corner=fast",
        "hexagon.performance=system_settings",
        "hexagon.performance=burs",
        "hexagon.corner=",
        "hexagon.corner",
        "hexagon.dcvs=2",
        "hexagon.latency_us=0",
        "hexagon.latency_us=1000001",
        "hexagon.latency_us=99999999999999999999",
        "hexagon.unsigned=yes",
        "hexagon.threads=9",
        "hexagon.threads=all",
        "hexagon.vtcm=2",
        "hexagon.speed=1",
    ],
)
def test_unknown_options_are_refused(session: SessionProgram, options: str) -> None:
    (line,) = session.run(AT_OPEN, 0, options=options, power=BURST).said("open")
    assert line.startswith(f"open {REFUSED} ")
    assert f"the option {options} is not allowed" in line


def test_a_vote_without_power_is_refused(session: SessionProgram) -> None:
    (line,) = session.run(NEVER, 0, options="hexagon.corner=turbo").said("open")
    assert line.startswith(f"open {REFUSED} ")
    assert "set it as well" in line


def test_signed_libraries_ask_for_no_unsigned_process(session: SessionProgram) -> None:
    told = session.run(NEVER, 1, options="hexagon.unsigned=0")
    assert told.status("run") == 0
    assert [line for line in told.calls if "session_control" in line] == ["remote_session_control 1"]


def test_a_machine_without_a_dsp_says_so_and_the_cpu_computes(session: SessionProgram) -> None:
    nothing = {"LD_LIBRARY_PATH": "/nowhere"}
    (line,) = session.run(NEVER, 0, environment=nothing).said("open")
    assert line.startswith(f"open {NO_DEVICE} ")
    assert "libcdsprpc.so: not found, libadsprpc.so: not found, so there is no FastRPC; " in line
    told = session.run(AT_OPEN, 1, environment=nothing)
    assert "fallback" in told.said("part")[0]
    assert list(told.outputs) == session.expected()


def test_a_missing_dsp_library_is_named(session: SessionProgram) -> None:
    (line,) = session.run(NEVER, 0, environment={"ADSP_LIBRARY_PATH": "/nowhere"}).said("open")
    assert line.startswith(f"open {NO_DEVICE} ")
    assert "the DSP cannot load libm_hexagon_skel.so" in line
    assert line.endswith(
        "; copy the file of this build into a folder of ADSP_LIBRARY_PATH, which is /nowhere"
    )


def test_a_path_that_is_not_set_is_named(session: SessionProgram) -> None:
    (line,) = session.run(NEVER, 0, environment={"ADSP_LIBRARY_PATH": ""}).said("open")
    assert line.startswith(f"open {NO_DEVICE} ")
    assert "ADSP_LIBRARY_PATH is not set; set it to the folder that holds the file" in line


OPEN_FAULTS = {
    "remote_handle64_open:1=2": (MEMORY, "too little memory"),
    f"remote_handle64_open:1={UNABLE_TO_LOAD}": (NO_DEVICE, "0x80000406"),
    f"remote_handle64_open:1={BAD_SIGNATURE}": (NO_DEVICE, "refused the signature"),
    "remote_session_control:2=20": (NO_DEVICE, "takes no unsigned libraries"),
    "rpcmem_alloc:1=1": (MEMORY, "rpcmem_alloc of libcdsprpc.so gave no"),
    "rpcmem_to_fd:1=-1": (MEMORY, "rpcmem_to_fd of libcdsprpc.so answered -1"),
    f"remote_handle64_invoke:1={OUT_OF_MEMORY}": (MEMORY, "load of libcdsprpc.so answered 2"),
    "remote_handle64_invoke:1=1": (FAILED, "load of libcdsprpc.so answered 1 (0x1)"),
    f"remote_handle64_invoke:1={RESET}": (LOST, "the process on the DSP died"),
    "remote_handle64_invoke:1=kill": (LOST, "the process on the DSP died"),
    "remote_handle64_invoke:1=garbage": (STALE, "names method 2779096485"),
}


@pytest.mark.parametrize("fault", OPEN_FAULTS)
def test_a_fault_while_opening_gives_a_status_and_a_text(fault: str, session: SessionProgram) -> None:
    status, words = OPEN_FAULTS[fault]
    (line,) = session.run(NEVER, 0, fault=fault).said("open")
    assert line.startswith(f"open {status} "), line
    assert words in line
    assert "; " in line, "the text says what to do"
    told = session.run(AT_OPEN, 1, fault=fault)
    assert "fallback" in told.said("part")[0]
    assert list(told.outputs) == session.expected()


RUN_FAULTS = {
    "remote_handle64_invoke:2=1": (FAILED, "the region of libcdsprpc.so answered 1"),
    f"remote_handle64_invoke:2={0x80000401}": (FAILED, "0x80000401"),
    f"remote_handle64_invoke:2={RESET}": (LOST, "died"),
    f"remote_handle64_invoke:2={NO_SUCH}": (LOST, "died"),
    f"remote_handle64_invoke:2={BAD_STATE}": (LOST, "died"),
    "remote_handle64_invoke:2=kill": (LOST, "died"),
    "remote_handle64_invoke:2=short": (LOST, "died"),
    "fastrpc_mmap:1=1": (FAILED, "fastrpc_mmap of libcdsprpc.so answered 1"),
    f"fastrpc_mmap:1={RESET}": (LOST, "died"),
}


@pytest.mark.parametrize("fault", RUN_FAULTS)
def test_a_fault_in_a_run_gives_a_status_or_the_result_of_the_cpu(
    fault: str, session: SessionProgram
) -> None:
    status, words = RUN_FAULTS[fault]
    told = session.run(NEVER, 1, fault=fault)
    assert told.status("run") == status
    assert words in told.said("run")[0]
    assert told.outputs == ()
    told = session.run(AT_RUN, 2, fault=fault)
    assert [line.split()[1] for line in told.said("run")] == ["0", "0"]
    assert "fallback" in told.said("after")[0]
    assert list(told.outputs) == session.expected()


def test_faults_at_the_end_of_a_session_are_no_faults_of_it(session: SessionProgram) -> None:
    fault = "remote_handle64_invoke:3=1,fastrpc_munmap:1=1,remote_handle64_close:1=1"
    told = session.run(NEVER, 1, fault=fault)
    assert told.said("run") == ["run 0 "]
    assert list(told.outputs) == session.expected()


def test_every_function_of_the_header_has_its_fault() -> None:
    declared = set(re.findall(r"^  NAME\((\w+),", HEADER.read_text(encoding="utf-8"), re.MULTILINE))
    planted = {fault.split(":")[0] for fault in (*OPEN_FAULTS, *RUN_FAULTS)}
    at_the_end = {"fastrpc_munmap", "remote_handle64_close"}
    no_answer = {"rpcmem_free"}
    hints = {"remote_handle64_control"}
    assert declared == planted | at_the_end | no_answer | hints


def test_a_failing_hint_changes_nothing(session: SessionProgram) -> None:
    fault = "remote_handle64_control:1=20,remote_session_control:1=20"
    told = session.run(NEVER, 1, power=BURST, fault=fault)
    assert told.said("run") == ["run 0 "]


def test_a_refused_vote_is_told(session: SessionProgram) -> None:
    (line,) = session.run(NEVER, 1, power=BURST, fault=f"remote_handle64_invoke:2={0x4D480004}").said("run")
    assert line.startswith(f"run {REFUSED} ")
    assert "the DSP takes no votes for its clocks" in line


def test_after_a_loss_another_session_can_be_opened(session: SessionProgram) -> None:
    told = session.run(NEVER, 1, sessions=3, fault="remote_handle64_invoke:2=kill")
    assert [line.split()[1] for line in told.said("run")] == [str(LOST), "0", "0"]
    assert list(told.outputs) == session.expected()


def test_after_a_loss_nothing_more_is_asked_of_the_dsp(session: SessionProgram) -> None:
    told = session.run(NEVER, 2, fault="remote_handle64_invoke:2=kill", power=0)
    assert told.status("run") == LOST
    assert methods(told) == [2, 5]
    assert functions(told)[-2:] == ["rpcmem_free", "remote_handle64_close"]


def test_a_dsp_that_does_not_answer_is_killed_in_time(session: SessionProgram) -> None:
    told = session.run(NEVER, 1, timeout_ms=300, fault="remote_handle64_invoke:2=hang")
    (line,) = told.said("run")
    assert line.startswith(f"run {LOST} ")
    assert "did not answer in 300 ms" in line
    assert "remote_session_control 6" in told.calls
    told = session.run(AT_RUN, 1, timeout_ms=300, fault="remote_handle64_invoke:2=hang")
    assert list(told.outputs) == session.expected()


def test_a_dsp_library_of_another_build_is_refused(
    session: SessionProgram, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The same names and shapes, but other weights."""
    graph = small_graph()
    shifted = graph.weights["c"] + 1
    shifted.setflags(write=False)
    other = replace(graph, weights={"c": shifted})
    built = build_session(other, tmp_path_factory.mktemp("other"), session.emulator, flags=SANITIZED)
    folder = {"ADSP_LIBRARY_PATH": str(built.program.parent)}
    (line,) = session.run(NEVER, 0, environment=folder).said("open")
    assert line.startswith(f"open {STALE} ")
    assert "was built with another library" in line

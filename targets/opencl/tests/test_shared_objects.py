"""Contexts, queues and buffers of the application: cl_mem and AHardwareBuffer without a copy, runs that notify.

The program stub/share_probe.c makes these objects, on the library that stands in for the system's and on a
real device.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from opencl_device import require_device
from stub_session import SANITIZED, STUB, ProbeLog, build_stub

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_core.testing.probe_program import ProbeProgram, generate_session, link_probe
from mace_core.testing.requirements import require

PAGE = Path(__file__).parents[3] / "docs" / "opencl.md"
PROGRAM = ProbeProgram(STUB / "share_probe.c")
REFUSED, NO_DEVICE, FAILED = 5, 6, 11
AHARDWAREBUFFER = 2


def two_regions() -> Graph:
    """Return a model in which the device reads the input twice, and its output once more."""
    builder = Builder("m")
    x = builder.input("x", DType.F32, (1, 40, 30))
    w = builder.weight("w", np.linspace(-1, 1, 900, dtype=np.float32).reshape(30, 30))
    y = builder.one("MatMul", [builder.one("Tanh", [x]), w])
    return builder.finish([builder.one("Add", [y, x])])


@dataclass(frozen=True)
class ShareProbe:
    """The program, and the folder of the library that it finds; None for the system's."""

    program: Path
    library: Path | None = None

    def run(self, *words: str, **environment: str) -> ProbeLog:
        """Run it with words as share_probe.c explains them; it must end well.

        environment: of the stand-in, without the beginning of the names.
        """
        variables = {f"OPENCL_STUB_{name}": value for name, value in environment.items()}
        result: Mapping[str, str] = {"LD_LIBRARY_PATH": str(self.library)} if self.library else {}
        done = subprocess.run(
            [str(self.program), *words],
            env={**os.environ, **result, **variables},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return ProbeLog(tuple(done.stdout.splitlines()))


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> ShareProbe:
    folder = tmp_path_factory.mktemp("share")
    program = link_probe(PROGRAM, generate_session(two_regions(), "host+opencl"), folder, SANITIZED)
    return ShareProbe(program, build_stub(folder / "vendor"))


@pytest.mark.exhaustive
def test_shared_objects_are_used_and_given_back(probe: ShareProbe) -> None:
    """The stand-in ends the program where an object is used after its release, or never released."""
    for words in (("queue=1",), ("context=0", "queue=1"), ("bind=i",), ("bind=o",), ("runs=0",)):
        log = probe.run(*words)
        assert log.find("open") == ["0"]
        assert all(status == "0" for status in (*log.find("bind"), *log.find("run")))
        assert log.find("part")[0].startswith("opencl: stub")


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("context=2",), "opencl.contexts of mace_config.native is unknown"),
        (("context=3",), "opencl.context of mace_config.native is NULL"),
        (("queue=2",), "opencl.queue executes out of order"),
        (("queue=3",), "opencl.queue is of another context than opencl.context"),
        (("options=opencl.priority=high",), "shares its context, which has its own hints"),
        (("queue=1", "options=opencl.batching=on"), "shares its queue, which has its own hints"),
    ],
)
def test_objects_that_cannot_be_used_are_refused(
    words: tuple[str, ...], text: str, probe: ShareProbe
) -> None:
    (opened,) = probe.run(*words, EXTENSIONS="cl_qcom_priority_hint").find("open")
    assert opened.startswith(f"{REFUSED} ")
    assert text in opened
    assert "; " in opened


@pytest.mark.exhaustive
@pytest.mark.parametrize("function", ["clGetContextInfo", "clRetainContext"])
def test_a_context_that_fails_is_a_status(function: str, probe: ShareProbe) -> None:
    (opened,) = probe.run(FAIL=f"{function}:1:-34").find("open")
    assert int(opened.split()[0]) in (REFUSED, NO_DEVICE)
    assert "; " in opened
    (opened,) = probe.run(VERSION="OpenCL 1.1").find("open")
    assert opened.startswith(f"{NO_DEVICE} ")
    assert "the context that the application shares has no device of version 1.2" in opened


@pytest.mark.exhaustive
@pytest.mark.parametrize("function", ["clGetCommandQueueInfo", "clRetainCommandQueue"])
def test_a_queue_that_fails_is_a_status(function: str, probe: ShareProbe) -> None:
    (opened,) = probe.run("queue=1", FAIL=f"{function}:1:-36").find("open")
    assert int(opened.split()[0]) in (REFUSED, NO_DEVICE)
    assert "; " in opened


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("words", "environment", "text"),
    [
        (("foreign=1",), {}, "the cl_mem is of another context than the session's; share that context"),
        (("stated=64",), {}, "bytes, and 4864 are stated; state at most as many"),
        (("offset=100",), {}, "the tensor begins at 100 in the buffer; begin it at a multiple of 256"),
        (("kind=1",), {}, "give one of MACE_HOST MACE_AHARDWAREBUFFER MACE_CL_MEM"),
        (("flags=0x40000001",), {}, "the cl_mem is an image or a pipe; give a buffer"),
        (
            (f"kind={AHARDWAREBUFFER}",),
            {},
            "imports no AHardwareBuffer, neither as Arm's nor as Qualcomm's do",
        ),
        ((), {"FAIL": "clGetMemObjectInfo:5:-38"}, "clGetMemObjectInfo answered -38"),
        ((), {"FAIL": "clRetainMemObject:2:-38"}, "clRetainMemObject answered -38"),
    ],
)
def test_buffers_that_cannot_be_used_are_refused(
    words: tuple[str, ...], environment: dict[str, str], text: str, probe: ShareProbe
) -> None:
    log = probe.run(*words, **environment)
    assert log.find("open") == ["0"]
    (bound,) = log.find("bind")
    assert bound.startswith(f"{REFUSED} ")
    assert text in bound


@pytest.mark.exhaustive
@pytest.mark.parametrize(("flags", "port"), [("2", 0), ("4", 1)])
def test_a_buffer_for_the_other_direction_is_refused(flags: str, port: int, probe: ShareProbe) -> None:
    for run in probe.run(f"flags={flags}").find("run"):
        assert run.startswith(f"{REFUSED} ")
        assert f"the cl_mem of port {port} of the part was made for the other direction" in run


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("extensions", "imported"),
    [
        ("cl_arm_import_memory cl_arm_import_memory_android_hardware_buffer", ""),
        ("cl_qcom_android_ahardwarebuffer_host_ptr", " 4119 40a5"),
        ("cl_qcom_ext_host_ptr_iocoherent cl_qcom_android_ahardwarebuffer_host_ptr", " 4119 40a9"),
    ],
)
def test_a_hardware_buffer_of_android_is_imported(extensions: str, imported: str, probe: ShareProbe) -> None:
    """The stand-in takes any address for such a buffer, and prints the number that stands there."""
    log = probe.run(f"kind={AHARDWAREBUFFER}", "runs=1", EXTENSIONS=extensions)
    assert [line.split(" ", 1)[-1] for line in log.find("bind")] == ["0", "0"]
    first, second = log.find("import")
    assert first == second
    assert first.split(" ", 1)[1:] == ([imported.strip()] if imported else [])
    failed = probe.run(f"kind={AHARDWAREBUFFER}", FAIL="clCreateBuffer:8:-6", EXTENSIONS=extensions)
    assert any(line.startswith(f"{REFUSED} ") for line in failed.find("bind"))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("words", "environment", "notices"),
    [
        ((), {}, 1),
        ((), {"DELAY": "5"}, 1),
        ((), {"FAIL": "clSetEventCallback:1:-5"}, 1),
        (("bind=",), {}, 1),
    ],
)
def test_a_run_notifies_when_it_has_ended(
    words: tuple[str, ...], environment: dict[str, str], notices: int, probe: ShareProbe
) -> None:
    log = probe.run("submit=1", *words, **environment)
    assert log.find("run") == ["0", "0"]
    assert log.find("notices") == [str(notices)] * 2


@pytest.mark.exhaustive
def test_a_run_that_the_device_ended_with_an_error_notifies_too(probe: ShareProbe) -> None:
    log = probe.run("submit=1", "runs=1", STATE="-14")
    (run,) = log.find("run")
    assert run.startswith(f"{FAILED} ")
    assert log.find("notices") == ["1"]


@pytest.mark.device
@pytest.mark.slow
def test_a_buffer_that_is_bound_again_at_another_place_is_read_there(tmp_path: Path) -> None:
    require_device()
    program = link_probe(PROGRAM, generate_session(two_regions(), "host+opencl"), tmp_path, SANITIZED[:2])
    log = ShareProbe(program).run("move=512", "runs=1")
    assert log.find("bind") == ["0"] * 4
    assert log.find("same") == ["1", "1"]


@pytest.mark.device
@pytest.mark.exhaustive
def test_a_device_computes_in_buffers_of_the_application(tmp_path: Path) -> None:
    require_device()
    program = link_probe(PROGRAM, generate_session(two_regions(), "host+opencl"), tmp_path, SANITIZED[:2])
    share = ShareProbe(program)
    for words in (
        ("queue=1",), ("context=0", "queue=1", "submit=1"), ("offset=512",), ("bind=i", "submit=1"), ("bind=o",)
    ):  # fmt: skip
        log = share.run(*words)
        assert log.find("open") == ["0"]
        assert all(status == "0" for status in (*log.find("bind"), *log.find("run")))
        assert log.find("same") == ["1", "1"]
    (bound,) = share.run("context=0").find("bind")
    assert bound.startswith(f"{REFUSED} ")
    assert "of another context" in bound


@pytest.mark.exhaustive
def test_the_example_of_the_page_compiles_as_c_and_as_cpp(tmp_path: Path) -> None:
    require(None if shutil.which("g++") else "g++ is not installed: apt-get install g++")
    (example,) = re.findall(r"```c\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    example = example.replace("vision", "session").replace('"classifier"', '"m"')
    program = tmp_path / "example.c"
    program.write_text(
        f"{example}\nint main(void) {{ return classify(NULL, NULL, NULL, NULL, NULL, 0) == 0; }}\n",
        encoding="utf-8",
    )
    link_probe(ProbeProgram(program), generate_session(two_regions(), "host+opencl"), tmp_path / "c")
    folders = {path.parent for name in ("session.h", "mace.h") for path in (tmp_path / "c").rglob(name)}
    assert folders
    cpp = tmp_path / "example.cc"
    cpp.write_text(program.read_text(encoding="utf-8"), encoding="utf-8")
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers", "-fsyntax-only"]
    subprocess.run(["g++", *flags, *(f"-I{folder}" for folder in folders), str(cpp)], check=True)

"""Tests that PTX is recognized by its content and assembled, and that each fault of ptxas is reported."""

from __future__ import annotations

from pathlib import Path

import pytest
from cuda_toolkit import CUBIN, PTX, write_toolkit

from mace_core.errors import MaceError
from mace_core.testing.requirements import require
from mace_target_opencl import ptx
from mace_target_opencl.target import Opencl


@pytest.fixture(autouse=True)
def no_toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide what this machine has installed."""
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    for name in ptx.FOLDERS:
        monkeypatch.delenv(name, raising=False)


def assemble_by(body: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> bytes | None:
    """Assemble the sample by a stand-in for ptxas that runs this Python."""
    monkeypatch.setenv("CUDA_HOME", str(write_toolkit(folder, body)))
    return Opencl().assemble(PTX)


@pytest.mark.parametrize(
    "code",
    [
        b"",
        CUBIN,
        b"pocl000\0 .version 8.7\n.target sm_90\n",
        b".target sm_90\n.version 8.7\n",
        b"// .version 8.7",
        b"/* .version 8.7 */",
        b"/*" + b" */ /* " * 9000 + b".version 8.7",
        b"//\n" * 30000 + PTX,
    ],
)
def test_other_binaries_are_left_alone(code: bytes) -> None:
    """They need no tool: none is there, and nothing is refused."""
    assert Opencl().assemble(code) is None


@pytest.mark.parametrize(
    "target",
    [b"compute_90", b"sm_9", b"sm_9000", b"sm_90x", b"sm_90_", b"sm_--help", b"'sm_90'", b"", b"\xff\0sm_90"],
)
def test_what_is_no_architecture_is_no_option_of_a_tool(target: bytes) -> None:
    with pytest.raises(MaceError, match=r"names no architecture, as in \.target sm_90"):
        Opencl().assemble(PTX.replace(b"sm_90", target, 1))


def test_without_the_toolkit_one_text_says_what_that_costs() -> None:
    with pytest.raises(MaceError) as error:
        Opencl().assemble(PTX)
    assert str(error.value) == (
        "ptxas: is neither on PATH nor in the folder bin of CUDA_HOME or CUDA_PATH, so binaries stay PTX, which NVIDIA's "
        "driver compiles at each load where its own cache is empty (seconds, once on each machine); install the CUDA "
        "toolkit, and run mace tune again"
    )


RECORD = """
source = open(sys.argv[-1], "rb").read()
assert source.endswith(b"}\\n"), source
assert sys.stdin.read() == ""
with open(sys.argv[sys.argv.index("-o") + 1], "wb") as file:
    file.write(b"\\x7fELF\\2\\1" + bytes(10) + b"\\2\\0" + bytes([190, 0]) + sys.argv[1].encode())
"""


@pytest.mark.parametrize(
    ("target", "option"),
    [(b"sm_90", b"-arch=sm_90"), (b"sm_90a", b"-arch=sm_90a"), (b"/* of a B200 */ sm_100", b"-arch=sm_100")],
)
@pytest.mark.parametrize("variable", ["CUDA_HOME", "CUDA_PATH", "PATH"])
def test_the_architecture_is_that_of_the_ptx(
    variable: str, target: bytes, option: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toolkit = write_toolkit(tmp_path, RECORD)
    monkeypatch.setenv(variable, str(toolkit / "bin" if variable == "PATH" else toolkit))
    code = PTX.replace(b".target sm_90", b"// its target\n.target " + target)
    if b"/*" in target:
        code = code.replace(b".target /* of a B200 */", b"/* of a B200 */ .target")
    result = Opencl().assemble(code)
    assert result is not None
    assert result.endswith(option)


def test_a_path_from_here_is_found_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toolkit = write_toolkit(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_HOME", toolkit.name)
    assert Opencl().assemble(PTX) == CUBIN


FAULTS = {
    "print('ptxas kernels.ptx, line 5; fatal : no \\x1b[31m')\nsys.exit(255)": (
        r"exited with status 255: ptxas kernels\.ptx, line 5; fatal : no \?\[31m;"
    ),
    "sys.exit(1)": "exited with status 1: it printed no error;",
    "os.kill(os.getpid(), 9)": "exited with status -9: it printed no error;",
    "pass": "wrote nothing;",
    "open('kernels.cubin', 'wb').close()": "wrote nothing;",
    "open('kernels.cubin', 'wb').write(b'text' * 9)": "wrote no machine code;",
    "open('kernels.cubin', 'wb').write(b'\\x7fELF')": "wrote no machine code;",
    "os.mkdir('kernels.cubin')": "wrote nothing;",
}


@pytest.mark.parametrize("body", FAULTS)
def test_a_fault_of_ptxas_is_told(body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MaceError, match=f"ptxas: {FAULTS[body]} the binaries stay PTX"):
        assemble_by(body, tmp_path, monkeypatch)


def test_ptxas_that_hangs_is_ended_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child would hold a pipe open and write after the time."""
    monkeypatch.setattr(ptx, "MAX_SECONDS", 1)
    child = f"import time; time.sleep(2); open({str(tmp_path / 'late')!r}, 'w').close()"
    body = f"subprocess.Popen([sys.executable, '-c', {child!r}]).wait()"
    with pytest.raises(MaceError, match=r"ptxas: did not end within 1 s; the binaries stay PTX"):
        assemble_by(body, tmp_path, monkeypatch)
    assert not (tmp_path / "late").exists()


def test_a_file_that_is_no_program_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toolkit = write_toolkit(tmp_path)
    (toolkit / "bin" / "ptxas").write_bytes(b"\x7fELF no program")
    monkeypatch.setenv("CUDA_HOME", str(toolkit))
    with pytest.raises(MaceError, match="ptxas: cannot be started: Exec format error"):
        Opencl().assemble(PTX)


def test_ptxas_assembles_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    require(None if ptx.find_ptxas() else "ptxas is not installed: put it on PATH, or set CUDA_HOME")
    code = ptx.assemble_ptx(PTX)
    assert code is not None
    assert ptx.is_cubin(code)
    assert b".text.add_one" in code
    # Machine code is not assembled once more.
    assert ptx.assemble_ptx(code) is None
    with pytest.raises(MaceError, match=r"exited with status \d+: ptxas kernels\.ptx, line \d+; .*wrong"):
        ptx.assemble_ptx(PTX.replace(b"add.f32", b"wrong.f32"))

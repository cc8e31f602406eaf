"""Assembles PTX, which NVIDIA's driver gives out as the binary of a program, by ptxas of the CUDA toolkit.

The driver compiles PTX at each load, unless its own cache has the result: 1.6 of the 1.9 seconds in which a
session of MobileNetV2 opens on an H200. What ptxas writes (a cubin) is loaded in half a millisecond.
The format: https://docs.nvidia.com/cuda/parallel-thread-execution, "PTX Module Directives".
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import struct
import subprocess
import tempfile
from pathlib import Path

from mace_core.errors import MaceError

PTXAS = "ptxas"
FOLDERS = ("CUDA_HOME", "CUDA_PATH")
"""Environment variables that name the toolkit's folder, as its documentation and frameworks have them."""

MAX_SECONDS = 600
"""An H200's kernels of MobileNetV2 take 1.4 s; a tool that takes so long hangs."""

HEAD_BYTES = 1 << 16
MAX_QUOTED = 160
MAX_LOG = 1 << 14

# Possessive and atomic: comments of a file that is none of ours could else be split up in many ways.
SKIPPED = rb"(?>[ \t\r\n]+|//[^\n]*\n|/\*(?s:.*?)\*/)*+"
VERSION = re.compile(SKIPPED + rb"\.version[ \t]+[0-9]+\.[0-9]+")
ARCHITECTURE = re.compile(VERSION.pattern + SKIPPED + rb"\.target[ \t]+(sm_[0-9]{2,3}[af]?)(?![0-9A-Za-z_])")

ELF_HEAD = struct.Struct("<4sBB10xHH")
"""Magic number, 64 bits, order of bytes, type, machine."""

CUDA_MACHINE = 190
"""EM_CUDA of the table of machines in the ELF specification."""


def assemble_ptx(code: bytes) -> bytes | None:
    """Return what ptxas makes of the binary of a program; None for one that is no PTX.

    MaceError where there is no ptxas, or it fails.
    """
    if not VERSION.match(code[:HEAD_BYTES]):
        return None
    architecture = ARCHITECTURE.match(code[:HEAD_BYTES])
    if architecture is None:
        raise MaceError("PTX of the device", "names no architecture, as in .target sm_90", "report a bug")
    ptxas = find_ptxas()
    if ptxas is None:
        raise MaceError(
            PTXAS,
            f"is neither on PATH nor in the folder bin of {' or '.join(FOLDERS)}, so binaries stay PTX, "
            "which NVIDIA's driver compiles at each load where its own cache is empty "
            "(seconds, once on each machine)",
            "install the CUDA toolkit, and run mace tune again",
        )
    with tempfile.TemporaryDirectory(prefix="mace-ptx") as folder:
        return _run_ptxas(ptxas, architecture[1].decode(), code, Path(folder))


def find_ptxas() -> str | None:
    """Return the path of ptxas; None if it is not installed."""
    folders = [os.path.join(os.environ[name], "bin") for name in FOLDERS if os.environ.get(name)]
    for folder in (*folders, None):
        if ptxas := shutil.which(PTXAS, path=folder):
            # It runs in another folder.
            return os.path.abspath(ptxas)
    return None


def _run_ptxas(ptxas: str, architecture: str, code: bytes, folder: Path) -> bytes:
    source, cubin, log = folder / "kernels.ptx", folder / "kernels.cubin", folder / "log"
    # The driver ends its text with a 0, which ptxas takes for a character of it.
    source.write_bytes(code.rstrip(b"\0"))
    status = _execute([ptxas, f"-arch={architecture}", "-o", cubin.name, source.name], folder, log)
    if status:
        raise _fail(f"exited with status {status}: {_quote_error(log)}")
    content = cubin.read_bytes() if cubin.is_file() else b""
    if not is_cubin(content):
        raise _fail(f"wrote {'no machine code' if content else 'nothing'}")
    return content


def _execute(words: list[str], folder: Path, log: Path) -> int:
    """Run a command for a limited time and return its exit status; what it prints goes to a file.

    Not to a pipe, whose end a process that outlives the command would hold open.
    """
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(  # noqa: S603  # a list of words: no shell, no option from the device
                words,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise _fail(f"cannot be started: {error.strerror}") from None
        try:
            return process.wait(MAX_SECONDS)
        except subprocess.TimeoutExpired:
            raise _fail(f"did not end within {MAX_SECONDS} s") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _quote_error(log: Path) -> str:
    """Return the first line that tells an error, without what could command a terminal."""
    with log.open("rb") as file:
        lines = file.read(MAX_LOG).decode(errors="replace").splitlines()
    line = next((line for line in lines if "error" in line or "fatal" in line), "it printed no error")
    return "".join(sign if sign.isprintable() else "?" for sign in line)[:MAX_QUOTED]


def _fail(problem: str) -> MaceError:
    remedy = (
        "the binaries stay PTX; install the CUDA toolkit of the driver's version, and run mace tune again"
    )
    return MaceError(PTXAS, problem, remedy)


def is_cubin(content: bytes) -> bool:
    """Tell whether a file is machine code for GPUs of NVIDIA: an ELF file of 64 bits for their machine."""
    if len(content) < ELF_HEAD.size:
        return False
    magic, bits, order, _, machine = ELF_HEAD.unpack_from(content)
    return (magic, bits, order, machine) == (b"\x7fELF", 2, 1, CUDA_MACHINE)

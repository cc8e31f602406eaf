"""A library between the driver and the system's OpenCL, which gives a processor's device more extensions."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

from stub_session import HEADERS, STUB

from mace_core.run import native
from mace_core.testing.compiled import host


def choose_library(library: Path) -> native.Config:
    """Return the configuration of a session with this OpenCL library."""
    options = f"opencl.library={library}".encode()
    return native.Config(struct_bytes=ctypes.sizeof(native.Config), options=options)


def build_shim(folder: Path) -> Path:
    """Build the library that gives the extension to a processor's device."""
    compiler, library = host(), folder / "libpool.so"
    command = [*compiler.cc, *compiler.flags, "-std=gnu11", "-O1", "-fPIC", "-shared", f"-I{HEADERS}"]
    source = str(STUB / "opencl_pool_shim.c")
    linked = ["-Wl,--no-as-needed", "-l:libOpenCL.so.1"]
    subprocess.run([*command, source, "-o", str(library), *linked], check=True)
    return library

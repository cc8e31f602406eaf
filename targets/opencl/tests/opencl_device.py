"""What tests with a real OpenCL device need: a device, and a library with a session of a graph on it."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from mace_core.ir import Array, Graph
from mace_core.run import native
from mace_core.testing.compiled import generate_library, load_library
from mace_core.testing.requirements import require
from mace_target_opencl.target import Opencl

LIBRARY = "libOpenCL.so.1"


@cache
def find_missing() -> str | None:
    """Return None if a device can compute here; otherwise what to install."""
    remedy = "install pocl-opencl-icd and ocl-icd-libopencl1 for tests of OpenCL"
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return f"{LIBRARY} is not installed: {remedy}"
    count = ctypes.c_uint32()
    status = library.clGetPlatformIDs(0, None, ctypes.byref(count))
    return None if status == 0 and count.value else f"no OpenCL driver is installed: {remedy}"


def require_device() -> None:
    """Skip a test without a device, or fail where tools are required."""
    require(find_missing())


def load_on_device(
    graphs: Sequence[Graph], folder: Path, target: Opencl | None = None
) -> dict[str, native.LoadedModel]:
    """Return a session of each graph, computed completely by the device.  target: with other options."""
    return load_library(generate_library([target or Opencl()], graphs), folder)


def measure_error(actual: Array, expected: Array) -> float:
    """Return the largest difference, relative to the largest expected magnitude."""
    scale = max(1e-30, float(np.abs(expected).max(initial=0)))
    return float(np.abs(actual - expected).max(initial=0)) / scale


def require_clang() -> str:
    """Return the path of clang; without one the test is skipped, or fails where tools are required."""
    clang = shutil.which("clang-15") or shutil.which("clang")
    require(None if clang else "no clang: install clang-15, which PoCL 3.1 depends on")
    return str(clang)


def compile_by_clang(source: str, folder: Path, version: str = "CL1.2", defines: Sequence[str] = ()) -> str:
    """Return the LLVM code of kernels for a device with every extension; warnings fail the test.

    PoCL has few extensions, but the compiler that it brings knows them.
    defines: macros that the driver defines for the extensions that a device lists.
    """
    clang = require_clang()
    kernels, code = folder / "kernels.cl", folder / "kernels.ll"
    kernels.write_text(source, encoding="utf-8")
    options = ["-x", "cl", f"-cl-std={version}", "-Xclang", "-finclude-default-header", "-Wall"]
    options += [f"-D{name}" for name in defines]
    command = [clang, *options, "-target", "spir64", "-S", "-emit-llvm", str(kernels), "-o", str(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return code.read_text(encoding="utf-8")

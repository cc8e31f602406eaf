"""Proves that a fault changes nothing: what the compilers make of the code is the same with it and without it.

The proof is trivial compiler equivalence (Papadakis, Jia, Harman and Le Traon, 2015). A fault of a Python module is
equivalent if its byte code is equal. One of a C template is if the assembly of every kernel made from it is equal, of
each type and set of parameters that the tests of the CPU target have, at each level of each processor, by each
compiler that is installed. A fault that no rendered text shows is none: nothing is proved about it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType

RENDER = Path(__file__).with_name("kernel_code.py")

ZIG = (sys.executable, "-m", "ziglang", "cc", "-target")
COMPILERS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "amd64": (("gcc",), ("clang",), (*ZIG, "x86_64-linux-musl")),
    "riscv64": (("riscv64-linux-gnu-gcc",), (*ZIG, "riscv64-linux-musl")),
    "arm64": (("aarch64-linux-gnu-gcc",), (*ZIG, "aarch64-linux-musl")),
    "armhf": (
        ("arm-linux-gnueabihf-gcc", "-march=armv7-a", "-mfpu=neon"),
        (*ZIG, "arm-linux-musleabihf", "-mcpu=cortex_a9"),
    ),
}
"""ABI -> commands of its compilers; those that do not run on this machine are left out."""

OPTIMIZATION = "-O2"


def has_equal_byte_code(before: bytes, after: bytes) -> bool:
    """Tell whether two modules are compiled to the same instructions and constants; lines do not count."""
    return _describe_code(compile(before, "module", "exec")) == _describe_code(
        compile(after, "module", "exec")
    )


def _describe_code(code: CodeType) -> tuple[object, ...]:
    """Return what a code object does; constants with their types, because 1 == True == 1.0."""
    constants = [
        _describe_code(value) if isinstance(value, CodeType) else (type(value).__name__, repr(value))
        for value in code.co_consts
    ]
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_flags)
    return (code.co_code, code.co_argcount, code.co_kwonlyargcount, *names, *constants)


def prove_equal_objects(template: str, before: Path, after: Path, environment: Mapping[str, str]) -> str:
    """Return the proof that a template of the CPU target makes the same kernels in two checkouts; "" if it does not.

    environment: of the processes that render, without PYTHONPATH.
    """
    with tempfile.TemporaryDirectory(prefix="equivalence-") as folder:
        sides = (Path(folder) / "before", Path(folder) / "after")
        for checkout, side in zip((before, after), sides, strict=True):
            side.mkdir()
            if not _render(template, checkout, side, environment):
                return ""
        return _compare(*sides)


def _render(template: str, checkout: Path, folder: Path, environment: Mapping[str, str]) -> bool:
    """Write the kernels of a template as a checkout makes them; False if it cannot."""
    sources = [checkout / "core/src", *sorted(checkout.glob("*/*/src"))]
    words = [sys.executable, str(RENDER), template, str(folder)]
    path = os.pathsep.join(map(str, sources))
    done = subprocess.run(  # noqa: S603  # our own program
        words, cwd=checkout, env={**environment, "PYTHONPATH": path}, check=False, capture_output=True
    )
    return not done.returncode


def _compare(before: Path, after: Path) -> str:
    """Return the proof that the units of two folders are compiled alike; "" for the first that is not."""
    units: dict[str, dict[str, list[str]]] = json.loads((before / "units.json").read_text())
    if units != json.loads((after / "units.json").read_text()) or not _have_equal_headers(before, after):
        return ""
    compilers: set[str] = set()
    changed = [(abi, *unit) for abi in units for unit in units[abi].items()]
    changed = [(a, unit, f) for a, unit, f in changed if _differ(before / a / unit, after / a / unit)]
    for abi, unit, flags in changed:
        # Only a compiler that can compile the unit says anything about it, and one must.
        said = dict(_compile_both(abi, unit, flags, (before, after)))
        if not said or not all(said.values()):
            return ""
        compilers |= said.keys()
    if not changed:
        return ""
    names = ", ".join(sorted({unit.rpartition("_kernels_")[2].removesuffix(".c") for _, unit, _ in changed}))
    return f"equal object code at {OPTIMIZATION} of {len(changed)} units ({names}) by {', '.join(sorted(compilers))}"


def _have_equal_headers(before: Path, after: Path) -> bool:
    return not any(_differ(path, after / path.relative_to(before)) for path in before.glob("**/*.h"))


def _differ(before: Path, after: Path) -> bool:
    return before.read_bytes() != after.read_bytes()


def _compile_both(
    abi: str, unit: str, flags: list[str], folders: tuple[Path, Path]
) -> Iterator[tuple[str, bool]]:
    """Yield each compiler that can compile a unit of both folders, and whether it makes the same of them."""
    for compiler in COMPILERS[abi]:
        if shutil.which(compiler[0]):
            words = [*compiler, *flags, "-std=gnu11", "-w", OPTIMIZATION, "-g0", "-c", "-o", "unit.o", unit]
            first, second = (_compile(words, folder / abi) for folder in folders)
            if first and second:
                name = "zig" if "ziglang" in compiler else Path(compiler[0]).name
                yield name, first == second
                if first != second:
                    return


def _compile(words: list[str], folder: Path) -> bytes:
    """Return the object that a compiler makes; nothing if it fails."""
    done = subprocess.run(words, cwd=folder, check=False, capture_output=True)  # noqa: S603  # a compiler
    return b"" if done.returncode else (folder / "unit.o").read_bytes()

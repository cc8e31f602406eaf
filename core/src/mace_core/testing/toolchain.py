"""The contract of toolchains, as tests that run for each ABI.

A toolchain's tests/test_contract.py needs only a class TestMine(ToolchainContract) with `toolchain = Mine()`.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import ClassVar

import pytest

from mace_core.api import Compiler, Toolchain
from mace_core.run.compile import WARNINGS
from mace_core.run.runners import processor
from mace_core.testing.plugin import PluginContract
from mace_core.testing.requirements import require

PROBE = files("mace_core.testing") / "probe"
FLAGS = (*WARNINGS, "-O2", "-g0", "-fPIC", "-fvisibility=hidden")
BARE_FLAGS = (*WARNINGS, "-O2", "-g0")
REMEDY = re.compile(r"\b(install|set|connect|point)\b")
HELLO = "hello 5 9 2.5e+11\n"
"""What the probe prints for the argument 3: results of libm, of integers and of a large float."""

SHARED = 3
"""ET_DYN: the e_type of a shared object."""

ELF_MACHINES: Mapping[str, int] = {
    "x86_64": 62,
    "aarch64": 183,
    "arm": 40,
    "armv7l": 40,
    "i386": 3,
    "riscv64": 243,
}
"""e_machine by processor, from the registry of the ELF specification."""

PROCESSORS: Mapping[str, str] = {
    "amd64": "x86_64",
    "x86_64": "x86_64",
    "x86": "i386",
    "riscv64": "riscv64",
    "arm64": "aarch64",
    "armhf": "arm",
    "arm64-v8a": "aarch64",
    "armeabi-v7a": "arm",
    "cortex-m4": "arm",
}
"""Processor by ABI, for the ABIs that the project knows; objects for others are not checked."""


def elf(path: Path) -> tuple[int, int]:
    """Return e_type and e_machine of a little-endian ELF file."""
    identity, kind, machine = struct.unpack_from("<16sHH", path.read_bytes())
    assert identity[:4] == b"\x7fELF", f"{path.name} is no ELF file"
    return kind, machine


class ToolchainContract(PluginContract):
    """Tests of a toolchain for every ABI: derive a class and set `toolchain`.

    An ABI that is not ready is skipped.
    """

    kind = "toolchain"
    toolchain: ClassVar[Toolchain]
    emulated: ClassVar[frozenset[str]] = frozenset()
    """ABIs whose programs are slow to link or run; their test has the markers `slow` and `emulator`."""

    @property
    def name(self) -> str:
        """The toolchain's name."""
        return self.toolchain.name

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run every test for every ABI."""
        if "abi" not in metafunc.fixturenames:
            return
        apart = self.emulated if metafunc.function.__name__ == "test_program" else frozenset()
        marks = (pytest.mark.slow, pytest.mark.emulator)
        metafunc.parametrize(
            "abi", [pytest.param(abi, marks=marks) if abi in apart else abi for abi in self.toolchain.abis]
        )

    def test_names(self) -> None:
        """The toolchain and its ABIs have names that can be typed, and descriptions."""
        assert self.toolchain.abis
        for name in (self.toolchain.name, *self.toolchain.abis):
            assert re.fullmatch(r"[a-z0-9][a-z0-9_.-]*", name), name
        assert all(words.strip() for words in self.toolchain.abis.values())

    def test_missing_is_stable_and_helps(self, abi: str) -> None:
        """`missing` answers the same when it is asked twice, and an answer says what to do."""
        reason = self.toolchain.missing(abi)
        assert reason == self.toolchain.missing(abi)
        assert reason is None or REMEDY.search(reason), f"no remedy in: {reason}"

    def test_object(self, abi: str, tmp_path: Path) -> None:
        """An object is for the ABI's processor, and does not depend on the folder where it is compiled."""
        compiler = self._ready(abi)
        folders = [tmp_path / "one", tmp_path / "another" / "folder"]
        first, second = (_objects(compiler, folder)[0] for folder in folders)
        assert first.read_bytes() == second.read_bytes()
        assert str(tmp_path).encode() not in first.read_bytes()
        _check_machine(first, abi)

    def test_archive(self, abi: str, tmp_path: Path) -> None:
        """An archive contains no dates, so that two of the same objects are equal."""
        compiler = self._ready(abi)
        objects = _objects(compiler, tmp_path)
        for name in ("one.a", "two.a"):
            _run([*compiler.ar, "rcsD", name, *(o.name for o in objects)], tmp_path)
        assert (tmp_path / "one.a").read_bytes() == (tmp_path / "two.a").read_bytes()

    def test_shared_library(self, abi: str, tmp_path: Path) -> None:
        """A shared library links, exports its function, and does not contain the path of its folder."""
        compiler = self._ready(abi)
        if not compiler.hosted:
            pytest.skip("no operating system, no shared libraries")
        kernel = _objects(compiler, tmp_path)[0]
        library = tmp_path / "probe.so"
        _run(
            [
                *compiler.cc,
                *compiler.flags,
                *compiler.shared,
                "-o",
                library.name,
                kernel.name,
                *compiler.libs,
            ],
            tmp_path,
        )
        assert b"mace_probe" in library.read_bytes()
        assert str(tmp_path).encode() not in library.read_bytes()
        if _check_machine(library, abi):
            assert elf(library)[0] == SHARED

    def test_program(self, abi: str, tmp_path: Path) -> None:
        """A program links with an archive, and prints the right numbers if there is a runner for it."""
        compiler = self._ready(abi)
        if not compiler.hosted:
            self._bare_program(compiler, abi, tmp_path)
            return
        kernel, hello = _objects(compiler, tmp_path)
        program = tmp_path / "hello"
        _run([*compiler.ar, "rcsD", "probe.a", kernel.name], tmp_path)
        command = [
            *compiler.cc,
            *compiler.flags,
            *compiler.program,
            "-s",  # as builds link, so that zig makes one C library for both
            "-o",
            program.name,
            hello.name,
            "probe.a",
            "-pthread",
        ]
        _run([*command, *compiler.libs], tmp_path)
        _check_machine(program, abi)
        runner = self.toolchain.runner(abi)
        if runner is None:
            return
        require(runner.missing())
        assert _run(runner.command(program, ["3"]), tmp_path) == HELLO

    def _bare_program(self, compiler: Compiler, abi: str, folder: Path) -> None:
        """Link a program that has its own start code, with only the routines of the compiler."""
        (probe,) = _objects(compiler, folder)
        _run(
            [*compiler.cc, *compiler.flags, *compiler.program, "-o", "bare", probe.name, *compiler.libs],
            folder,
        )
        _check_machine(folder / "bare", abi)

    def _ready(self, abi: str) -> Compiler:
        require(self.toolchain.missing(abi))
        compiler = self.toolchain.compiler(abi)
        assert compiler.libc.strip()
        return compiler


def _check_machine(path: Path, abi: str) -> bool:
    """Assert that a file is for the ABI's machine; return whether that machine is known."""
    known = PROCESSORS.get(abi, "")
    if abi == "host" and sys.platform == "linux":
        known = processor()
    if known not in ELF_MACHINES:
        return False
    assert elf(path)[1] == ELF_MACHINES[known]
    return True


def _objects(compiler: Compiler, folder: Path) -> list[Path]:
    """Copy the probe's sources into the folder and compile them by absolute path."""
    folder.mkdir(parents=True, exist_ok=True)
    names, flags = (("kernel", "hello"), FLAGS) if compiler.hosted else (("bare",), BARE_FLAGS)
    objects = []
    for name in names:
        with as_file(PROBE / f"{name}.c") as packaged:
            source = folder / f"{name}.c"
            source.write_bytes(packaged.read_bytes())
        _run([*compiler.cc, *compiler.flags, *flags, "-c", "-o", f"{name}.o", str(source)], folder)
        objects.append(folder / f"{name}.o")
    return objects


def _run(command: list[str], folder: Path) -> str:
    """Run a command of the toolchain and return its output; a failure fails the test with its errors."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr[-4000:]}"
    return done.stdout

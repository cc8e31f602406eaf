"""What the libraries ask of the system that loads them."""

import re
import subprocess
from pathlib import Path

import pytest

from mace_core.testing.requirements import require
from mace_core.testing.toolchain import FLAGS, PROBE
from mace_toolchain_zig import Zig, bionic
from mace_toolchain_zig.abis import ABIS

SOFT_FLOAT, HARD_FLOAT = 0x200, 0x400
"""e_flags: how floats travel (ELF for the Arm Architecture, EF_ARM_ABI_FLOAT_*)."""


def _library(abi: str, folder: Path) -> bytes:
    require(Zig().missing(abi))
    compiler = Zig().compiler(abi)
    (folder / "kernel.c").write_text((PROBE / "kernel.c").read_text())
    compile_it = [*compiler.cc, *compiler.flags, *FLAGS, "-c", "kernel.c"]
    link_it = [*compiler.cc, *compiler.flags, *compiler.shared, "-s", "-o", "probe.so", "kernel.o", *compiler.libs]
    for command in (compile_it, link_it):
        subprocess.run(command, cwd=folder, check=True)
    return (folder / "probe.so").read_bytes()


@pytest.mark.parametrize("abi", [n for n, a in ABIS.items() if a.hosted and not a.bionic])
def test_linux_needs_no_glibc_newer_than_the_oldest(abi: str, tmp_path: Path) -> None:
    versions = [tuple(map(int, v)) for v in re.findall(rb"GLIBC_(\d+)\.(\d+)", _library(abi, tmp_path))]
    assert versions
    oldest = (2, 27) if abi == "riscv64" else (2, 17)  # there is none older for the processor
    assert max(versions) <= oldest


@pytest.mark.parametrize("abi", [n for n, a in ABIS.items() if a.bionic])
def test_android_needs_its_libc_and_libm_only(abi: str, tmp_path: Path) -> None:
    library = _library(abi, tmp_path)
    assert sorted(re.findall(rb"\0([\w.+-]+\.so[.\d]*)(?=\0)", library)) == [b"libc.so", b"libm.so"]
    assert b"GLIBC" not in library
    assert b"__aeabi_" not in library  # what the compiler calls on 32-bit ARM has come along


@pytest.mark.parametrize(("abi", "convention"), [("armhf", HARD_FLOAT), ("armeabi-v7a", SOFT_FLOAT)])
def test_arm_float_convention(abi: str, convention: int, tmp_path: Path) -> None:
    library = _library(abi, tmp_path)
    flags = int.from_bytes(library[36:40], "little")
    assert flags & (SOFT_FLOAT | HARD_FLOAT) == convention


@pytest.mark.parametrize("abi", ["armhf", "armeabi-v7a"])
def test_arm_multiplies_four_floats_at_once(abi: str, tmp_path: Path) -> None:
    compiler = Zig().compiler(abi)
    (tmp_path / "kernel.c").write_text((PROBE / "kernel.c").read_text())
    command = [*compiler.cc, *compiler.flags, "-O2", "-S", "-o", "kernel.s", "kernel.c"]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert re.search(r"\bvm(la|ul)\.f32\s+q", (tmp_path / "kernel.s").read_text())


def test_stubs_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiler = Zig().compiler("arm64-v8a")
    made = [Path(p) for p in compiler.shared if p.startswith(str(tmp_path))]
    assert [p.name for p in made] == list(bionic.NAMES)
    times = [p.stat().st_mtime_ns for p in made]
    assert Zig().compiler("arm64-v8a") == compiler
    assert [p.stat().st_mtime_ns for p in made] == times
    assert sorted(p.name for p in made[0].parent.iterdir()) == sorted(bionic.NAMES)

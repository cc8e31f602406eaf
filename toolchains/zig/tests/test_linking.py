"""What the libraries ask of the system that loads them."""

import io
import re
import subprocess
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from mace_core.errors import MaceError
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
    link_it = [
        *compiler.cc,
        *compiler.flags,
        *compiler.shared,
        "-s",
        "-o",
        "probe.so",
        "kernel.o",
        *compiler.libs,
    ]
    for command in (compile_it, link_it):
        subprocess.run(command, cwd=folder, check=True)
    return (folder / "probe.so").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("abi", [n for n, a in ABIS.items() if a.libc.startswith("glibc")])
def test_linux_needs_no_glibc_newer_than_the_oldest(abi: str, tmp_path: Path) -> None:
    versions = [tuple(map(int, v)) for v in re.findall(rb"GLIBC_(\d+)\.(\d+)", _library(abi, tmp_path))]
    assert versions
    oldest = (2, 27) if abi == "riscv64" else (2, 17)  # there is none older for the processor
    assert max(versions) <= oldest


@pytest.mark.sampled(cases="arm64")
@pytest.mark.slow
@pytest.mark.parametrize("abi", [n for n, a in ABIS.items() if a.bionic])
def test_android_needs_its_libc_and_libm_only(abi: str, tmp_path: Path) -> None:
    library = _library(abi, tmp_path)
    assert sorted(re.findall(rb"\0([\w.+-]+\.so[.\d]*)(?=\0)", library)) == [b"libc.so", b"libm.so"]
    assert b"GLIBC" not in library
    assert b"__aeabi_" not in library  # what the compiler calls on 32-bit ARM has come along


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("abi", [n for n, a in ABIS.items() if a.bionic])
def test_android_reads_the_dynamic_section(abi: str, tmp_path: Path) -> None:
    """The loader needs both libraries by name, a hash table that it knows, and no text relocations."""
    elf = ELFFile(io.BytesIO(_library(abi, tmp_path)))
    (dynamic,) = (s for s in elf.iter_sections() if isinstance(s, DynamicSection))
    tags = {tag.entry.d_tag for tag in dynamic.iter_tags()}
    assert [tag.needed for tag in dynamic.iter_tags("DT_NEEDED")] == ["libc.so", "libm.so"]
    assert {"DT_HASH", "DT_GNU_HASH"} <= tags  # Android reads the new table since 6.0
    assert not tags & {"DT_TEXTREL", "DT_RPATH", "DT_RUNPATH"}
    (probe,) = (s for s in elf.get_section_by_name(".dynsym").iter_symbols() if s.name == "mace_probe")
    assert probe.entry.st_shndx != "SHN_UNDEF"
    pages = [s.header.p_align for s in elf.iter_segments() if s.header.p_type == "PT_LOAD"]
    # Android 15 has devices with pages of 16 KiB.
    assert min(pages) >= (16384 if elf.elfclass == 64 else 4096)


@pytest.mark.slow
@pytest.mark.parametrize("version", [66, 68, 69, 73])
def test_hexagon_objects_are_for_their_version(version: int, tmp_path: Path) -> None:
    """QEMU and the loaders of DSPs read the version from the low byte of e_flags."""
    compiler = Zig().compiler(f"hexagon-v{version}")
    (tmp_path / "kernel.c").write_text((PROBE / "kernel.c").read_text())
    command = [*compiler.cc, *compiler.flags, *FLAGS, "-c", "kernel.c", "-o", "kernel.o"]
    subprocess.run(command, cwd=tmp_path, check=True)
    elf = ELFFile(io.BytesIO((tmp_path / "kernel.o").read_bytes()))
    assert elf["e_machine"] == "EM_QDSP6"
    assert f"{elf['e_flags'] & 0xFF:x}" == str(version)


def test_only_what_an_emulator_knows_has_a_runner() -> None:
    names = {abi for abi in ABIS if abi.startswith("hexagon") and Zig().runner(abi)}
    assert names == {"hexagon-v66"}
    assert all(
        ("compiled only" in ABIS[abi].description) == (abi != "hexagon-v66")
        for abi in ABIS
        if "hexagon" in abi
    )


@pytest.mark.slow
def test_android_x86_names_have_the_instructions_of_their_abi(tmp_path: Path) -> None:
    """A library for Android's x86_64 may use SSE4.2 as Google's list of ABIs says; one for Linux may not."""
    (tmp_path / "level.c").write_text(
        "#ifdef __SSE4_2__\nint mace_sse42;\n#endif\n#ifdef __SSE3__\nint mace_sse3;\n#endif\n"
    )
    for abi, names in (("amd64", set()), ("x86", {"mace_sse3"}), ("x86_64", {"mace_sse3", "mace_sse42"})):
        compiler = Zig().compiler(abi)
        subprocess.run(
            [*compiler.cc, *compiler.flags, "-c", "level.c", "-o", "level.o"], cwd=tmp_path, check=True
        )
        symbols = ELFFile(io.BytesIO((tmp_path / "level.o").read_bytes())).get_section_by_name(".symtab")
        assert {s.name for s in symbols.iter_symbols() if s.name.startswith("mace")} == names, abi


@pytest.mark.parametrize("processor", bionic.MACHINES)
def test_stubs_are_elf_files(processor: str) -> None:
    elf = ELFFile(io.BytesIO(bionic.stub("libm.so", processor)))
    machine, bits, flags = bionic.MACHINES[processor]
    assert (elf.header.e_type, elf.elfclass, elf.header.e_flags) == ("ET_DYN", bits, flags)
    assert elf.stream.getvalue()[18:20] == machine.to_bytes(2, "little")
    symbols, dynamic = (elf.get_section(i) for i in (1, 2))
    assert [s.name for s in symbols.iter_symbols()] == [""]
    assert [tag.soname for tag in dynamic.iter_tags("DT_SONAME")] == ["libm.so"]


def test_a_compiler_starts_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`mace matrix` asks for the compiler of every ABI."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(subprocess, "Popen", None)
    for abi in Zig.abis:
        assert Zig().compiler(abi).cc


def test_modules_of_the_working_folder_are_not_executed(tmp_path: Path) -> None:
    require(Zig().missing("host"))
    for module in ("ziglang", "struct", "json", "subprocess"):
        (tmp_path / f"{module}.py").write_text("open('executed', 'w').close()\n")
    subprocess.run([*Zig().compiler("host").cc, "--version"], cwd=tmp_path, check=True, capture_output=True)
    assert not (tmp_path / "executed").exists()


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mace").write_text("a file where the folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(MaceError, match="set XDG_CACHE_HOME"):
        Zig().compiler("x86_64")


def test_stubs_are_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiler = Zig().compiler("arm64-v8a")
    stubs = [Path(p) for p in compiler.shared if p.startswith(str(tmp_path))]
    assert [p.name for p in stubs] == list(bionic.NAMES)
    times = [p.stat().st_mtime_ns for p in stubs]
    assert Zig().compiler("arm64-v8a") == compiler
    assert [p.stat().st_mtime_ns for p in stubs] == times
    assert sorted(p.name for p in stubs[0].parent.iterdir()) == sorted(bionic.NAMES)

"""The bytes that a build prints at its end belong to what they are printed for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from small_project import MACE, quick_environment, run, write_deployment

from mace_target_cpu import is_x86

pytestmark = pytest.mark.skipif(not is_x86("host"), reason="the levels of x86-64 are for that processor")

LEVELS = ("avx512vnni", "avx2", "sse2")
"""Two that the deployment file names, and that which every library has; all are compiled on any x86-64."""

TOOLS = ("mace_run", "mace_benchmark")
"""Objects of programs beside the library."""


def count_bytes(object_file: ELFFile) -> int:
    """Return the bytes of code and constants, from the types of sections alone."""
    sections = [s for s in object_file.iter_sections() if s["sh_flags"] & 2 and s["sh_type"] != "SHT_NOBITS"]
    return sum(len(section.data()) for section in sections)


def list_symbols(object_file: ELFFile) -> Iterator[str]:
    """Yield the names that an object defines for others."""
    table = object_file.get_section_by_name(".symtab")
    for symbol in table.iter_symbols():
        if symbol["st_info"]["bind"] == "STB_GLOBAL" and symbol["st_shndx"] != "SHN_UNDEF":
            yield symbol.name


def name_share(symbols: set[str]) -> str:
    """Return what an object serves, by what it defines: no name of a file is asked."""
    for level in LEVELS:
        if f"sized_cpu_kernels_{level}" in symbols:
            return f"kernels {level}"
    if "sized_net_program" in symbols:
        return "programs"
    return "weights" if "sized_net_weights" in symbols else "runtime"


@pytest.mark.slow
def test_a_build_prints_the_bytes_of_each_level(tmp_path: Path) -> None:
    file = write_deployment(tmp_path, "sized")
    file.write_text(f"cpu_features: [{', '.join(LEVELS[:2])}]\n{file.read_text()}")
    printed = run([*MACE, "build", "sized.yml"], tmp_path, quick_environment(tmp_path)).splitlines()[-1]
    expected: dict[str, int] = {}
    for path in (tmp_path / "builds/sized/obj/host").rglob("*.o"):
        if path.stem in TOOLS:
            continue
        with path.open("rb") as stream:
            object_file = ELFFile(stream)
            share = name_share(set(list_symbols(object_file)))
            expected[share] = expected.get(share, 0) + count_bytes(object_file)
    assert expected.keys() == {*(f"kernels {level}" for level in LEVELS), "programs", "weights", "runtime"}
    assert len(set(expected.values())) == len(expected), "two that are equal could be exchanged unseen"
    shares, files = printed.removeprefix("  bytes: ").split("; ")
    assert {name: int(size) for name, size in re.findall(r"(\w[\w ]*) (\d+)", shares)} == expected
    folder = tmp_path / "builds/sized/lib/host"
    assert files == ", ".join(
        f"libsized.{end} {(folder / f'libsized.{end}').stat().st_size}" for end in ("a", "so")
    )

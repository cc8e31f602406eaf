"""A build of several levels: what it compiles first, and whose bytes it prints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Built:
    """A library named `sized` of a model named `net`.

    folder: where it was built.  printed: the lines of the build.
    """

    folder: Path
    printed: list[str]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A build on two processors."""
    folder = tmp_path_factory.mktemp("levels")
    file = write_deployment(folder, "sized")
    file.write_text(f"cpu_features: [{', '.join(LEVELS[:2])}]\n{file.read_text()}")
    printed = run([*MACE, "build", "sized.yml", "--jobs", "2"], folder, quick_environment(folder))
    return Built(folder / "builds/sized", printed.splitlines())


@pytest.mark.slow
def test_a_build_prints_the_bytes_of_each_level(built: Built) -> None:
    expected: dict[str, int] = {}
    for path in (built.folder / "obj/host").rglob("*.o"):
        if path.stem in TOOLS:
            continue
        with path.open("rb") as stream:
            object_file = ELFFile(stream)
            share = name_share(set(list_symbols(object_file)))
            expected[share] = expected.get(share, 0) + count_bytes(object_file)
    assert expected.keys() == {*(f"kernels {level}" for level in LEVELS), "programs", "weights", "runtime"}
    assert len(set(expected.values())) == len(expected), "two that are equal could be exchanged unseen"
    shares, files = built.printed[-1].removeprefix("  bytes: ").split("; ")
    assert {name: int(size) for name, size in re.findall(r"(\w[\w ]*) (\d+)", shares)} == expected
    names = [f"libsized.{suffix}" for suffix in ("a", "so")]
    assert files == ", ".join(f"{name} {(built.folder / 'lib/host' / name).stat().st_size}" for name in names)


@pytest.mark.slow
def test_what_takes_longest_is_compiled_first(built: Built) -> None:
    """What became ready together was compiled in the order of a set, often with the slowest kernels last."""
    steps = [Path(line.split()[1]).stem for line in built.printed if line.startswith("compiling")]
    written = [name for name in steps if name.startswith("sized")]
    assert len(written) == len(LEVELS) + 3
    # Two begin at once, and either may be printed first.
    assert {*written[:2]} == {f"sized_cpu_kernels_{level}" for level in LEVELS[:2]}

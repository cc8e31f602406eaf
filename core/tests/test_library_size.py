"""What a library consists of, measured in its objects."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from mace_core.run.library_size import (
    LibrarySize,
    measure_library,
    measure_object,
    read_size,
    show_size,
    size_text,
)
from mace_core.testing.compiled import host

SOURCE = """
const int table[100] = {1};
int counter[1000];
int started = 3;
int twice(int x) { return 2 * x + started; }
"""


@pytest.fixture
def compiled(tmp_path: Path) -> Path:
    """An object with code, constants, data and what a process finds zeroed."""
    source = tmp_path / "part.c"
    source.write_text(SOURCE)
    product = source.with_suffix(".o")
    subprocess.run([*host().cc, "-c", "-o", str(product), str(source)], check=True)
    return product


def test_an_object_has_the_bytes_that_binutils_count(compiled: Path) -> None:
    tool = shutil.which("size")
    if tool is None:
        pytest.skip("binutils' size is the second source, and is not installed")
    told = subprocess.run([tool, str(compiled)], capture_output=True, text=True, check=True)
    text, data, zeroed = (int(word) for word in told.stdout.splitlines()[1].split()[:3])
    assert zeroed == 4000
    assert measure_object(compiled) == text + data


def test_an_object_has_its_constants_and_not_its_zeros(compiled: Path) -> None:
    measured = measure_object(compiled)
    assert measured is not None
    assert 404 < measured < 1000


def test_what_cannot_be_measured_is_unknown(compiled: Path, tmp_path: Path) -> None:
    short, text = tmp_path / "short.o", tmp_path / "text.o"
    short.write_bytes(compiled.read_bytes()[:40])
    text.write_text("no object")
    for path in (short, text, tmp_path / "missing.o", tmp_path):
        assert measure_object(path) is None, path
    size = measure_library({"a": [compiled], "b": [compiled, text]}, [compiled, tmp_path / "missing.so"])
    assert size.shares == {"a": measure_object(compiled), "b": None}
    assert size.files == {"part.o": compiled.stat().st_size, "missing.so": None}
    assert show_size(size).endswith(f"b unknown; part.o {compiled.stat().st_size}, missing.so unknown")


BEYOND = 1 << 63
"""An offset that no file has."""

SECTIONS_AT, SECTION_COUNT, NAMES_SECTION = 40, 60, 62
"""Where the header of an ELF file of 64 bits says where section headers begin, how many, and which has the names."""

SECTION_HEADER, OFFSET, SIZE = 64, 24, 32
"""Bytes of a section's header, and where it says where the section lies and how large it is."""


def damage(path: Path, at: int, count: int, value: int) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + count] = value.to_bytes(count, "little")
    path.write_bytes(content)


def read_number(path: Path, at: int, count: int) -> int:
    return int.from_bytes(path.read_bytes()[at : at + count], "little")


@pytest.fixture
def elf(compiled: Path) -> Path:
    """An object whose header has the places above."""
    if compiled.read_bytes()[:6] != b"\x7fELF\x02\x01":
        pytest.skip("this machine's objects are not ELF of 64 bits with the lowest byte first")
    return compiled


@pytest.mark.parametrize(
    ("at", "count", "value"),
    [
        (SECTIONS_AT, 8, BEYOND),
        (SECTIONS_AT, 8, BEYOND - 1),
        (SECTIONS_AT, 8, 1),
        (SECTIONS_AT, 8, 0),
        (SECTION_COUNT, 2, 0),
        (SECTION_COUNT, 2, 0xFFFF),
        (NAMES_SECTION, 2, 0xFFFE),
        (0, 1, 0),
        (4, 1, 7),
    ],
)
def test_a_damaged_header_makes_a_size_unknown(at: int, count: int, value: int, elf: Path) -> None:
    assert measure_object(elf) is not None
    damage(elf, at, count, value)
    assert measure_object(elf) is None


def test_a_damaged_section_makes_a_size_unknown(elf: Path) -> None:
    whole = elf.read_bytes()
    first, count = read_number(elf, SECTIONS_AT, 8), read_number(elf, SECTION_COUNT, 2)
    names = first + read_number(elf, NAMES_SECTION, 2) * SECTION_HEADER
    damage(elf, names + OFFSET, 8, BEYOND)
    assert measure_object(elf) is None, "nobody knows the names of sections"
    unknown = 0
    for header in range(first, first + count * SECTION_HEADER, SECTION_HEADER):
        elf.write_bytes(whole)
        damage(elf, header + SIZE, 8, len(whole))
        unknown += measure_object(elf) is None
    assert unknown >= 3, "code, constants and data cannot be larger than the file"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"shares": {}}', '{"shares": {"a": "b"}, "files": {}}', "\xff"]
)
def test_a_damaged_file_is_none_of_ours(text: str, tmp_path: Path) -> None:
    file = tmp_path / "host.json"
    file.write_text(text, encoding="latin-1")
    assert read_size(file) is None


def test_a_file_gives_what_was_written(tmp_path: Path) -> None:
    size, file = LibrarySize({"kernels avx2": 7, "weights": None}, {"libm.a": 9}), tmp_path / "host.json"
    file.write_text(size_text(size))
    assert read_size(file) == size

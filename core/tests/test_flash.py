"""What of a program lies in flash: code and initial data, no symbols."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from mace_core.errors import MaceError
from mace_core.run.flash import flash_bytes
from mace_core.testing.requirements import require

SOURCE = """
const unsigned char constants[3000] = {1};
unsigned char initial[500] = {2};
unsigned char zeros[70000];
int main(void) { return constants[0] + initial[0] + zeros[0]; }
"""


@pytest.mark.parametrize(
    ("tool", "flags"), [("gcc", ()), ("arm-none-eabi-gcc", ("-nostdlib", "-Wl,-e,main"))]
)
def test_code_and_data_without_symbols(tool: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    require(None if shutil.which(tool) else f"{tool} is not installed")
    (tmp_path / "a.c").write_text(SOURCE)
    sizes = []
    for name, debug in (("plain", "-g0"), ("debug", "-g3")):
        subprocess.run([tool, *flags, debug, "-O1", "a.c", "-o", name], cwd=tmp_path, check=True)
        sizes.append(flash_bytes(tmp_path / name))
    assert sizes[0] == sizes[1]
    assert 3500 <= sizes[0] < 70_000
    assert sizes[0] < (tmp_path / "debug").stat().st_size
    if tool != "gcc":
        told = subprocess.run(
            ["arm-none-eabi-size", "plain"], cwd=tmp_path, check=True, capture_output=True, text=True
        )
        text, data, *_ = told.stdout.splitlines()[1].split()
        assert abs(sizes[0] - int(text) - int(data)) < 1024  # the headers and what aligns the segments


@pytest.mark.parametrize(
    "data", [b"", b"\x7fELF", b"\x7fELF\x01\x01", b"MZ" + bytes(100), b"\x7fELF\x07\x01" + bytes(100)]
)
def test_other_files_are_one_message(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.elf").write_bytes(data)
    with pytest.raises(MaceError, match="is no ELF file"):
        flash_bytes(tmp_path / "a.elf")


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("bits", [32, 64])
def test_segments_of_either_order_of_bytes(order: str, bits: int, tmp_path: Path) -> None:
    """Three segments, of which two are loaded; sizes in the file count, not those in memory."""
    ident = b"\x7fELF" + bytes([1 if bits == 32 else 2, 1 if order == "<" else 2, 1]) + bytes(9)
    words, head = ("I", 52) if bits == 32 else ("Q", 64)
    form = "IIIIIIII" if bits == 32 else "IIQQQQQQ"
    size = struct.calcsize(order + form)
    header = ident + struct.pack(
        f"{order}HHI{words * 3}IHHHHHH", 2, 40, 1, 0, head, 0, 0, head, size, 3, 0, 0, 0
    )
    entries = b""
    for kind, stored in ((1, 100), (4, 1000), (1, 23)):
        fields = [kind, 9, 9, 9, stored, 7777, 9, 9] if bits == 32 else [kind, 9, 9, 9, 9, stored, 7777, 9]
        entries += struct.pack(order + form, *fields)
    (tmp_path / "a").write_bytes(header + entries)
    assert flash_bytes(tmp_path / "a") == 123

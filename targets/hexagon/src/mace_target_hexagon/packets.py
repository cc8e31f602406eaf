"""Counts the packets of a program for the DSP that QEMU executes: what `mace benchmark` shows.

Nothing here is a time: QEMU executes packets without the DSP's pipeline, caches and memory.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path

from mace_core.api import Counter
from mace_core.errors import MaceError
from mace_core.registry import Registry
from mace_core.toolchain import CountedRun

PLUGIN = "packet_counter.so"
MARKS = "marks.txt"


class PacketCounter(Counter):
    """Counts by a plugin of QEMU: packets, words of HVX, those of vrmpy, loads and stores of vectors."""

    names = ("packets", "HVX", "vrmpy", "accesses")
    max_macs = 2 * 128
    limit = "by vrmpy of two registers of 128 bytes"

    def count(self, command: Sequence[str]) -> CountedRun:
        """Execute a command of QEMU's; MaceError where another runner executes the library."""
        emulator, *program = command
        if not Path(emulator).name.startswith("qemu-hexagon"):
            raise MaceError(
                emulator, "counts no packets", "build with the toolchain zig, which QEMU executes"
            )
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            build_counter(folder, Registry.load())
            words = [emulator, "-plugin", f"{folder / PLUGIN},marks={folder / MARKS}", *program]
            done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603
            if done.returncode or not (folder / MARKS).is_file():
                remedy = "use a qemu-hexagon that supports plugins (-plugin), such as Debian's"
                raise MaceError(emulator, done.stderr.strip()[-400:] or "counted nothing", remedy)
            return CountedRun(done.stdout, _read_marks(folder / MARKS))


def build_counter(folder: Path, registry: Registry) -> None:
    """Compile the plugin of QEMU into folder/packet_counter.so with this machine's compiler."""
    compiler = registry.select("host")[0].compiler
    with as_file(files("mace_target_hexagon") / "counter" / "packet_counter.c") as source:
        flags = ("-std=gnu11", "-O2", "-fPIC", "-fvisibility=hidden")
        command = [*compiler.cc, *compiler.flags, *compiler.shared, *flags, str(source), "-o", PLUGIN]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise MaceError(PLUGIN, done.stderr.strip()[-400:], "install a C compiler for this machine")


def _read_marks(file: Path) -> tuple[tuple[int, ...], ...]:
    """Return the counts of every line; the file is the plugin's."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return tuple(tuple(map(int, line.split(" "))) for line in lines)

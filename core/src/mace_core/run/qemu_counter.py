"""Counts what a program executes by a plugin of QEMU: what `mace benchmark` shows where QEMU executes it.

Nothing here is a time: QEMU executes instructions without the processor's pipeline, caches and memory.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import ClassVar

from mace_core.errors import MaceError
from mace_core.registry import Registry
from mace_core.toolchain import CountedRun, Counter

PLUGIN = "qemu_counter.so"
MARKS = "marks.txt"


class QemuCounter(Counter):
    """Counts by qemu_counter.c, of which a processor states what it counts.

    emulators: names of the programs that execute such commands, without "-static" behind them.
    classifier: the C header with KINDS, one for each of `names`, is_clock_call and count_words.
    """

    emulators: ClassVar[tuple[str, ...]]
    classifier: ClassVar[Traversable]

    def count(self, command: Sequence[str]) -> CountedRun:
        """Execute a command of QEMU's; MaceError where another runner executes the library."""
        emulator, *program = command
        if Path(emulator).name.removesuffix("-static") not in self.emulators:
            problem = f"counts no {self.names[0]}"
            raise MaceError(emulator, problem, f"build with a toolchain that {self.emulators[0]} executes")
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            build_plugin(self.classifier, folder, Registry.load())
            words = [emulator, "-plugin", f"{folder / PLUGIN},marks={folder / MARKS}", *program]
            done = subprocess.run(words, capture_output=True, text=True, check=False)  # noqa: S603
            if done.returncode or not (folder / MARKS).is_file():
                remedy = f"use a {self.emulators[0]} that supports plugins (-plugin), such as Debian's"
                raise MaceError(emulator, done.stderr.strip()[-400:] or "counted nothing", remedy)
            return CountedRun(done.stdout, _read_marks(folder / MARKS))


def build_plugin(classifier: Traversable, folder: Path, registry: Registry) -> None:
    """Compile the plugin of QEMU into folder/qemu_counter.so with this machine's compiler."""
    compiler = registry.select("host")[0].compiler
    (folder / "classify.h").write_text(classifier.read_text(encoding="utf-8"), encoding="utf-8")
    with as_file(files("mace_core") / "counter" / "qemu_counter.c") as source:
        flags = ("-std=gnu11", "-O2", "-fPIC", "-fvisibility=hidden", "-I.")
        command = [*compiler.cc, *compiler.flags, *compiler.shared, *flags, str(source), "-o", PLUGIN]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise MaceError(PLUGIN, done.stderr.strip()[-400:], "install a C compiler for this machine")


def _read_marks(file: Path) -> tuple[tuple[int, ...], ...]:
    """Return the counts of every line; the file is the plugin's."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return tuple(tuple(map(int, line.split(" "))) for line in lines)

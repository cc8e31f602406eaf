"""Measures whether generated code allocates memory: it must not, except for drivers that declare it."""

from __future__ import annotations

import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from mace_core.api import GeneratedFiles
from mace_core.testing.probe_program import ProbeProgram, link_probe
from mace_core.testing.requirements import require

ALLOCATORS = frozenset(
    {"malloc", "calloc", "realloc", "reallocarray", "memalign", "aligned_alloc", "posix_memalign", "valloc"}
)
FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class HeapUse:
    """The allocations of a session of one model, from `mace_open` to `mace_close`.

    is_declared: whether a driver of the model has the flag MACE_ALLOCATES.
    """

    model: str
    is_declared: bool
    status: int
    requests: int


def measure_heap(sources: GeneratedFiles, folder: Path) -> list[HeapUse]:
    """Run a library with a program that counts its allocations; return a result for each model."""
    require(
        None if platform.libc_ver()[0] == "glibc" else "allocations are counted with the GNU C library only"
    )
    probe = ProbeProgram(FOLDER / "heap_probe.c", (FOLDER / "heap.h",))
    program = link_probe(probe, sources, folder, ("-O1",))
    done = subprocess.run([program], capture_output=True, text=True, check=True, timeout=60)
    rows = [line.split() for line in done.stdout.splitlines()]
    return [HeapUse(name, flag == "1", int(status), int(count)) for name, flag, status, count in rows]


def list_allocators(folder: Path) -> list[str]:
    """Return the allocators that the objects in a folder need."""
    require(None if shutil.which("nm") else "nm is not installed: apt-get install binutils")
    # Threads may allocate: an application starts them only if it asks for more than one.
    objects = [path for path in folder.glob("*.o") if path.stem != "mace_threads"]
    assert objects, f"{folder}: no objects; compile a library there"
    command = [shutil.which("nm") or "nm", "-u", *map(str, objects)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    symbols = {line.split()[-1] for line in listed.splitlines() if line.strip()}
    return sorted(symbols & ALLOCATORS)

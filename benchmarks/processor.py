"""What this process has of the processor: fewer of its cores, fewer of its instructions, and no busy threads.

A runtime chooses its kernels by what CPUID says, so that peers are measured at each level by
another answer. CPUID can be made to fault on Intel processors since Ivy Bridge (`cpuid_fault` in /proc/cpuinfo),
also in most virtual machines.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

EAX, EBX, ECX, EDX = range(4)

AMX: tuple[tuple[int, int, int, int], ...] = (
    (7, 0, EDX, 1 << 22 | 1 << 24 | 1 << 25),  # amx_bf16, amx_tile, amx_int8
    (7, 1, EAX, 1 << 21),  # amx_fp16
    (7, 1, EDX, 1 << 8),  # amx_complex
)
AVX512_VNNI = (
    (7, 0, ECX, 1 << 11),
    (7, 1, EAX, 1 << 5),  # avx512_bf16, which no processor has without VNNI
    (7, 0, EDX, 1 << 23),  # avx512_fp16
)
AVX512 = (
    (7, 0, EBX, 1 << 16 | 1 << 17 | 1 << 21 | 1 << 28 | 1 << 30 | 1 << 31),  # f, dq, ifma, cd, bw, vl
    (7, 0, ECX, 1 << 1 | 1 << 6 | 1 << 12 | 1 << 14),  # vbmi, vbmi2, bitalg, vpopcntdq
    (7, 0, EDX, 1 << 8),  # vp2intersect
    (7, 1, EDX, 1 << 19),  # avx10
)
AVX_VNNI = (
    (7, 1, EAX, 1 << 4 | 1 << 23),  # avx_vnni, avx_ifma
    (7, 1, EDX, 1 << 4 | 1 << 5 | 1 << 10),  # avx_vnni_int8, avx_ne_convert, avx_vnni_int16
)
HIDDEN: Mapping[str, tuple[tuple[int, int, int, int], ...]] = MappingProxyType(
    {
        "avx512vnni": AMX,
        "avx512": (*AMX, *AVX512_VNNI, *AVX_VNNI),
        "avxvnni": (*AMX, *AVX512_VNNI, *AVX512),
        "avx2": (*AMX, *AVX512_VNNI, *AVX512, *AVX_VNNI),
    }
)
"""Level -> the bits that a processor of that level has not: leaf, subleaf, register, bits (Intel's manual,
volume 2A, CPUID)."""


def limit_processor(level: str, folder: Path) -> None:
    """Hide from this process what processors of a level do not have; OSError where that cannot be done.

    Call it before a runtime is imported.
    folder: where the compiled helper is kept.
    """
    source, library = Path(__file__).with_name("processor.c"), folder / "processor.so"
    if not library.is_file() or library.stat().st_mtime < source.stat().st_mtime:
        command = ["cc", "-O2", "-shared", "-fPIC", str(source), "-o", str(library)]
        subprocess.run(command, check=True)  # noqa: S603  # our own source
    bits = (ctypes.c_uint32 * 4 * len(HIDDEN[level]))(*HIDDEN[level])
    helper = ctypes.CDLL(str(library))
    if helper.hide_features(bits, len(HIDDEN[level])):
        raise OSError("CPUID cannot be made to fault here (no cpuid_fault in /proc/cpuinfo)")


def bind_processors(count: int, every: list[int]) -> None:
    """Bind this process, and threads that it starts from now on, to so many processors."""
    if count > len(every):
        raise SystemExit(f"--threads {count}: this machine has {len(every)} processors")
    os.sched_setaffinity(0, every[:count])


def await_idle_threads(seconds: float = 1.0) -> None:
    """Return when all other threads of this process sleep, at the latest after so many seconds."""
    own, end = str(threading.get_native_id()), time.monotonic() + seconds
    while _has_running_threads(own) and time.monotonic() < end:
        time.sleep(0.001)


def _has_running_threads(own: str) -> bool:
    """Tell whether the system says of a thread but `own` that it runs or is ready to run (proc(5), `stat`)."""
    for folder in Path("/proc/self/task").iterdir():
        try:
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:  # the thread ended meanwhile
            continue
        if state == "R" and folder.name != own:
            return True
    return False

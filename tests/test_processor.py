"""benchmarks/processor.py: what a process sees of a processor whose features are hidden."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
READER = """
#include <cpuid.h>
#include <stdint.h>
void read_features(uint32_t *registers) {
  __cpuid_count(7, 0, registers[0], registers[1], registers[2], registers[3]);
}
"""
SCRIPT = """
import ctypes, sys, threading
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from processor import limit_processor
reader = ctypes.CDLL(sys.argv[2])
def show():
    registers = (ctypes.c_uint32 * 4)()
    reader.read_features(registers)
    print(*registers)
show()
limit_processor(sys.argv[3], Path(sys.argv[2]).parent)
show()
thread = threading.Thread(target=show)
thread.start()
thread.join()
ctypes.string_at(0)
"""
AVX2, AVX512F = 1 << 5, 1 << 16


def test_a_limited_process_and_its_threads_see_no_more_than_the_level_has(tmp_path: Path) -> None:
    if "cpuid_fault" not in Path("/proc/cpuinfo").read_text(encoding="utf-8"):
        pytest.skip("CPUID cannot be made to fault on this processor")
    source, library = tmp_path / "reader.c", tmp_path / "reader.so"
    source.write_text(READER, encoding="utf-8")
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    command = [sys.executable, "-c", SCRIPT, str(BENCHMARKS), str(library), "avx2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    whole, limited, of_thread = ([int(word) for word in line.split()] for line in done.stdout.splitlines())
    assert limited[1] & AVX2 == whole[1] & AVX2
    assert not limited[1] & AVX512F
    assert limited[1] == whole[1] & limited[1]
    assert of_thread == limited
    # A fault that is none of CPUID's ends the process as ever.
    assert done.returncode == -11

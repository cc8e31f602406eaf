"""Which features a processor must report for each level of x86-64: every one, and no other."""

from __future__ import annotations

import ctypes as c
import subprocess

import pytest

from mace_core.emit.render import render
from mace_core.testing.compiled import host
from mace_target_cpu import is_x86
from mace_target_cpu.isa import KERNELS, X86

BITS = {
    "fma": ("leaf1_c", 12), "osxsave": ("leaf1_c", 27),
    "subleaves": ("leaf7_a", 0), "avx2": ("leaf7_b", 5), "avx512f": ("leaf7_b", 16), "avx512dq": ("leaf7_b", 17),
    "avx512bw": ("leaf7_b", 30), "avx512vl": ("leaf7_b", 31), "avx512vnni": ("leaf7_c", 11),
    "amx bf16": ("leaf7_d", 22), "amx tile": ("leaf7_d", 24), "amx int8": ("leaf7_d", 25), "avx vnni": ("leaf71_a", 4),
    "avx512bf16": ("leaf71_a", 5),
    "xmm": ("state", 1), "ymm": ("state", 2), "masks": ("state", 5), "upper zmm": ("state", 6),
    "16 zmm": ("state", 7), "tile shapes": ("state", 17), "tile data": ("state", 18), "permission": ("permission", 0),
}  # fmt: skip
"""Feature -> the register and bit that report it: Intel's manual, volume 2, CPUID; volume 1, 13.1."""

AVX2 = {"fma", "osxsave", "avx2", "xmm", "ymm"}
AVX512 = AVX2 | {"avx512f", "avx512dq", "avx512bw", "avx512vl", "masks", "upper zmm", "16 zmm"}
NEEDED = {
    "avx2": AVX2,
    "avxvnni": AVX2 | {"subleaves", "avx vnni"},
    "avx512": AVX512,
    "avx512vnni": AVX512 | {"avx512vnni"},
    "amx": AVX512
    | {
        "avx512vnni",
        "subleaves",
        "avx512bf16",
        "amx bf16",
        "amx tile",
        "amx int8",
        "tile shapes",
        "tile data",
        "permission",
    },
}
REGISTERS = tuple(dict.fromkeys(register for register, _ in BITS.values()))

SOURCE = """
#include <cpuid.h>
#include <stdint.h>
typedef struct registers {{ uint32_t {registers}; }} registers;
static registers r;
static int leaf(uint32_t number, uint32_t part, uint32_t *a, uint32_t *b, uint32_t *c, uint32_t *d) {{
  *a = number == 7 ? part ? r.leaf71_a : r.leaf7_a : 0;
  *b = number == 7 && !part ? r.leaf7_b : 0;
  *c = number == 1 ? r.leaf1_c : number == 7 && !part ? r.leaf7_c : 0;
  *d = number == 7 && !part ? r.leaf7_d : 0;
  return 1;
}}
#undef __cpuid
#undef __cpuid_count
#define __cpuid(number, a, b, c, d) leaf(number, 0, &a, &b, &c, &d)
#define __cpuid_count(number, part, a, b, c, d) leaf(number, part, &a, &b, &c, &d)
#define __get_cpuid_count leaf
/* The only instructions in assembly: one reads the state, one asks the system. */
#define __asm__(...) (low = r.state, high = 0)
#define volatile(...) (""); status = r.permission ? 0 : -1
{probe}
int ask(int level, const registers *reported) {{
  r = *reported;
  switch (level) {{ {cases} }}
  return -1;
}}
"""


class Registers(c.Structure):
    _fields_ = tuple((name, c.c_uint32) for name in REGISTERS)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> c.CDLL:
    folder = tmp_path_factory.mktemp("probe")
    conditions = {str(level.name): level.available for level in X86}
    cases = " ".join(f"case {i}: return {conditions[name]} != 0;" for i, name in enumerate(NEEDED))
    text = SOURCE.format(registers=", ".join(REGISTERS), probe=render(KERNELS / "x86.h.in"), cases=cases)
    (folder / "probe.c").write_text(text, encoding="utf-8")
    compiler = host()
    words = [*compiler.cc, "-w", "-O0", *compiler.shared, "-o", "probe.so", "probe.c"]
    subprocess.run(words, cwd=folder, check=True, capture_output=True)
    return c.CDLL(str(folder / "probe.so"))


def report(features: set[str]) -> Registers:
    registers = Registers()
    for feature in features:
        name, bit = BITS[feature]
        setattr(registers, name, getattr(registers, name) | 1 << bit)
    return registers


@pytest.mark.slow
@pytest.mark.skipif(not is_x86("host"), reason="the features are those of x86-64")
@pytest.mark.parametrize("level", NEEDED)
def test_a_level_needs_all_its_features_and_no_other(library: c.CDLL, level: str) -> None:
    number = list(NEEDED).index(level)
    assert library.ask(number, c.byref(report(NEEDED[level]))) == 1
    every = set(BITS)
    missing = {feature for feature in every if not library.ask(number, c.byref(report(every - {feature})))}
    assert missing == NEEDED[level]


def test_every_level_with_a_condition_is_asked() -> None:
    assert {str(level.name) for level in X86 if level.available} == set(NEEDED)

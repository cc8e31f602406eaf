"""The ABIs as data.

Everything is compiled against musl's headers: their macros expand to plain C, so objects ask for nothing but
memory and mathematics functions, and one archive links under glibc, musl and bionic. The link decides on the
libc: the last `-target` of a command counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

CODE = (
    "-fno-sanitize=all",  # zig adds traps for undefined behaviour where -O is absent
    "-fno-stack-protector",  # __stack_chk_fail lives elsewhere in every libc
    "-fno-unwind-tables",  # on ARM they refer to __aeabi_unwind_cpp_pr1, which bionic has not
    "-fno-asynchronous-unwind-tables",
)


@dataclass(frozen=True)
class Abi:
    """What is said to zig for an ABI.

    words: what the ABI is.  processor: as Linux names it.
    flags: for compilation and link.  shared, program: what follows them at a link.
    bionic: shared libraries name Android's libc and libm as needed, by stubs.
    hosted: whether there is an operating system; without one, nothing here executes a program.
    """

    words: str
    processor: str
    flags: tuple[str, ...]
    shared: tuple[str, ...]
    program: tuple[str, ...] = ("-static",)
    libs: tuple[str, ...] = ("-lm",)
    libc: str = "glibc 2.17 or newer; programs: musl, static"
    bionic: bool = False
    hosted: bool = True


ARMV7 = "-mcpu=generic+v7a+neon+vfp3"
WITHOUT_LIBC = ("-shared", "-nostdlib", "-rtlib=compiler-rt", "-Wl,--hash-style=both", "-Wl,--no-as-needed")
"""What division and the like need comes along; Android before 6.0 reads only the old hash table."""

BIONIC = "Android's libc.so and libm.so, without an NDK (set ANDROID_NDK_HOME to link against its own); programs: musl, static"


WITHOUT_SYSTEM = ("-ffreestanding", "-ffunction-sections", "-fdata-sections")


def _bare(words: str, flags: tuple[str, ...]) -> Abi:
    """A machine without an operating system.

    A link without -g would drop the symbols, by which debuggers and emulators find their way.
    """
    return Abi(
        f"{words} without an operating system, soft-float",
        "",
        (*flags, *WITHOUT_SYSTEM),
        (),
        program=("-nostdlib", "-rtlib=compiler-rt", "-g", "-Wl,--gc-sections"),
        libs=(),
        libc="no C library",
        hosted=False,
    )


def _glibc(triple: str, version: str = "2.17") -> tuple[str, ...]:
    return ("-target", f"{triple}.{version}", "-shared")


def _android(words: str, processor: str, flags: tuple[str, ...], shared: tuple[str, ...] = ()) -> Abi:
    """Android on x86, whose processors have what Google's list of ABIs says."""
    return Abi(
        f"Android on {words}", processor, flags, (*WITHOUT_LIBC, *shared), libs=(), libc=BIONIC, bionic=True
    )


X86_64 = "-mcpu=x86_64+sse3+ssse3+sse4_1+sse4_2+popcnt"
X86 = ("-mcpu=i686+sse2+sse3+ssse3", "-mstackrealign")
"""Floats are computed by SSE, not by the x87; systems before Android 7 do not align stacks to 16 bytes."""
LARGE_PAGES = "-Wl,-z,max-page-size=16384"
"""Android 15 has devices with pages of 16 KiB."""


ABIS: Mapping[str, Abi] = MappingProxyType(
    {
        # Linux has Debian's names for processors, Android those of its own list; both know an x86_64, which
        # is Android's here.
        "amd64": Abi(
            "Linux on x86-64", "x86_64", ("-target", "x86_64-linux-musl"), _glibc("x86_64-linux-gnu")
        ),
        "arm64": Abi(
            "Linux on 64-bit ARM", "aarch64", ("-target", "aarch64-linux-musl"), _glibc("aarch64-linux-gnu")
        ),
        "armhf": Abi(
            "Linux on 32-bit ARM: ARMv7 with NEON, hard-float",
            "arm",
            ("-target", "arm-linux-musleabihf", ARMV7),
            _glibc("arm-linux-gnueabihf"),
        ),
        "riscv64": Abi(
            "Linux on 64-bit RISC-V: RV64GC",
            "riscv64",
            ("-target", "riscv64-linux-musl"),
            _glibc("riscv64-linux-gnu", "2.27"),  # the first glibc for this processor
            libc="glibc 2.27 or newer; programs: musl, static",
        ),
        "x86_64": _android(
            "x86-64 (Linux on x86-64 is amd64)",
            "x86_64",
            ("-target", "x86_64-linux-musl", X86_64),
            (LARGE_PAGES,),
        ),
        "x86": _android("32-bit x86", "i386", ("-target", "x86-linux-musl", *X86)),
        "arm64-v8a": Abi(
            "Android on 64-bit ARM",
            "aarch64",
            ("-target", "aarch64-linux-musl"),
            WITHOUT_LIBC,
            libs=(),
            libc=BIONIC,
            bionic=True,
        ),
        # Without "hf" zig forbids itself NEON; with it and softfp, floats still travel in integer registers
        # as Android wants. The musl of a static program must then be the one that takes them there.
        "armeabi-v7a": Abi(
            "Android on 32-bit ARM: ARMv7 with NEON, softfp",
            "arm",
            ("-target", "arm-linux-musleabihf", ARMV7, "-mfloat-abi=softfp"),
            ("-target", "arm-linux-musleabi", *WITHOUT_LIBC),
            program=("-target", "arm-linux-musleabi", "-static"),
            libs=(),
            libc=BIONIC,
            bionic=True,
        ),
        "cortex-m4": _bare(
            "ARM Cortex-M4", ("-target", "thumb-freestanding-eabi", "-mcpu=cortex_m4", "-mfloat-abi=soft")
        ),
        "rv32imc": _bare(
            "RISC-V of 32 bits", ("-target", "riscv32-freestanding-none", "-mcpu=generic_rv32+m+c")
        ),
    }
)

NATIVE = Abi(
    "this machine", "", ("-mcpu=baseline",), ("-shared",), program=(), libc="the C library of this machine"
)
"""A machine for which there is no entry above: zig looks around by itself."""

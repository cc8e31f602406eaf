"""Holds what zig needs to know of each ABI.

Everything is compiled against musl's headers: their macros expand to plain C, so objects ask for nothing but
memory and mathematics functions, and one archive links under glibc, musl and bionic. The link decides on the
C library: of several `-target` flags in a command, zig uses the last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

CODE_FLAGS = (
    # Without -O, zig compiles traps for undefined behavior into the code, which need its run-time library.
    "-fno-sanitize=all",
    # Each C library has __stack_chk_fail in another place.
    "-fno-stack-protector",
    # On ARM, unwind tables refer to __aeabi_unwind_cpp_pr1, which bionic does not have.
    "-fno-unwind-tables",
    "-fno-asynchronous-unwind-tables",
)
"""Flags that keep objects free of references to one C library."""


@dataclass(frozen=True)
class ZigAbi:
    """What zig needs to know of an ABI.

    description: what it is, for lists of ABIs.  processor: its name in Linux and QEMU.
    flags: for every compilation and link.  shared, program: further flags for links.
    bionic: whether shared libraries name Android's libc and libm as needed, through stubs.
    hosted: whether there is an operating system; without one, no runner executes a program.
    has_runner: whether this machine or a QEMU of today's distributions executes its programs.
    """

    description: str
    processor: str
    flags: tuple[str, ...]
    shared: tuple[str, ...]
    program: tuple[str, ...] = ("-static",)
    libs: tuple[str, ...] = ("-lm",)
    libc: str = "glibc 2.17 or newer; programs: musl, static"
    bionic: bool = False
    hosted: bool = True
    has_runner: bool = True


ARMV7 = "-mcpu=generic+v7a+neon+vfp3"

WITHOUT_LIBC = (
    "-shared",
    "-nostdlib",
    # ARMv7 has no division and x86 none of 64 bits. The functions for it are linked in from zig's
    # compiler-rt, so that a library asks nothing of the device but libc and libm.
    "-rtlib=compiler-rt",
    # Android before 6.0 reads only the old hash table of symbols.
    "-Wl,--hash-style=both",
    # The stubs define no symbol, so a linker would drop them as unneeded.
    "-Wl,--no-as-needed",
)
"""Flags that link a shared library for Android without an NDK."""

BIONIC = (
    "Android's libc.so and libm.so, without an NDK (set ANDROID_NDK_HOME to link against its own); "
    "programs: musl, static"
)

# One section for each function and variable, so that --gc-sections drops the unused ones from flash.
WITHOUT_SYSTEM = ("-ffreestanding", "-ffunction-sections", "-fdata-sections")


def _bare(description: str, flags: tuple[str, ...]) -> ZigAbi:
    """Return the entry of a machine without an operating system."""
    return ZigAbi(
        f"{description} without an operating system, soft-float",
        "",
        (*flags, *WITHOUT_SYSTEM),
        (),
        # -g: without it zig strips the symbols at a link, which debuggers and emulators need.
        program=("-nostdlib", "-rtlib=compiler-rt", "-g", "-Wl,--gc-sections"),
        libs=(),
        libc="no C library",
        hosted=False,
    )


def _hexagon(version: int, has_runner: bool = False) -> ZigAbi:
    """Return the entry of a version of the Hexagon DSP, whose programs are those of its Linux.

    QEMU's user emulation has version 67 of the processor and refuses files of later ones: it looks at e_flags
    (linux-user/hexagon/target_elf.h of QEMU 7.2).
    """
    suffix = "" if has_runner else "; compiled only: QEMU 7.2 does not execute it"
    processor = f"-mcpu=hexagonv{version}+hvxv{version}+hvx_length128b"
    return ZigAbi(
        f"Qualcomm Hexagon DSP v{version} with HVX vectors of 128 bytes{suffix}",
        "hexagon",
        ("-target", "hexagon-linux-musl", processor),
        # What the compiler calls for divisions comes along; memory and mathematics functions are the DSP's.
        ("-shared", "-nostdlib", "-rtlib=compiler-rt"),
        libs=(),
        libc="the C library of the DSP; programs: musl, static",
        has_runner=has_runner,
    )


def _glibc(triple: str, version: str = "2.17") -> tuple[str, ...]:
    """Return the flags of a shared library that loads with a glibc of a version or newer.

    2.17 is that of RHEL 7 and of Python's manylinux2014 (PEP 599).
    """
    return ("-target", f"{triple}.{version}", "-shared")


def _android(
    description: str, processor: str, flags: tuple[str, ...], link_flags: tuple[str, ...] = ()
) -> ZigAbi:
    """Return the entry of an ABI of Android whose programs and libraries take floats the same way."""
    shared = (*WITHOUT_LIBC, *link_flags)
    return ZigAbi(f"Android on {description}", processor, flags, shared, libs=(), libc=BIONIC, bionic=True)


# The instructions that every Android device of the ABI has, from Google's list (Android NDK, "Android ABIs").
X86_64 = "-mcpu=x86_64+sse3+ssse3+sse4_1+sse4_2+popcnt"
# SSE computes the floats, not the x87, whose 80-bit registers round differently. Before Android 7 the stack
# is aligned to 4 bytes only; SSE loads and stores need 16.
X86 = ("-mcpu=i686+sse2+sse3+ssse3", "-mstackrealign")
# Android 15 runs on devices with pages of 16 KiB, whose loader refuses libraries aligned to 4 KiB.
LARGE_PAGES = "-Wl,-z,max-page-size=16384"


ABIS: Mapping[str, ZigAbi] = MappingProxyType(
    {
        # ABIs of Linux have Debian's names, those of Android Google's. Both lists have an x86_64; here it is
        # Android's, so that no application packages a library for Linux by mistake.
        "amd64": ZigAbi(
            "Linux on x86-64", "x86_64", ("-target", "x86_64-linux-musl"), _glibc("x86_64-linux-gnu")
        ),
        "arm64": ZigAbi(
            "Linux on 64-bit ARM", "aarch64", ("-target", "aarch64-linux-musl"), _glibc("aarch64-linux-gnu")
        ),
        "armhf": ZigAbi(
            "Linux on 32-bit ARM: ARMv7 with NEON, hard-float",
            "arm",
            ("-target", "arm-linux-musleabihf", ARMV7),
            _glibc("arm-linux-gnueabihf"),
        ),
        "riscv64": ZigAbi(
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
        # No LARGE_PAGES: on this processor zig's linker aligns to 64 KiB by itself.
        "arm64-v8a": _android("64-bit ARM", "aarch64", ("-target", "aarch64-linux-musl")),
        # For a target without "hf" zig disables NEON. With "hf" and softfp, floats are still passed in
        # integer registers, as Android requires; a static program must then link the musl that takes them
        # there.
        "armeabi-v7a": ZigAbi(
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
        "hexagon-v66": _hexagon(66, has_runner=True),
        "hexagon-v68": _hexagon(68),
        "hexagon-v69": _hexagon(69),
        "hexagon-v73": _hexagon(73),
        "rv32imc": _bare(
            "RISC-V of 32 bits", ("-target", "riscv32-freestanding-none", "-mcpu=generic_rv32+m+c")
        ),
    }
)

NATIVE = ZigAbi(
    "this machine", "", ("-mcpu=baseline",), ("-shared",), program=(), libc="the C library of this machine"
)
"""A machine without an entry above: zig finds out by itself what is there."""

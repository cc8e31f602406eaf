"""Runs programs whose library calls a DSP, on a machine without one: beside the emulated DSP."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from ctypes.util import find_library
from itertools import chain
from pathlib import Path
from types import MappingProxyType

from mace_core.api import Compiler, Runner
from mace_core.cache import cache_folder, private_folder
from mace_core.errors import MaceError
from mace_core.registry import Registry
from mace_core.run.runners import Qemu, linux, processor
from mace_target_hexagon.emulator import (
    ABI,
    FLAGS,
    LOADER,
    PACKAGE,
    EmulatedDsp,
    build_emulator,
    find_missing,
)

MACHINES: Mapping[int, str] = MappingProxyType({40: "arm", 62: "x86_64", 183: "aarch64"})
"""e_machine of an ELF file -> the processor (elf.h)."""

ABIS: Mapping[str, str] = MappingProxyType({"arm": "armhf", "x86_64": "amd64", "aarch64": "arm64"})
"""Processor -> the ABI of Linux on it."""

SYSROOTS: Mapping[str, str] = MappingProxyType(
    {name: f"/usr/{name}-linux-gnu" for name in ("aarch64", "x86_64")} | {"arm": "/usr/arm-linux-gnueabihf"}
)
"""Processor -> where Debian has its C library, which a static program needs too once it calls dlopen."""

SOURCES = ("emulator/*.[ch]", "driver/*.h", "dsp/*.h")
"""What the emulated DSP is made of: a change of any of them makes another one."""


def has_dsp() -> bool:
    """Tell whether this machine has FastRPC's library, and with it a DSP of its own."""
    return find_library("cdsprpc") is not None


class BesideDsp(Runner):
    """Executes a program on this machine, or in QEMU, with a stand-in for FastRPC's library before it.

    The DSP libraries lie where a build puts them, beside the library of the choice.
    """

    name = "emulated DSP"
    timing = Qemu.timing

    def missing(self) -> str | None:
        """None if QEMU executes programs of the DSP and a compiler makes the one that plays it."""
        registry = Registry.load()
        if ABI not in registry.abis():
            return f"no toolchain for {ABI}: pip install mace-toolchain-zig"
        return find_missing() or registry.find_toolchain(ABI).missing(ABI)

    def command(self, program: Path, arguments: Sequence[str]) -> list[str]:
        """Give `env` with the variables of the emulated DSP, and the program."""
        program = program.absolute()
        name = _read_processor(program)
        choice = program.parent.name
        libraries = [program.parent.parent.parent / "lib" / choice, program.parent]
        variables = _make_emulator(name).environment(libraries)
        words = linux(name).command(program, arguments)
        if name != processor():
            # Where QEMU looks for what the program opens: the C library for its processor, not for this one.
            words[1:1] = ["-L", SYSROOTS[name]]
        # By `env`, because a runner states a command alone, and nothing else may see the stand-in.
        return ["env", *(f"{key}={value}" for key, value in variables.items()), *words]


def _read_processor(program: Path) -> str:
    """Return the processor that an ELF file is for; MaceError for another file."""
    try:
        with program.open("rb") as file:
            head = file.read(20)
    except OSError as error:
        raise MaceError(program, f"cannot be read: {error.strerror}", "build it again") from None
    name = MACHINES.get(int.from_bytes(head[18:20], "little")) if head[:4] == b"\x7fELF" else None
    if name is None:
        raise MaceError(program, "is no program of a processor that is emulated here", "run it on the device")
    return name


def _make_emulator(name: str) -> EmulatedDsp:
    """Return the emulated DSP for programs of a processor, compiled at the first call and kept.

    MaceError where a compiler is missing, or where others could change what is kept.
    """
    registry = Registry.load()
    native = _find_compiler(registry, name)
    dsp = registry.find_toolchain(ABI).compiler(ABI)
    digest = hashlib.sha256(repr((native, dsp, FLAGS)).encode())
    for source in sorted(chain.from_iterable(map(PACKAGE.glob, SOURCES))):
        digest.update(source.read_bytes())
    cache = private_folder(cache_folder("hexagon"))
    if cache is None:
        raise MaceError(
            cache_folder("hexagon"), "can be changed by others", "set MACE_CACHE to a folder of yours"
        )
    folder = cache / digest.hexdigest()[:32]
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=cache) as parent:
            product = Path(parent) / "emulator"
            build_emulator(product, native, dsp)
            try:
                os.rename(product, folder)
            except OSError:
                # Another process was faster: what it made of the same sources is the same.
                if not folder.is_dir():
                    raise
    return EmulatedDsp(folder, folder / LOADER)


def _find_compiler(registry: Registry, name: str) -> Compiler:
    if name == processor():
        return registry.select("host")[0].compiler
    return registry.find_toolchain(ABIS[name]).compiler(ABIS[name])

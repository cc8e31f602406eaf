"""Defines what a toolchain plugin implements: compilers for ABIs, and runners for their programs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar


@dataclass(frozen=True)
class Compiler:
    """The commands and flags that make code for one ABI.

    cc, ar: the commands as argument lists, without any flag that depends on what is compiled.
    flags: for every compilation and link.  shared, program: for linking a shared library, a program.
    libc: what it links against, in words; the build's log says so.
    hosted: whether there is an operating system: a C library, threads, shared libraries; without one a
    program brings its own start.
    slow: why a command may take a minute, as a clause; told to the user who waits for it.
    """

    cc: tuple[str, ...]
    ar: tuple[str, ...]
    flags: tuple[str, ...] = ()
    shared: tuple[str, ...] = ("-shared",)
    program: tuple[str, ...] = ()
    libs: tuple[str, ...] = ("-lm",)
    libc: str = "the C library of this machine"
    hosted: bool = True
    slow: str = ""


MEASURED = "measured"
EMULATED = "emulated"
"""Words for `Runner.timing`: of the processor itself, and of an emulator, whose times say nothing of it."""


class Runner(ABC):
    """Executes what a toolchain built, here or elsewhere.

    timing: what the times are that its programs tell: "measured" on the processor itself, or another word for
    what stands in for that.
    """

    name: ClassVar[str]
    timing: ClassVar[str] = MEASURED

    def missing(self) -> str | None:
        """None if ready; otherwise what to install or connect."""
        return None

    @abstractmethod
    def command(self, program: Path, arguments: Sequence[str]) -> list[str]:
        """The command on this machine that executes the program with these arguments."""


@dataclass(frozen=True)
class CountedRun:
    """What a program printed, and what it had executed each time that it read the clock.

    readings: for each, numbers in the order of `Counter.names`, from the start of the program on.
    """

    printed: str
    readings: tuple[tuple[int, ...], ...]


class Counter(ABC):
    """Counts what a program executes, where its processor is emulated and no time says anything.

    names: of what is counted, in the plural; the first is what a run costs, such as "packets".
    max_macs: multiply-adds that one of the first does at most.  limit: by what, in words.
    """

    names: ClassVar[tuple[str, ...]]
    max_macs: ClassVar[int]
    limit: ClassVar[str]

    @abstractmethod
    def count(self, command: Sequence[str]) -> CountedRun:
        """Execute a runner's command; MaceError where it fails or cannot be counted."""


class Toolchain(ABC):
    """Compilers for its ABIs.

    abis: ABI -> what it is, in words.
    last: chosen only where no other toolchain for the ABI is ready.
    """

    name: ClassVar[str]
    abis: ClassVar[Mapping[str, str]]
    last: ClassVar[bool] = False

    def missing(self, abi: str) -> str | None:
        """None if ready for the ABI; otherwise what to install or set."""
        return None

    @abstractmethod
    def compiler(self, abi: str) -> Compiler:
        """Return the compiler for the ABI."""

    def runner(self, abi: str) -> Runner | None:
        """Return what runs programs of the ABI; None if nothing on this machine can."""
        return None

"""Describes the products of a build before any model is read: build systems need the names of files first.

`build_manifest` collects the manifests of one choice, `build_steps` turns them into steps, and `emit` and the
targets write the generated files. No other module decides from the name of a file how it is compiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import TypeVar

from mace_core.errors import PluginError

Value = TypeVar("Value")


RUNTIME_SHARE = "runtime"
"""The share of a library's bytes that serve no model and no level alone: sessions, threads, drivers."""


class Product(Enum):
    """The kind of file that the units of a manifest are linked into."""

    LIBRARY = "library"
    """A static library, and a shared one where there is an operating system."""
    PROGRAM = "program"


@dataclass(frozen=True)
class Unit:
    """A source that the compiler is called for.

    source: one of the manifest's files; C, or assembler that wants the preprocessor (.S).
    flags: of this source alone, behind those of the toolchain and of the build.
    reads: the manifest's files that it includes besides the headers for applications: a change of one makes
    its object stale.
    embeds: the manifest's files whose bytes its assembler takes in (.incbin), by names relative to the folder
    of all files.
    is_independent: whether of the headers for applications it includes only those that come with MACE, so
    that it can be compiled while models are read.
    share: what its bytes serve, for the report of a library's size.
    """

    source: str
    flags: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    embeds: tuple[str, ...] = ()
    is_independent: bool = False
    share: str = RUNTIME_SHARE

    @property
    def sources(self) -> tuple[str, ...]:
        """All files that its object is made of."""
        return (self.source, *self.reads, *self.embeds)

    @property
    def object(self) -> str:
        """The name of its object."""
        return str(PurePosixPath(self.source).with_suffix(".o"))


@dataclass(frozen=True)
class Manifest:
    """One product of a build.

    All files lie in one folder, that of the choice, and their names are relative to it, with / between
    folders.

    name: of a library without lib and suffix; of a program as it is.
    generated: files that are written once all models have been compiled; `Target.write` or core makes their
    content.
    copies: files that come with an installed package, by the name that they get among the generated ones.
    headers: those files that applications include.
    units: what is compiled, in this order where there are fewer processors: what takes longest stands first.
    includes: folders that units look for headers in.
    linker_script: one of the files; "" for the linker's own.
    libraries: libraries to link, as the linker calls them ("dl", "z").
    loads: libraries that are looked for at run time -> what the user does where one is missing.
    deploys: files that must lie beside the library on the device.
    needs: names of libraries of this build that the product is linked with.
    drivers: C symbols of the drivers that the units define.
    holds: names of models that the product computes whole, so that no library has them.
    abi: what the units are compiled for; "" for the ABI of the build. A product of another ABI lies beside
    the library.
    refusal: why its files can be written and not built here, with what to do instead; "" for what can be
    built. PluginError for a file that is named twice, or is not among the files.
    """

    name: str
    product: Product = Product.LIBRARY
    generated: tuple[str, ...] = ()
    copies: Mapping[str, Path] = field(default_factory=lambda: MappingProxyType({}))
    headers: tuple[str, ...] = ()
    units: tuple[Unit, ...] = ()
    includes: tuple[str, ...] = (".",)
    linker_script: str = ""
    libraries: tuple[str, ...] = ()
    loads: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    deploys: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    abi: str = ""
    refusal: str = ""

    def __post_init__(self) -> None:
        files = self.files
        for name in (self.name, *files, *self.includes):
            if not _is_inside(name):
                self._fail(
                    f"{name!r} does not lie in the folder of generated files",
                    "name it relative to that folder, without ..",
                )
        if twice := _find_repeated(files):
            self._fail(f"has {twice!r} twice", "give each file a name of its own")
        used = [*self.headers, *self.deploys, *([self.linker_script] if self.linker_script else [])]
        for unit in self.units:
            used += unit.sources
        if absent := [name for name in used if name not in set(files)]:
            self._fail(
                f"uses {absent[0]!r}, which is not among its files", "name it under generated= or copies="
            )
        if twice := _find_repeated([unit.object for unit in self.units]):
            self._fail(f"has two units for the object {twice!r}", "give sources different names")

    @property
    def files(self) -> tuple[str, ...]:
        """All files, generated and copied."""
        return (*self.generated, *self.copies)

    @property
    def joins_library(self) -> bool:
        """Tell whether it is a share of the library of models, instead of a product beside it."""
        return self.product is Product.LIBRARY and not self.abi

    def join(self, others: Iterable[Manifest]) -> Manifest:
        """Return one manifest with the shares of all.

        PluginError where two have different content for one file.

        The name, the ABI and the linker script stay those of the first.
        """
        merged = self
        for other in others:
            merged = merged._extend(other)
        return merged

    def _extend(self, other: Manifest) -> Manifest:
        for name in other.files:
            if name in self.files and (
                name not in self.copies or self.copies[name] != other.copies.get(name)
            ):
                other._fail(
                    f"has a file {name!r}, as {self.name!r} has",
                    "begin the names of its files with the target's name",
                )
        units = {unit.source: unit for unit in self.units}
        for unit in other.units:
            if units.get(unit.source, unit) != unit:
                other._fail(
                    f"compiles {unit.source!r} otherwise than {self.name!r} does",
                    "copy it under another name",
                )
        return replace(
            self,
            generated=_join(self.generated, other.generated),
            copies=MappingProxyType({**self.copies, **other.copies}),
            headers=_join(self.headers, other.headers),
            units=_join(self.units, other.units),
            includes=_join(self.includes, other.includes),
            libraries=_join(self.libraries, other.libraries),
            loads=MappingProxyType({**self.loads, **other.loads}),
            deploys=_join(self.deploys, other.deploys),
            needs=_join(self.needs, other.needs),
            drivers=_join(self.drivers, other.drivers),
            holds=_join(self.holds, other.holds),
        )

    def _fail(self, problem: str, remedy: str) -> None:
        raise PluginError(f"manifest {self.name!r}", problem, remedy)


def _join(first: Sequence[Value], second: Sequence[Value]) -> tuple[Value, ...]:
    """Return what is in either, each once, in order."""
    return tuple(dict.fromkeys((*first, *second)))


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(name) and not path.is_absolute() and ".." not in path.parts and "\\" not in name


def _find_repeated(names: Iterable[str]) -> str | None:
    """Return a name that stands twice among these.

    letters' case does not make two of one, because it does not on every system.
    """
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            return name
        seen.add(name.lower())
    return None

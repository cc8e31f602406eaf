"""One step of a build, the paths that it has, and steps that copy or write one file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mace_core.run.command import Say
from mace_core.run.files import write


@dataclass(frozen=True)
class Step:
    """One step of a build.

    products: what it makes.  sources: products of other steps that it reads.  inputs: files from outside that
    it reads.
    run: does it, and says through its argument what a user should hear; raises MaceError.
    announcement: a line that is printed first.
    signature: what the products depend on besides the content of the files.
    replaces: whether it keeps products that are still right; otherwise old ones are removed before.
    urgency: of the steps that can begin, one with the largest number does: what takes longest must not be
    left to the end.
    """

    products: tuple[str, ...]
    sources: tuple[str, ...]
    run: Callable[[Say], None]
    announcement: str = ""
    signature: str = ""
    inputs: tuple[Path, ...] = ()
    replaces: bool = True
    urgency: int = 0


@dataclass(frozen=True)
class BuildPlace:
    """The folder in which a library is built, and its deployment file.

    folder: the library's folder.  displayed: the same as users should read it.
    environment: the variables that compilers see.
    """

    deployment: Path
    folder: Path
    displayed: str
    environment: Mapping[str, str]


@dataclass(frozen=True)
class LibraryPaths:
    """The paths of one choice's products in the library's folder."""

    variant: str

    @property
    def generated(self) -> str:
        """The folder of generated sources."""
        return f"gen/{self.variant}"

    @property
    def objects(self) -> str:
        """The folder of objects."""
        return f"obj/{self.variant}"

    @property
    def include(self) -> str:
        """The folder of the choice's own headers."""
        return f"include/{self.variant}"

    @property
    def libraries(self) -> str:
        """The folder of static and shared library."""
        return f"lib/{self.variant}"

    @property
    def programs(self) -> str:
        """The folder of programs."""
        return f"bin/{self.variant}"

    @property
    def report(self) -> str:
        """The file that describes the models, for validation and benchmarks."""
        return f"model/{self.variant}.json"

    @property
    def size(self) -> str:
        """The file that tells the bytes of the library."""
        return f"size/{self.variant}.json"


def copy_step(place: BuildPlace, product: str, source: str | Path) -> Step:
    """Copy a file of another step, given as a string, or one from outside, given as a path."""
    inside, outside = ((source,), ()) if isinstance(source, str) else ((), (source,))
    return Step(
        (product,), inside, partial(_copy, place.folder / product, place.folder / source), inputs=outside
    )


def _copy(product: Path, source: Path, say: Say) -> None:
    write(product, source.read_bytes())
    if os.access(source, os.X_OK):
        product.chmod(0o755)


def write_step(place: BuildPlace, product: str, text: str) -> Step:
    """Write a file whose text is known before the build."""
    return Step((product,), (), partial(_write, place.folder / product, text), signature=text)


def _write(product: Path, text: str, say: Say) -> None:
    write(product, text)

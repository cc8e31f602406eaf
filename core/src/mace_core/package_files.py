"""Files beside a library that let other build systems find it, and an example that uses it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files

from mace_core.emit.text import MAX_LINE
from mace_core.manifest import Manifest
from mace_core.terminal import escape_controls

TEMPLATES = files("mace_core") / "runtime"


@dataclass(frozen=True)
class PackageFiles:
    """Contents of files by path in the library's folder: those of all choices, and those of one."""

    common: Mapping[str, str]
    of_choice: Mapping[str, str]


def package_files(library: Manifest, variant: str, hosted: bool = True) -> PackageFiles:
    """The example, and for CMake and pkg-config a package of the library as it is built for one choice.

    variant: the choice's text.  hosted: whether there are shared libraries and threads.
    All paths in them start from the file itself, so that the library's folder can be moved.
    """
    name = library.name
    loads = [
        f"# Looks for {file} at run time; where it is missing: {remedy}"
        for file, remedy in library.loads.items()
    ]
    values = {
        "LIBRARY": name,
        "LIBRARY_UPPER": name.upper(),
        "VARIANT": variant,
        "VERSION": version("mace-core"),
        "LINKED": "".join(f" {linked}" for linked in library.libraries),
        "LINK_FLAGS": "".join(f" -l{linked}" for linked in library.libraries),
        "LOADS": "".join(f"{escape_controls(line, keep='')[:MAX_LINE]}\n" for line in loads),
    }
    kind = "hosted" if hosted else "bare"
    names = {
        f"lib/{variant}/cmake/{name}Config.cmake": f"package_{kind}.cmake",
        f"lib/{variant}/pkgconfig/{name}.pc": f"package_{kind}.pc",
    }
    example = {"src/example.c": _fill("example.c", values)}
    return PackageFiles(example, {path: _fill(template, values) for path, template in names.items()})


def _fill(template: str, values: Mapping[str, str]) -> str:
    """The template's text with each @KEY@ replaced.

    All values are identifiers, versions or names of choices.
    """
    text = (TEMPLATES / template).read_text(encoding="utf-8")
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text

"""Which files a project has, and how they are compiled and linked without a vendor's SDK: known before the model is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable

from mace_target_max78000.options import Options

TEMPLATES = files("mace_target_max78000.project") / "templates"
BOARD = files("mace_target_max78000.project") / "board"

CONSTANT: Mapping[str, str] = {
    "Makefile": "Makefile.in",
    "msdk.mk": "msdk.mk.in",
    "log.txt": "log.txt.in",
    ".project": "project.in",
    ".cproject": "cproject.in",
    ".vscode/tasks.json": "tasks.json.in",
    ".vscode/launch.json": "launch.json.in",
    ".vscode/c_cpp_properties.json": "c_cpp_properties.json.in",
}
"""Files whose names no option changes: path -> template."""

FLAGS = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror")
INCLUDES = (".", "board")
LINKER_SCRIPT = "board/bare/link.ld"


def layout(options: Options) -> Mapping[str, Traversable]:
    """The project's files: path -> template."""
    named = {
        options.api_filename: "cnn.c.in",
        header(options): "cnn.h.in",
        options.weight_filename: "weights.h.in",
        options.sample_filename: "sampledata.h.in",
        options.c_filename: "main.c.in",
        **CONSTANT,
    }
    if options.known_answer:
        named[options.sample_output_filename] = "sampleoutput.h.in"
    if options.softmax:
        named["softmax.c"] = "softmax.c"
    return {path: TEMPLATES / template for path, template in named.items()} | dict(_board(BOARD, "board/"))


def header(options: Options) -> str:
    """The header's name: that of the source whose functions it declares."""
    return options.api_filename.removesuffix(".c") + ".h"


def sources(paths: Iterable[str]) -> tuple[str, ...]:
    """Those of the project's files that are compiled; the vendor's SDK's folder is not."""
    return tuple(sorted(p for p in paths if p.endswith(".c") and not p.startswith("board/msdk/")))


def _board(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.is_dir():
            yield from _board(entry, f"{prefix}{entry.name}/")
        else:
            yield prefix + entry.name.removesuffix(".in"), entry

"""Writes new plugins, ready to install, from the templates in `scaffold_files`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType

from mace_core.api import Content
from mace_core.emit.render import render
from mace_core.emit.text import Word
from mace_core.errors import MaceError
from mace_core.run.files import write_all

TEMPLATES = files("mace_core") / "scaffold_files"

HARDWARE: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "cpu": {
            "__init__.py": "cpu/target.py.in",
            "kernels/relu.c.in": "cpu/relu.c.in.in",
            "kernels/prelude.h.in": "cpu/prelude.h.in.in",
        },
        "device": {"__init__.py": "device/target.py.in", "driver/{symbol}_driver.c": "device/driver.c.in"},
        "blob": {"__init__.py": "device/target.py.in", "driver/{symbol}_driver.c": "device/driver.c.in"},
        "project": {
            "__init__.py": "project/target.py.in",
            **{
                f"project/{name}.in": f"project/{name}.in.in"
                for name in ("main.c", "network.c", "network.h", "link.ld")
            },
        },
    }
)
"""The kinds of targets: files of the package -> their templates.

cpu: kernels in C, which core compiles into the library.
device: memory and kernels of its own behind a driver.
blob: bytes for the runtime of the hardware, which a driver calls.  project: a program of its own for each
model.
"""

FRONTEND: Mapping[str, str] = MappingProxyType(
    {
        "src/{module}/__init__.py": "frontend/init.py.in",
        "src/{module}/load.py": "frontend/load.py.in",
        "tests/test_load.py": "frontend/test_load.py.in",
    }
)
"""Files of a frontend -> their templates."""

DEFAULT = "cpu"
NONE = "none"
"""Values of the templates for plugins that are not targets."""


def write_plugin(kind: str, name: str, output: Path, hardware: str = "") -> Path:
    """Write the distribution mace-KIND-NAME into a new folder of that name below `output`.

    Returns the folder.

    hardware: for targets, one of HARDWARE; "" for the default.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise MaceError(
            f"name {name!r}",
            "is not a plugin name",
            "use small letters, digits and single hyphens, a letter first",
        )
    if hardware and kind != "target":
        raise MaceError(f"--kind {hardware}", f"a {kind} has no kinds", "leave it out")
    if hardware not in ("", *HARDWARE):
        raise MaceError(
            f"--kind {hardware}", "no such kind of targets", f"choose one of {', '.join(HARDWARE)}"
        )
    distribution = f"mace-{kind}-{name}"
    folder = output / distribution
    if folder.exists():
        raise MaceError(folder, "exists already", "choose another name or folder")
    symbol = name.replace("-", "_")
    module = f"mace_{kind}_{symbol}"
    hardware = (hardware or DEFAULT) if kind == "target" else NONE
    words = {
        "kind": kind,
        "name": name,
        "module": module,
        "symbol": symbol,
        "distribution": distribution,
        "hardware": hardware,
    }
    templates = {
        "pyproject.toml": "pyproject.toml.in",
        "README.md": "README.md.in",
        "tests/test_contract.py": "test_contract.py.in",
        **_own_templates(kind, hardware),
    }
    known = {key: Word(word) for key, word in words.items()}
    known["cls"] = _class_name(kind, name, templates.values())
    files: dict[str, Content] = {
        path.format(module=module, symbol=symbol): render(TEMPLATES / template, **known)
        for path, template in templates.items()
    }
    write_all(folder, files)
    return folder


def _own_templates(kind: str, hardware: str) -> Mapping[str, str]:
    """Return the files that only this kind of plugins has, with their templates."""
    if kind == "frontend":
        return FRONTEND
    if kind == "target":
        return {f"src/{{module}}/{path}": template for path, template in HARDWARE[hardware].items()}
    return {"src/{module}/__init__.py": f"{kind}.py.in"}


def _class_name(kind: str, name: str, templates: Iterable[str]) -> Word:
    """Return the name of the plugin's class: its own name in camel case."""
    simple = "".join(word.capitalize() for word in name.split("-"))
    text = "\n".join((TEMPLATES / template).read_text(encoding="utf-8") for template in templates)
    # A plugin that is called "graph" must not hide the Graph that its templates import.
    candidates = (simple, simple + kind.capitalize(), f"My{simple}")
    return Word(next(word for word in candidates if not re.search(rf"\b{word}\b", text)))

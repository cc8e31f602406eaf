"""New plugins, ready to install, from the templates in `scaffold_files`."""

from __future__ import annotations

import re
from collections.abc import Mapping
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

cpu: kernels in C, which core compiles into the library.  device: memory and kernels of its own behind a
driver.
blob: bytes for the runtime of the hardware, which a driver calls.  project: a program of its own for each
model.
"""

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
    known = {key: Word(word) for key, word in words.items()} | {
        "cls": Word("".join(w.capitalize() for w in name.split("-")))
    }
    sources = HARDWARE.get(hardware, {"__init__.py": f"{kind}.py.in"})
    templates = {
        "pyproject.toml": "pyproject.toml.in",
        "README.md": "README.md.in",
        "tests/test_contract.py": "test_contract.py.in",
        **{f"src/{module}/{path.format(symbol=symbol)}": template for path, template in sources.items()},
    }
    files: dict[str, Content] = {
        path: render(TEMPLATES / template, **known) for path, template in templates.items()
    }
    write_all(folder, files)
    return folder

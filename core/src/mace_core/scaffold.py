"""New plugins, ready to install, from the templates in `scaffold_files`."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from mace_core.api import Content
from mace_core.emit.render import render
from mace_core.emit.text import Word
from mace_core.errors import MaceError
from mace_core.run.files import write_all

TEMPLATES = files("mace_core") / "scaffold_files"


def write_plugin(kind: str, name: str, output: Path) -> Path:
    """Write the distribution mace-KIND-NAME into a new folder of that name below `output`; returns the folder."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise MaceError(f"name {name!r}", "is not a plugin name", "use small letters, digits and single hyphens, a letter first")
    folder = output / f"mace-{kind}-{name}"
    if folder.exists():
        raise MaceError(folder, "exists already", "choose another name or folder")
    module = f"mace_{kind}_{name.replace('-', '_')}"
    words = {"kind": kind, "name": name, "module": module, "cls": "".join(w.capitalize() for w in name.split("-"))}
    known = {key: Word(word) for key, word in words.items()}
    made: dict[str, Content] = {
        "pyproject.toml": render(TEMPLATES / "pyproject.toml.in", **known),
        "README.md": render(TEMPLATES / "README.md.in", **known),
        f"src/{module}/__init__.py": render(TEMPLATES / f"{kind}.py.in", **known),
        "tests/test_contract.py": render(TEMPLATES / "test_contract.py.in", **known),
    }
    write_all(folder, made)
    return folder

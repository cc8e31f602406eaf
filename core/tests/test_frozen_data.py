"""Every dataclass of the core is frozen, so that a stage cannot change what another one still reads."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import mace_core

MUTABLE = {"deployment.source._Open", "importer.scope.Scope", "partition._Growing"}
"""Classes that collect something while they live."""


def dataclasses() -> Iterator[tuple[str, bool]]:
    """Yield the name of each dataclass with its module's, and whether it is frozen."""
    root = Path(mace_core.__path__[0])
    for file in sorted(root.rglob("*.py")):
        path = file.relative_to(root).with_suffix("")
        if path.parts[0] in ("testing", "scaffold_files", "runtime") or path.name == "__init__":
            continue
        module = import_module(".".join(("mace_core", *path.parts)))
        for name, value in vars(module).items():
            if (
                isinstance(value, type)
                and value.__module__ == module.__name__
                and "__dataclass_params__" in vars(value)
            ):
                yield f"{'.'.join(path.parts)}.{name}", value.__dataclass_params__.frozen


def test_what_stages_hand_on_is_frozen() -> None:
    found = list(dataclasses())
    assert len(found) > 150
    assert {name for name, is_frozen in found if not is_frozen} == MUTABLE

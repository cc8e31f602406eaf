"""Modules of a package point one way, also in functions and for types alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from language import Source
from readability import import_cycles, read_imports

ROOT = Path(__file__).parents[1]
PACKAGES = sorted(
    init.parent for pattern in ("core/src/*", "*/*/src/*") for init in ROOT.glob(f"{pattern}/__init__.py")
)

PAIRS = {
    # A node names its operator, and an operator's shape rule takes tensors and nodes.
    ("mace_core.ir", "mace_core.ops.op"),
    # A target has levels, and levels are chosen for targets.
    ("mace_core.levels", "mace_core.api"),
}
"""Types that name each other, as (module, what it imports for types alone)."""


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_no_module_imports_itself_through_others(package: Path) -> None:
    imports = read_imports(Source.read(file) for file in package.rglob("*.py"))
    assert package.name in imports
    for module, other in PAIRS:
        if module in imports:
            imports[module].remove(other)
    assert import_cycles(imports) == []


def test_all_packages_are_read() -> None:
    names = {package.name for package in PACKAGES}
    assert {"mace_core", "mace_frontend_onnx", "mace_target_cpu", "mace_toolchain_zig"} <= names
    assert len([*(ROOT / "core/src/mace_core").rglob("*.py")]) > 100

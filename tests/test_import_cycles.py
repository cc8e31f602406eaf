"""Modules of a package point one way, also in functions and for types alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

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


def name_module(file: Path, package: Path) -> str:
    """The dotted name of a module, of a folder for its `__init__`."""
    parts = file.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def list_imports(text: str) -> Iterator[tuple[str, str]]:
    """Each name that a module imports, as (module, name)."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)


@cache
def read_graph(package: Path) -> Mapping[str, set[str]]:
    """The modules of the package that each of its modules imports."""
    files = {name_module(file, package): file for file in package.rglob("*.py")}
    graph: dict[str, set[str]] = {}
    for module, file in files.items():
        imported = list_imports(file.read_text(encoding="utf-8"))
        names = {f"{source}.{name}" if f"{source}.{name}" in files else source for source, name in imported}
        graph[module] = (names & files.keys()) - {module}
    return graph


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_no_module_imports_itself_through_others(package: Path) -> None:
    graph = {module: set(imported) for module, imported in read_graph(package).items()}
    for module, other in PAIRS:
        if module in graph:
            graph[module].remove(other)
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"modules import each other: {' -> '.join(error.args[1])}")


def test_all_packages_are_read() -> None:
    names = {package.name for package in PACKAGES}
    assert {"mace_core", "mace_frontend_onnx", "mace_target_cpu", "mace_toolchain_zig"} <= names
    assert len(read_graph(ROOT / "core/src/mace_core")) > 100

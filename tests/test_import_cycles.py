"""Modules of a frontend, and of the kit that frontends are made of, point one way."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FRONTENDS = ("ai8x", "caffe", "keras", "nnef", "onnx", "pytorch", "tensorflow", "tflite")
"""All of them; pytorch hands its models to onnx, and ai8x reads layers of one family of chips, not nodes."""

PACKAGES = [
    ROOT / "core/src/mace_core/importer",
    *(ROOT / f"frontends/{name}/src/mace_frontend_{name}" for name in FRONTENDS),
]


def imports(package: Path) -> Mapping[str, set[str]]:
    """The modules of the package that each of its modules imports, in functions and for types alone as well.

    A package's own `__init__` imports what it offers, and is left out.
    """
    prefix = ".".join(package.relative_to(next(p for p in package.parents if p.name == "src")).parts)
    files = [path for path in package.rglob("*.py") if path.name != "__init__.py"]
    modules = {f"{prefix}.{'.'.join(path.relative_to(package).with_suffix('').parts)}" for path in files}
    found: dict[str, set[str]] = {}
    for path in files:
        own = f"{prefix}.{'.'.join(path.relative_to(package).with_suffix('').parts)}"
        nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        found[own] = {str(node.module) for node in nodes if node.module in modules}
    return found


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_no_module_imports_itself_through_others(package: Path) -> None:
    graph = imports(package)
    assert graph
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"modules import each other: {' -> '.join(error.args[1])}")

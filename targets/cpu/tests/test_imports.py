"""The packages of this target import each other in one direction."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import mace_target_cpu

PACKAGE = Path(mace_target_cpu.__file__).parent
LOWERINGS = sorted((PACKAGE / "lower").glob("*.py"))


@pytest.mark.parametrize("module", LOWERINGS, ids=lambda module: str(module.name))
def test_lowerings_know_nothing_of_quantized_ones(module: Path) -> None:
    imports = [node for node in ast.walk(ast.parse(module.read_text())) if isinstance(node, ast.ImportFrom)]
    assert not [
        node.lineno for node in imports if (node.module or "").startswith("mace_target_cpu.quantized")
    ]

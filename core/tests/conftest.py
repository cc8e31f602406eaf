"""ONNX's own test data, for the references of operators."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def onnx_cases(monkeypatch: pytest.MonkeyPatch) -> Callable[[Collection[str]], list[Any]]:
    """Of operators: every test case of ONNX with one node, of one of them.

    ONNX computes the data of a case when it imports the case's module.  All of them take 12 seconds, most of
    it for pooling, so only the modules that name one of the operators are imported.
    """
    package = pytest.importorskip("onnx.backend.test.case.node")

    def collect(operators: Collection[str]) -> list[Any]:
        def import_modules(_: object) -> None:
            for path in sorted(Path(package.__path__[0]).glob("*.py")):
                text = path.read_text(encoding="utf-8")
                if any(f'"{operator}"' in text for operator in operators):
                    import_module(f"{package.__name__}.{path.stem}")

        monkeypatch.setattr(package, "import_recursive", import_modules)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cases = package.collect_testcases(None)
        single = [case for case in cases if len(case.model.graph.node) == 1]
        return [case for case in single if case.model.graph.node[0].op_type in operators]

    return collect

"""Damaged models: each ends in one error or in a valid graph."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from nnef_cases import WHOLE, dat

from mace_core.testing.malformed import Damaged, check_damaged, mutations


def damaged(count: int) -> Iterator[Damaged]:
    for number, case in enumerate(WHOLE):
        text = case.text().encode()
        files = {f"{label}.dat": dat(array) for label, array in case.variables.items()}
        yield Damaged(f"sound {number}", {"graph.nnef": text, **files}, ("graph.nnef",))
        for i, bad in enumerate(mutations(text, seed=number, count=count)):
            yield Damaged(f"text {number} {i}", {"graph.nnef": bad, **files}, ("graph.nnef",))
        name = min(files)
        for i, bad in enumerate(mutations(files[name], seed=number, count=count // 4)):
            yield Damaged(f"{name} {number} {i}", {"graph.nnef": text, **files, name: bad}, ("graph.nnef",))


@pytest.mark.slow
def test_every_damaged_model_is_one_error_or_a_graph(tmp_path: Path) -> None:
    check_damaged("nnef", list(damaged(60)), tmp_path)


@pytest.mark.fuzz
def test_many_damaged_models(tmp_path: Path) -> None:
    check_damaged("nnef", list(damaged(int(os.environ.get("MACE_FUZZ", "2000")))), tmp_path)

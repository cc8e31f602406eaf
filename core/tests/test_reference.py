"""A graph computed by the ops' numpy references."""

from __future__ import annotations

import numpy as np
import pytest

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Quant, Storage
from mace_core.run.reference import execute


def test_every_tensor_is_there() -> None:
    new = Builder("g")
    x, w = new.input("x", DType.F32, (2,)), new.weight("w", np.float32([1, -3]))
    total = new.one("Add", [x, w], outputs=["t"])
    graph = new.finish([new.one("Relu", [total], outputs=["y"])])
    values = execute(graph, {"x": np.float32([1, 2])})
    assert {name: array.tolist() for name, array in values.items()} == {
        "x": [1, 2],
        "w": [1, -3],
        "t": [2, -1],
        "y": [2, 0],
    }


def test_stored_results_are_rounded_to_their_storage() -> None:
    new = Builder("g")
    x = new.input("x", DType.I8, (3,), Quant.of(0.5))
    y = new.one("Add", [x, x], outputs=[new.reserve_output("y", Storage(DType.I8, Quant.of(2.0)))])
    values = execute(new.finish([y]), {"x": np.int8([2, 3, 127])})
    assert values["y"].dtype == np.int8
    assert values["y"].tolist() == [1, 2, 64], "2, 3 and 127 in steps of 2: 1, 1.5 and 63.5, ties to the even"


def test_a_missing_input_is_told_by_its_name() -> None:
    new = Builder("g")
    graph = new.finish([new.one("Relu", [new.input("x", DType.F32, (2,))])])
    with pytest.raises(KeyError, match="x"):
        execute(graph, {})

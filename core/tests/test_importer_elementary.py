"""Elementary functions composed of ops of the IR, from end to end of every float type, against numpy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from importer_example import ExampleImporter, ExampleNode

from mace_core.importer import ImportedNode
from mace_core.importer.elementary import atan2_choice, expm1_factors, log1p_choice
from mace_core.ir import Array, DType
from mace_core.run.reference import execute

TYPES = (np.float16, np.float32, np.float64)


def compute(op: str, compose: Callable[..., list[str]], *arrays: Array) -> Array:
    node = ExampleNode(ExampleImporter(), op)
    names = [f"operand{i}" for i in range(len(arrays))]
    for name, array in zip(names, arrays, strict=True):
        node.builder.input(name, DType.of(array), array.shape)
    outputs = node.done(op, compose(node, *names))
    return execute(node.builder.finish(outputs), dict(zip(names, arrays, strict=True)))["y"]


def assert_close(found: Array, expected: Array) -> None:
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=8 * np.finfo(found.dtype).eps, atol=0)


@pytest.mark.parametrize("dtype", TYPES)
def test_expm1_has_all_digits_from_end_to_end(dtype: type) -> None:
    tiny = 4 * float(np.finfo(dtype).tiny)
    x = np.array(
        [-np.inf, -60000, -500, -170, -30, -12, -1, -1e-3, -tiny, 0, tiny, 1e-3, 1, 9, np.nan], dtype
    )
    assert_close(compute("Mul", expm1_factors, x), np.expm1(x.astype(np.float64)).astype(dtype))


@pytest.mark.parametrize("dtype", TYPES)
def test_log1p_has_all_digits_from_end_to_end(dtype: type) -> None:
    tiny, huge = 4 * float(np.finfo(dtype).tiny), float(np.finfo(dtype).max)
    near_pole = -1 + 4 * float(np.finfo(dtype).eps)
    x = np.array(
        [-2, -1, near_pole, -0.6, -0.5, -0.4, -tiny, 0, tiny, 1e-3, 0.4, 0.5, 0.6, 9, 6e4, huge], dtype
    )
    with np.errstate(all="ignore"):
        expected = np.log1p(x.astype(np.float64)).astype(dtype)
    assert_close(compute("Where", log1p_choice, x), expected)


@pytest.mark.parametrize("dtype", TYPES)
def test_atan2_in_all_directions(dtype: type) -> None:
    y, x = (array.reshape(-1).astype(dtype) for array in np.meshgrid([-2, -0.5, 0, 0.5, 2], [-1, 0, 3]))
    expected = np.arctan2(y.astype(np.float64), x.astype(np.float64)).astype(dtype)
    assert_close(compute("Where", atan2_choice, y, x), expected)
    # The sign of a zero x does not count.
    negative_zero = np.where(x == 0, dtype(-0.0), x)
    assert_close(compute("Where", atan2_choice, y, negative_zero), expected)


def test_nodes_inside_say_what_they_come_from() -> None:
    node: ImportedNode = ExampleNode(ExampleImporter(), "Log1p")
    node.builder.input("operand", DType.F32, (3,))
    log1p_choice(node, "operand")
    assert {source for made in node.builder.nodes for source in made.sources} == {"Log1p-of-y"}

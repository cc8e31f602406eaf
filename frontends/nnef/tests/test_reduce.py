"""Reductions, products and normalizations along axes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from nnef_cases import Case, check, floats, load, write_model

from mace_core.errors import MaceError


@pytest.mark.parametrize("name", ["sum_reduce", "max_reduce", "min_reduce", "mean_reduce"])
@pytest.mark.parametrize("axes", ["[1]", "[2, 3]", "[]"])
def test_reductions_keep_their_axes(name: str, axes: str, tmp_path: Path) -> None:
    check(Case(f"y = {name}(x0, axes = {axes});"), tmp_path)


def test_a_normalized_sum_is_a_mean(tmp_path: Path) -> None:
    check(Case("y = sum_reduce(x0, axes = [1, 3], normalize = true);"), tmp_path)


@pytest.mark.parametrize("name", ["argmax_reduce", "argmin_reduce"])
def test_places(name: str, tmp_path: Path) -> None:
    check(Case(f"y = {name}(x0, axes = [1]);"), tmp_path)


@pytest.mark.parametrize("name", ["any_reduce", "all_reduce"])
def test_truth_values(name: str, tmp_path: Path) -> None:
    x = np.array([[True, True], [False, True], [False, False]])
    check(Case(f"y = {name}(x0, axes = [1]);", (x,)), tmp_path)


def test_moments(tmp_path: Path) -> None:
    check(Case("m, y = moments(x0, axes = [2, 3]);", outputs=("m", "y")), tmp_path)


@pytest.mark.parametrize("axes", ["", ", axes = [3]", ", axes = [1, 2]"])
def test_softmax(axes: str, tmp_path: Path) -> None:
    check(Case(f"y = softmax(x0{axes});"), tmp_path)


@pytest.mark.parametrize(
    ("attributes", "shapes"),
    [
        ("", ((4, 3), (3, 5))),
        (", transposeA = true", ((2, 3, 4), (2, 3, 5))),
        (", transposeB = true", ((2, 4, 3), (2, 5, 3))),
        (", transposeA = true, transposeB = true", ((3, 4), (5, 3))),
    ],
)
def test_matmul(attributes: str, shapes: tuple[tuple[int, ...], ...], tmp_path: Path) -> None:
    check(Case(f"y = matmul(x0, x1{attributes});", shapes), tmp_path)


@pytest.mark.parametrize("bias", ["", ", b", ", 0.5"])
def test_linear(bias: str, tmp_path: Path) -> None:
    check(Case(f"y = linear(x0, w{bias});", ((2, 3),), {"w": floats(4, 3), "b": floats(1, 4)}), tmp_path)


def test_batch_normalization(tmp_path: Path) -> None:
    names = ("mean", "offset", "scale")
    variables = {**{n: floats(1, 3) + i for i, n in enumerate(names)}, "variance": floats(1, 3) + 2}
    body = "y = batch_normalization(x0, mean, variance, offset, scale, epsilon = 0.01);"
    graph = check(Case(body, variables=variables), tmp_path)
    assert [node.op.name for node in graph.nodes] == ["Mul", "Add"], "constants are computed while reading"


@pytest.mark.parametrize("name", ["l1_normalization", "l2_normalization"])
@pytest.mark.parametrize("attributes", ["", ", bias = 0.5", ", epsilon = 9.0"])
def test_normalizations(name: str, attributes: str, tmp_path: Path) -> None:
    check(Case(f"y = {name}(x0, axes = [1, 2]{attributes});"), tmp_path)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("y = sum_reduce(x0, axes = [4]);", "its axes [4] of a tensor of rank 4"),
        ("y = sum_reduce(x0, axes = [-1]);", "its axes [-1] of a tensor of rank 4"),
        ("y = argmax_reduce(x0, axes = [1, 2]);", "the index along axes [1, 2]; reshape them into one"),
        ("y = linear(x0, x0);", "its filter has shape [2, 3, 5, 6]"),
        ("y = matmul(v, v, transposeA = true);", "a factor of rank 1 is transposed"),
    ],
)
def test_refusals(body: str, said: str, tmp_path: Path) -> None:
    case = Case(body, variables={"v": floats(3)})
    with pytest.raises(MaceError) as error:
        load(write_model(tmp_path / "m", case.text(), case.variables))
    assert said in str(error.value)

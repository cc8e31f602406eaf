"""Operations that move elements, variables and constants."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from nnef_cases import Case, check, floats, load, write_model

from mace_core.errors import MaceError

IMAGE = ((2, 3, 4, 6),)


@pytest.mark.parametrize(
    "body",
    [
        "y = reshape(x0, shape = [2, 72]);",
        "y = reshape(x0, shape = [0, -1]);",
        "y = reshape(x0, shape = [6, 0, 3], axis_start = 1);",
        "y = reshape(x0, shape = [-1], axis_start = 1, axis_count = 2);",
        "y = transpose(x0, axes = [0, 2, 3, 1]);",
        "y = transpose(x0, axes = [1, 0]);",
        "y = unsqueeze(x0, axes = [0, 3]);",
        "a = unsqueeze(x0, axes = [1, 5]);\n    y = squeeze(a, axes = [1]);",
        "y = tile(x0, repeats = [1, 2, 1, 3]);",
        "[a, y] = split(x0, axis = 3, ratios = [1, 2]);",
        "[a, b] = split(x0, axis = 2, ratios = [1, 1]);\n    y = concat([b, a], axis = 1);",
        "y = stack([x0, x0], axis = 2);",
        "[a, b, y] = unstack(x0, axis = 1);",
    ],
)
def test_shapes(body: str, tmp_path: Path) -> None:
    check(Case(body, IMAGE), tmp_path)


@pytest.mark.parametrize(
    "attributes",
    [
        "axes = [2], begin = [1], end = [3]",
        "axes = [1, 3], begin = [1, -4], end = [0, -1]",
        "axes = [3], begin = [1], end = [6], stride = [2]",
        "axes = [3], begin = [5], end = [1], stride = [-2]",
        "axes = [3], begin = [5], end = [0], stride = [-1]",
    ],
)
def test_slice(attributes: str, tmp_path: Path) -> None:
    check(Case(f"y = slice(x0, {attributes});", IMAGE), tmp_path)


@pytest.mark.parametrize("border", ["constant", "replicate", "reflect", "reflect-even"])
def test_pad(border: str, tmp_path: Path) -> None:
    check(
        Case(
            f"y = pad(x0, padding = [(0,0), (0,0), (1,2), (3,0)], border = '{border}', value = 1.5);", IMAGE
        ),
        tmp_path,
    )


def test_gather(tmp_path: Path) -> None:
    check(Case("y = gather(x0, x1, axis = 2);", ((2, 3, 4), np.array([[3, 0], [1, 1]]))), tmp_path)


def test_constants_and_variables(tmp_path: Path) -> None:
    body = "a = constant(shape = [1, 3], value = [0.5, 1.5, -2.5]);\n    b = constant(shape = [2, 3], value = [2.0]);"
    body += "\n    c = mul(a, b);\n    d = add(c, w_bias);\n    y = add(d, x0);"
    check(Case(body, ((2, 3),), {"w/bias": floats(2, 3)}), tmp_path)


def test_variables_of_integers_and_truth_values(tmp_path: Path) -> None:
    variables = {"places": np.array([2, 0, 1]), "mask": np.array([True, False, True])}
    body = "a = gather(x0, places, axis = 0);\n    y = select(mask, a, x0);"
    check(Case(body, ((3,),), variables), tmp_path)


def test_a_variable_of_half_precision_is_widened(tmp_path: Path) -> None:
    check(Case("y = add(x0, w);", ((2, 3),), {"w": floats(2, 3).astype(np.float16)}), tmp_path)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("y = reshape(x0, shape = [5, 5]);", "its shape [5, 5] for [2, 3, 4, 6]"),
        ("y = reshape(x0, shape = [-1, -1]);", "its shape is [-1, -1]"),
        ("y = reshape(x0, shape = [2], axis_start = 3, axis_count = 7);", "axes 3 to 10 of a rank of 4"),
        ("y = transpose(x0, axes = [0, 2]);", "its axes [0, 2] leave out one"),
        ("y = transpose(x0, axes = [0, 0]);", "its axes [0, 0] name one twice"),
        ("y = squeeze(x0, axes = [1]);", "axes [1] of [2, 3, 4, 6] are not all 1"),
        ("y = unsqueeze(x0, axes = [9]);", "its axes [9] of a tensor of rank 5"),
        ("[a, y] = split(x0, axis = 1, ratios = [1, 1]);", "3 elements in the ratios [1, 1]"),
        ("[a, y] = unstack(x0, axis = 1);", "2 results of 3 elements"),
        ("y = slice(x0, axes = [1], begin = [2], end = [1]);", "2 to 1 of 3 elements are none"),
        ("y = slice(x0, axes = [1], begin = [9], end = [0]);", "9 to 0 of 3 elements"),
        ("y = tile(x0, repeats = [2]);", "its repeats are [2]"),
        ("y = pad(x0, padding = [(1,1)]);", "1 paddings of a tensor of rank 4"),
        (
            "y = pad(x0, padding = [(0,0),(0,0),(0,0),(1,1)], border = 'ignore');",
            "border 'ignore'; known are constant",
        ),
        ("y = concat([x0], axis = 4);", "axis 4 of a tensor of rank 4"),
        ("a = constant(shape = [2], value = [1.0, 2.0, 3.0]);\n    y = add(x0, a);", "3 values for [2]"),
        (
            "a = constant(shape = [99999999, 99999999], value = [1.0]);\n    y = add(x0, a);",
            "1 values for [99999999",
        ),
    ],
)
def test_refusals(body: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(MaceError) as error:
        load(write_model(tmp_path / "m", Case(body, IMAGE).text()))
    assert said in str(error.value)

"""Operations that slide a window, and resizing."""

from __future__ import annotations

from pathlib import Path

import pytest
from nnef_cases import Case, check, floats, load, write_model

from mace_core.errors import MaceError

WEIGHTS = {
    "w": floats(4, 3, 3, 3),
    "b": floats(1, 4),
    "one": floats(1, 1),
    "planes": floats(6, 1, 3, 3),
    "points": floats(4, 6, 1, 1),
    "halves": floats(6, 2, 3, 3),
    "up": floats(3, 4, 3, 3),
    "each": floats(3, 1, 4, 4),
    "line": floats(4, 3, 3),
    "cube": floats(4, 3, 2, 3, 2),
    "grouped": floats(3, 2, 2, 2),
}


@pytest.mark.parametrize(
    "attributes",
    [
        "w",
        "w, b",
        "w, 0.5",
        "w, one",
        "w, b, stride = [2, 3]",
        "w, stride = [2, 2], dilation = [1, 2]",
        "w, padding = [(0, 0), (1, 2)]",
        "w, border = 'ignore'",
        "w, border = 'replicate'",
        "w, border = 'reflect', padding = [(1, 1), (2, 0)]",
        "w, border = 'reflect-even', padding = [(1, 1), (2, 2)]",
        "planes, groups = 0",
        "planes, groups = 3, stride = [2, 1]",
    ],
)
def test_conv(attributes: str, tmp_path: Path) -> None:
    check(Case(f"y = conv(x0, {attributes});", ((2, 3, 7, 6),), WEIGHTS), tmp_path)


def test_conv_in_groups(tmp_path: Path) -> None:
    check(Case("y = conv(x0, halves, groups = 2);", ((1, 4, 5, 5),), WEIGHTS), tmp_path)


def test_conv_of_one_and_three_axes(tmp_path: Path) -> None:
    body = "a = conv(x0, line, b, stride = [2]);\n    y = conv(x1, cube, b);"
    check(Case(body, ((2, 3, 9), (1, 3, 4, 5, 4)), WEIGHTS, ("a", "y")), tmp_path)


@pytest.mark.parametrize(
    "attributes", ["", ", b", ", stride = [2, 2], border = 'replicate'", ", padding = [(1,1),(0,2)]"]
)
def test_separable_conv(attributes: str, tmp_path: Path) -> None:
    check(Case(f"y = separable_conv(x0, planes, points{attributes});", ((1, 3, 6, 7),), WEIGHTS), tmp_path)


@pytest.mark.parametrize(
    "attributes",
    [
        "up",
        "up, b, stride = [2, 2]",
        "up, stride = [2, 3], padding = [(1, 1), (0, 1)]",
        "up, stride = [2, 2], padding = [(1, 1), (1, 1)], output_shape = [2, 4, 10, 8]",
        "up, stride = [2, 2], output_shape = [2, 4, 9, 8]",
        "up, dilation = [2, 1]",
        "each, groups = 0, stride = [2, 2]",
        "grouped, groups = 3, stride = [3, 3]",
    ],
)
def test_deconv(attributes: str, tmp_path: Path) -> None:
    check(Case(f"y = deconv(x0, {attributes});", ((2, 3, 5, 4),), WEIGHTS), tmp_path)


@pytest.mark.parametrize("name", ["max_pool", "avg_pool", "rms_pool", "box"])
@pytest.mark.parametrize(
    "attributes",
    [
        "size = [1, 1, 3, 3]",
        "size = [1, 1, 3, 2], stride = [1, 1, 2, 2]",
        "size = [1, 1, 3, 3], border = 'ignore', stride = [1, 1, 2, 2]",
        "size = [1, 1, 2, 2], padding = [(0,0), (0,0), (1,0), (1,1)], border = 'replicate'",
        "size = [1, 1, 2, 2], padding = [(0,0), (0,0), (0,0), (0,0)], dilation = [1, 1, 2, 1]",
        "size = [1, 3, 1, 1]",
        "size = [1, 2, 2, 1], stride = [1, 2, 1, 1], border = 'ignore'",
    ],
)
def test_pools(name: str, attributes: str, tmp_path: Path) -> None:
    check(Case(f"y = {name}(x0, {attributes});", ((2, 3, 6, 7),), high=-0.5), tmp_path)


def test_a_normalized_box_is_a_mean(tmp_path: Path) -> None:
    check(Case("y = box(x0, size = [1, 1, 3, 3], border = 'ignore', normalize = true);"), tmp_path)


@pytest.mark.parametrize(
    "body",
    [
        "y = local_response_normalization(x0, size = [1, 3, 1, 1], alpha = 0.5, beta = 0.75, bias = 2.0);",
        "y = local_response_normalization(x0, size = [1, 1, 3, 3]);",
        "y = local_mean_normalization(x0, size = [1, 1, 3, 3]);",
        "y = local_variance_normalization(x0, size = [1, 1, 3, 3], bias = 0.1, epsilon = 0.5);",
        "y = local_contrast_normalization(x0, size = [1, 3, 3, 1], bias = 0.5);",
    ],
)
def test_local_normalizations(body: str, tmp_path: Path) -> None:
    check(Case(body), tmp_path)


@pytest.mark.parametrize(
    "body",
    [
        "y = nearest_upsample(x0, factor = [2, 3]);",
        "y = nearest_downsample(x0, factor = [2, 3]);",
        "y = area_downsample(x0, factor = [2, 3]);",
        "y = multilinear_upsample(x0, factor = [2, 3]);",
        "y = multilinear_upsample(x0, factor = [2, 2], method = 'asymmetric');",
        "y = multilinear_upsample(x0, factor = [3, 2], method = 'aligned');",
    ],
)
def test_resizing(body: str, tmp_path: Path) -> None:
    check(Case(body, ((2, 3, 4, 6),)), tmp_path)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("y = conv(x0, halves);", "filters of shape [6, 2, 3, 3] for 3 channels in 1 groups"),
        ("y = conv(x0, line);", "filters of shape [4, 3, 3] for 3 channels"),
        ("y = conv(x0, w, stride = [1]);", "1 strides for 2 axes"),
        ("y = conv(x0, w, stride = [0, 1]);", "strides [0, 1]"),
        ("y = conv(x0, w, padding = [(1, 1)]);", "1 paddings for 2 axes"),
        ("y = conv(x0, w, padding = [(-1, 1), (0, 0)]);", "a negative padding"),
        ("y = conv(x0, w, border = 'mirror');", "border 'mirror'; known are ignore, constant"),
        ("y = conv(x0, w, w);", "its bias has shape [4, 3, 3, 3] for 4 channels"),
        ("y = deconv(x0, up, border = 'reflect');", "a border other than zeros"),
        (
            "y = deconv(x0, up, stride = [2, 2], output_shape = [2, 4, 40, 40]);",
            "a result of 40 along spatial axis 0",
        ),
        ("y = max_pool(x0, size = [2, 1, 1, 1]);", "a window over the batch"),
        ("y = max_pool(x0, size = [2, 2]);", "a window of [2, 2] on [2, 3, 5, 6]"),
        ("y = nearest_upsample(x0, factor = [0, 1]);", "factors [0, 1] for a tensor of rank 4"),
        ("y = multilinear_upsample(x0, factor = [2, 2], border = 'constant');", "border 'constant'"),
        (
            "y = multilinear_upsample(x0, factor = [2, 2], method = 'cubic');",
            "method 'cubic'; known are symmetric",
        ),
        ("y = separable_conv(x0, w, points);", "plane filters [4, 3, 3, 3]"),
    ],
)
def test_refusals(body: str, said: str, tmp_path: Path) -> None:
    case = Case(body, variables=WEIGHTS)
    with pytest.raises(MaceError) as error:
        load(write_model(tmp_path / "m", case.text(), case.variables))
    assert said in str(error.value)

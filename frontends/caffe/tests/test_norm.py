"""Norms and reductions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from caffe_cases import Case, check, floats

from mace_core.ir import Array

IMAGE = (2, 6, 4, 5)


def within(x: Array) -> Array:
    """Caffe's response norm of windows of 3 x 3 in each channel: alpha 0.5, beta 0.75."""
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)]).astype(np.float64) ** 2
    total = sum(padded[:, :, i : i + x.shape[2], j : j + x.shape[3]] for i in range(3) for j in range(3))
    return x * (1 + 0.5 * total / 9) ** -0.75


def across(x: Array) -> Array:
    """Caffe's response norm of 5 channels: alpha 0.3, beta 0.6, k 2."""
    padded = np.pad(x, [(0, 0), (2, 2), (0, 0), (0, 0)]).astype(np.float64) ** 2
    return x * (2 + 0.3 / 5 * sum(padded[:, i : i + x.shape[1]] for i in range(5))) ** -0.6


def standard(x: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    return (x - x.mean(axes, keepdims=True)) / (x.std(axes, keepdims=True) + epsilon)


def grouped(x: Array) -> Array:
    """In 3 groups of channels, by the variance plus 0.01."""
    split = x.reshape(2, 3, -1)
    made = (split - split.mean(2, keepdims=True)) / np.sqrt(split.var(2, keepdims=True) + 0.01)
    return made.reshape(x.shape)


def layer_norm(x: Array) -> Array:
    made = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return made * floats(5) + floats(5, seed=1)


def softmax(x: Array, axis: int) -> Array:
    result = np.exp(x)
    return result / result.sum(axis, keepdims=True)


def greatest(x: Array) -> tuple[Array, Array]:
    """The places and values of the 3 greatest of each image, [images, 3]."""
    flat = x.reshape(x.shape[0], -1)
    places = np.argsort(-flat, 1)[:, :3]
    return places.astype(np.float32), np.take_along_axis(flat, places, 1)


NORMS = (
    Case("softmax", "Softmax", [IMAGE]),
    Case("softmax axis", "Softmax softmax_param { axis: -1 }", [IMAGE], oracle=lambda x: softmax(x, 3)),
    Case("log softmax", "LogSoftmax", [IMAGE], oracle=lambda x: np.log(softmax(x, 1))),
    Case("lrn", "LRN lrn_param { local_size: 3 alpha: 0.5 beta: 0.75 }", [IMAGE]),
    Case("lrn k", "LRN lrn_param { local_size: 5 alpha: 0.3 beta: 0.6 k: 2 }", [IMAGE], oracle=across),
    Case(
        "lrn within",
        "LRN lrn_param { local_size: 3 alpha: 0.5 norm_region: WITHIN_CHANNEL }",
        [IMAGE],
        oracle=within,
    ),
    Case("mvn", "MVN", [IMAGE], tolerance=2e-5),
    Case("mvn across", "MVN mvn_param { across_channels: true }", [IMAGE], tolerance=2e-5),
    Case("mvn mean alone", "MVN mvn_param { normalize_variance: false }", [IMAGE]),
    Case("mvn eps", "MVN mvn_param { eps: 0.1 }", [IMAGE], oracle=lambda x: standard(x, (2, 3), 0.1)),
    Case(
        "normalize",
        "Normalize",
        [IMAGE],
        [floats(1)],
        oracle=lambda x: x / np.sqrt((x**2).sum((1, 2, 3), keepdims=True)) * floats(1),
    ),
    Case(
        "normalize channels",
        "Normalize norm_param { across_spatial: false channel_shared: false }",
        [IMAGE],
        [floats(6)],
    ),
    Case(
        "normalize unscaled",
        "Normalize norm_param { across_spatial: false eps: 0.2 }",
        [IMAGE],
        oracle=lambda x: x / np.sqrt((x**2).sum(1, keepdims=True) + 0.2),
    ),
    Case("l2", "L2Normalization", [IMAGE], oracle=lambda x: x / np.sqrt((x**2).sum(-1, keepdims=True))),
    Case(
        "l1",
        "L1Normalization l2normalization_param { axis: 1 }",
        [IMAGE],
        oracle=lambda x: x / np.abs(x).sum(1, keepdims=True),
    ),
    Case("group norm", "GroupNorm group_norm_param { group_num: 3 eps: 0.01 }", [IMAGE], oracle=grouped),
    Case("layer norm", "LayerNorm", [IMAGE], [floats(5), floats(5, seed=1)], oracle=layer_norm),
)
REDUCTIONS = (
    Case("sum", "Reduction reduction_param { axis: 1 }", [IMAGE], oracle=lambda x: x.sum((1, 2, 3))),
    Case("sum of all", "Reduction", [(3, 4)], oracle=np.sum),
    Case(
        "sum of magnitudes",
        "Reduction reduction_param { operation: ASUM axis: -2 }",
        [IMAGE],
        oracle=lambda x: np.abs(x).sum((2, 3)),
    ),
    Case(
        "sum of squares",
        "Reduction reduction_param { operation: SUMSQ axis: 3 }",
        [IMAGE],
        oracle=lambda x: (x**2).sum(3),
    ),
    Case(
        "mean",
        "Reduction reduction_param { operation: MEAN axis: 2 coeff: 2.5 }",
        [IMAGE],
        oracle=lambda x: x.mean((2, 3)) * 2.5,
    ),
    Case(
        "place of the greatest",
        "ArgMax argmax_param { axis: 1 }",
        [IMAGE],
        oracle=lambda x: x.argmax(1)[:, None],
    ),
    Case(
        "place of the last of equals",
        "ArgMax argmax_param { axis: 0 }",
        [(4, 2)],
        oracle=lambda _: np.array([[3, 3]]),
        low=1,
        high=2,
        whole=True,
    ),
    Case(
        "value of the greatest",
        "ArgMax argmax_param { axis: 1 out_max_val: true }",
        [IMAGE],
        oracle=lambda x: x.max(1, keepdims=True),
    ),
    Case(
        "places in each image",
        "ArgMax argmax_param { top_k: 3 }",
        [IMAGE],
        oracle=lambda x: greatest(x)[0].reshape(2, 1, 3, 1),
    ),
    Case(
        "places and values in each image",
        "ArgMax argmax_param { top_k: 3 out_max_val: true }",
        [(2, 9)],
        oracle=lambda x: np.stack(greatest(x), 1),
    ),
)
CASES = (*NORMS, *REDUCTIONS)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_layer(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)

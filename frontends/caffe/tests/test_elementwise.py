"""Layers that work on each element by itself, or on channels."""

from __future__ import annotations

from math import erf, sqrt
from pathlib import Path

import numpy as np
import pytest
from caffe_cases import Case, check, floats

from mace_core.ir import Array

IMAGE = (2, 3, 4, 5)
ROW = (3, 7)


def batch_norm(x: Array) -> Array:
    """By the batch's own numbers."""
    mean, variance = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
    return (x - mean) / np.sqrt(variance + np.float32(0.01))


def gelu(x: Array) -> Array:
    return np.array([v * (1 + erf(v / sqrt(2))) / 2 for v in x.flat]).reshape(x.shape)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def column(*values: float) -> Array:
    return np.array(values, np.float32).reshape(-1, 1, 1)


MEAN, VARIANCE, FACTOR = floats(3, seed=1), floats(3, seed=2, low=0.1), np.array([4.0], np.float32)
SCALE, SHIFT = floats(3, seed=3), floats(3, seed=4)


def normalize(x: Array, epsilon: float) -> Array:
    """Return BN of x (n, 3, h, w) by MEAN, VARIANCE, SCALE and SHIFT of its channels."""
    return (x - column(*MEAN)) / np.sqrt(column(*VARIANCE) + epsilon) * column(*SCALE) + column(*SHIFT)


UNARY = (
    Case("relu", "ReLU", [IMAGE]),
    Case("relu slope", "ReLU relu_param { negative_slope: 0.1 }", [IMAGE]),
    Case("relu6", "ReLU6", [IMAGE], low=-3, high=9, oracle=lambda x: np.clip(x, 0, 6)),
    Case("clip", "Clip clip_param { min: -0.5 max: 0.75 }", [IMAGE], oracle=lambda x: np.clip(x, -0.5, 0.75)),
    Case("sigmoid", "Sigmoid", [IMAGE]),
    Case("tanh", "TanH", [IMAGE]),
    Case("absolute", "AbsVal", [IMAGE]),
    Case("bnll", "BNLL", [IMAGE]),
    Case("elu", "ELU", [IMAGE]),
    Case(
        "elu alpha",
        "ELU elu_param { alpha: 0.3 }",
        [IMAGE],
        oracle=lambda x: np.where(x > 0, x, 0.3 * np.expm1(x)),
    ),
    Case("swish", "Swish", [IMAGE], oracle=lambda x: x * sigmoid(x)),
    Case("swish beta", "Swish swish_param { beta: 1.7 }", [IMAGE], oracle=lambda x: x * sigmoid(1.7 * x)),
    Case("mish", "Mish", [IMAGE], oracle=lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    Case("softplus", "SoftPlus", [IMAGE], oracle=lambda x: np.log1p(np.exp(x))),
    Case("gelu", "Gelu", [IMAGE], oracle=gelu),
    Case("hard swish", "HSwish", [IMAGE], low=-5, high=5, oracle=lambda x: x * np.clip(x + 3, 0, 6) / 6),
    Case("hard sigmoid", "HSigmoid", [IMAGE], low=-5, high=5, oracle=lambda x: np.clip(x + 3, 0, 6) / 6),
    Case("dropout", "Dropout dropout_param { dropout_ratio: 0.4 }", [IMAGE]),
    Case(
        "dropout of a fork",
        "Dropout dropout_param { dropout_ratio: 0.25 scale_train: false }",
        [IMAGE],
        oracle=lambda x: x * np.float32(0.75),
    ),
    Case("power", "Power power_param { power: 2 scale: 0.5 shift: 1.5 }", [IMAGE]),
    Case("power one", "Power power_param { scale: -0.5 shift: 0.25 }", [IMAGE]),
    Case("power root", "Power power_param { power: 0.5 shift: 3 }", [IMAGE]),
    Case("exponential", "Exp", [IMAGE], oracle=np.exp),
    Case(
        "exponential base",
        "Exp exp_param { base: 2 scale: 1.5 shift: -0.5 }",
        [IMAGE],
        oracle=lambda x: 2 ** (1.5 * x - 0.5),
    ),
    Case("logarithm", "Log", [IMAGE], low=0.5, oracle=np.log),
    Case(
        "logarithm base",
        "Log log_param { base: 10 scale: 2 shift: 5 }",
        [IMAGE],
        oracle=lambda x: np.log10(2 * x + 5),
    ),
    Case(
        "threshold",
        "Threshold threshold_param { threshold: 0.3 }",
        [IMAGE],
        oracle=lambda x: (x > 0.3).astype(np.float32),
    ),
)
CHANNELS = (
    Case("prelu", "PReLU", [IMAGE], [floats(3)]),
    Case("prelu shared", "PReLU prelu_param { channel_shared: true }", [IMAGE], [floats(1)]),
    Case("prelu of a row", "PReLU", [ROW], [floats(7)], oracle=lambda x: np.where(x > 0, x, x * floats(7))),
    Case("batch norm", "BatchNorm", [IMAGE], [MEAN, VARIANCE, FACTOR]),
    Case("batch norm eps", "BatchNorm batch_norm_param { eps: 0.1 }", [IMAGE], [MEAN, VARIANCE, FACTOR]),
    Case(
        "batch norm factor of 0",
        "BatchNorm batch_norm_param { eps: 0.1 }",
        [IMAGE],
        [MEAN * 0, VARIANCE * 0, FACTOR * 0],
    ),
    Case(
        "batch norm of the batch",
        "BatchNorm batch_norm_param { use_global_stats: false eps: 0.01 }",
        [IMAGE],
        [MEAN, VARIANCE, FACTOR],
        oracle=batch_norm,
    ),
    Case(
        "bn of a segmenter",
        "BN",
        [IMAGE],
        [column(*SCALE)[None], column(*SHIFT)[None]],
        oracle=lambda x: x * column(*SCALE) + column(*SHIFT),
    ),
    Case(
        "bn of a fork",
        "BN bn_param { eps: 0.5 frozen: true }",
        [IMAGE],
        [SCALE, SHIFT, MEAN, VARIANCE],
        oracle=lambda x: normalize(x, 0.5),
    ),
    Case(
        "bn of a parser",
        "BN",
        [IMAGE],
        [SCALE, SHIFT, MEAN, VARIANCE],
        oracle=lambda x: normalize(x, 1e-5),
    ),
    Case("scale", "Scale", [IMAGE], [SCALE]),
    Case("scale and bias", "Scale scale_param { bias_term: true }", [IMAGE], [SCALE, SHIFT]),
    Case(
        "scale of old shape",
        "Scale scale_param { bias_term: true }",
        [IMAGE],
        [SCALE.reshape(1, 1, 1, 3), SHIFT.reshape(1, 1, 1, 3)],
    ),
    Case(
        "scale along two axes",
        "Scale scale_param { axis: 2 num_axes: 2 }",
        [IMAGE],
        [floats(4, 5)],
        oracle=lambda x: x * floats(4, 5),
    ),
    Case(
        "scale of all",
        "Scale scale_param { axis: 1 num_axes: -1 }",
        [IMAGE],
        [floats(3, 4, 5)],
        oracle=lambda x: x * floats(3, 4, 5),
    ),
    Case(
        "scale by one",
        "Scale scale_param { num_axes: 0 bias_term: true }",
        [IMAGE],
        [floats(1)] * 2,
        oracle=lambda x: (x + 1) * floats(1),
    ),
    Case(
        "scale by a blob",
        "Scale scale_param { axis: 0 }",
        [IMAGE, (2, 3)],
        oracle=lambda x, by: x * by[:, :, None, None],
    ),
    Case(
        "scale by a blob and bias",
        "Scale scale_param { axis: 0 bias_term: true }",
        [IMAGE, (2, 3)],
        [floats(2, 3)],
        oracle=lambda x, by: x * by[:, :, None, None] + floats(2, 3)[:, :, None, None],
    ),
    Case(
        "scale by the last axis", "Scale scale_param { axis: -1 }", [IMAGE, (5,)], oracle=lambda x, by: x * by
    ),
    Case("bias", "Bias", [IMAGE], [SHIFT], oracle=lambda x: x + column(*SHIFT)),
    Case("bias by a blob", "Bias", [IMAGE, (3,)], oracle=lambda x, by: x + by[:, None, None]),
    Case("axpy", "Axpy", [(2, 3, 1, 1), IMAGE, IMAGE], oracle=lambda a, x, y: a * x + y),
    Case("axpy of rows", "Axpy", [(2, 3), IMAGE, IMAGE], oracle=lambda a, x, y: a[:, :, None, None] * x + y),
)
SEVERAL = (
    Case("sum", "Eltwise", [IMAGE] * 2),
    Case("sum of three", "Eltwise eltwise_param { operation: SUM }", [IMAGE] * 3),
    Case("sum with coefficients", "Eltwise eltwise_param { coeff: 1 coeff: -2 coeff: 0.5 }", [IMAGE] * 3),
    Case("product", "Eltwise eltwise_param { operation: PROD }", [IMAGE] * 3),
    Case("maximum", "Eltwise eltwise_param { operation: MAX }", [IMAGE] * 2),
    Case("add", "Add", [IMAGE] * 3, oracle=lambda x, y, z: x + y + z),
    Case("matrices", "MatMul", [(2, 3, 4), (2, 4, 5)], oracle=np.matmul),
)
CASES = (*UNARY, *CHANNELS, *SEVERAL)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_layer(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)

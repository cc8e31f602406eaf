"""Convolutions and products of matrices, for tests of the kernels that compute them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Shape


def build_conv(name: str, x: Shape, w: Shape, attrs: Mapping[str, object] | None = None) -> Graph:
    """Return a convolution with a bias and a Relu."""
    builder, rng = Builder(name), np.random.default_rng(0)
    weights = rng.standard_normal(w).astype(np.float32)
    operands = [
        builder.input("x", DType.F32, x),
        builder.weight("w", weights),
        builder.weight("b", weights.reshape(w[0], -1)[:, 0]),
    ]
    plain = {"strides": (1, 1), "pads_before": (0, 0), "pads_after": (0, 0), "dilations": (1, 1)}
    return builder.finish([builder.one("Relu", [builder.one("Conv", operands, {**plain, **(attrs or {})})])])


def build_product(name: str, x: Shape, y: Shape) -> Graph:
    builder = Builder(name)
    factors = [builder.input(factor, DType.F32, shape) for factor, shape in (("x", x), ("y", y))]
    return builder.finish([builder.one("MatMul", factors)])

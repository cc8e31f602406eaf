"""Multiplies matrices in one thread; the simulator of the accelerator uses it too."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from mace_core.ir import Array

SINGLE_THREAD_PRODUCTS = 1 << 17
"""Multiplications of one matrix product; OpenBLAS uses several threads from twice as many on."""


def add_product(sums: Array, weights: Array, values: Array) -> None:
    """Add a matrix product to `sums`, in parts so small that the BLAS computes each in one thread.

    For matrices of this size, threads wait for each other longer than they compute.
    sums: [out, positions], changed in place.  weights: [out, in].  values: [in, positions].  All have one
    type of floats.
    """
    (channels, inputs), positions = weights.shape, values.shape[1]
    if 1 in (channels, positions):
        sums += np.einsum("oi,ip->op", weights, values)
        return
    rows = min(channels, max(2, SINGLE_THREAD_PRODUCTS // (2 * inputs)))
    parts = max(1, positions // max(2, SINGLE_THREAD_PRODUCTS // (rows * inputs)))
    bounds = [positions * i // parts for i in range(parts + 1)]
    for top in range(0, channels, rows):
        for left, right in pairwise(bounds):
            sums[top : top + rows, left:right] += weights[top : top + rows] @ values[:, left:right]

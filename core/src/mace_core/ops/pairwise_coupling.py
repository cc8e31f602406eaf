"""PairwiseCoupling: probabilities of classes, computed from those of all pairs of classes.

T.-F. Wu, C.-J. Lin, R. C. Weng, "Probability Estimates for Multi-class Classification by Pairwise Coupling",
JMLR 5 (2004), algorithm 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mace_core.attributes import Attributes
from mace_core.ir import Array, DType
from mace_core.ops.op import Op, Spec
from mace_core.ops.shapes import Inputs, need, present

MAX_ROUNDS = 100
TOLERANCE = 0.005
"""Divided by the number of classes, the residual at which the iteration ends, as in LIBSVM."""


@dataclass(frozen=True)
class PairwiseCouplingAttributes(Attributes):
    """classes: number of classes, every two of which are a pair."""

    classes: int


def _infer(inputs: Inputs, attrs: PairwiseCouplingAttributes) -> list[Spec]:
    (pairs,) = present(inputs)
    classes = attrs.classes
    need(
        pairs.dtype in (DType.F32, DType.F64),
        f"pairs are of type {pairs.dtype.value}; they must be f32 or f64",
    )
    count = classes * (classes - 1) // 2
    need(classes >= 2, f"classes is {classes}; at least 2")
    need(
        len(pairs.shape) == 2 and pairs.shape[1] == count,
        f"pairs have shape {list(pairs.shape)}; it must be [N, {count}]",
    )
    return [(pairs.dtype, (pairs.shape[0], classes))]


def _solve_row(pairs: Array, classes: int) -> Array:
    """Solve for the probabilities of one row.

    pairs: for all i < j in order, the probability of class i given that it is i or j.
    """
    r = np.zeros((classes, classes))
    upper = np.triu_indices(classes, 1)
    r[upper] = pairs
    r.T[upper] = 1 - pairs.astype(np.float64)
    q = -r.T * r
    np.fill_diagonal(q, (r.T**2).sum(1))
    p = np.full(classes, 1 / classes)
    for _ in range(MAX_ROUNDS):
        qp = q @ p
        total = p @ qp
        if np.abs(qp - total).max() < TOLERANCE / classes:
            break
        # Gauss-Seidel steps, each with a normalization to sum 1 that updates Qp and p'Qp along with p, so
        # that a round costs O(classes^2), not O(classes^3).
        for t in range(classes):
            step = (total - qp[t]) / q[t, t]
            p[t] += step
            total = (total + step * (step * q[t, t] + 2 * qp[t])) / (1 + step) ** 2
            qp = (qp + step * q[t]) / (1 + step)
            p /= 1 + step
    return p


def _couple(pairs: Array, attrs: PairwiseCouplingAttributes) -> Array:
    classes = attrs.classes
    return np.asarray([_solve_row(row, classes) for row in pairs], pairs.dtype).reshape(len(pairs), classes)


OPS = (Op("PairwiseCoupling", ("pairs",), ("probabilities",), _infer, _couple, PairwiseCouplingAttributes),)

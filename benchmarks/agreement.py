"""Which outputs of another runtime count as those of our libraries."""

from __future__ import annotations

import numpy as np
from peer_models import BFLOAT

from mace_core.ir import Array

FLOAT_TOLERANCE = 1e-3
INT8_TOLERANCE = 0.15
BFLOAT_TOLERANCE = 0.05
"""Of what rounds each factor of each layer to eight bits."""


def disagreement(ours: list[Array], theirs: list[Array], dtype: str) -> str:
    """Say how outputs differ; "" if they agree.

    Floats, those of bfloat16 too: by the largest difference divided by the largest value. Integers, whose
    roundings in between add up: by the root mean square of the difference beside that of the values' spread.
    """
    if len(ours) != len(theirs):
        return f"has {len(theirs)} outputs instead of {len(ours)}"
    for number, (expected, found) in enumerate(zip(ours, theirs, strict=True)):
        if expected.size != found.size:
            return f"output {number} has {found.size} elements instead of {expected.size}"
        a, b = (array.reshape(-1).astype(np.float64) for array in (expected, found))
        if dtype in ("float32", BFLOAT):
            error = np.abs(a - b).max() / (np.abs(a).max() or 1)
            limit = BFLOAT_TOLERANCE if dtype == BFLOAT else FLOAT_TOLERANCE
        else:
            error, limit = np.sqrt(np.mean((a - b) ** 2)) / (a.std() or 1), INT8_TOLERANCE
        # Not-a-number must not pass for agreement.
        if not error <= limit:
            return f"output {number} differs from ours by {error:.2g}, more than {limit}"
    return ""

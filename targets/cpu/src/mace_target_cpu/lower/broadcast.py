"""Broadcast operands as one loop nest: as few axes as their shapes allow, a stride for each operand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mace_core.ir import Shape, Tensor
from mace_core.kernel_target import MAX_DIMENSION
from mace_core.lowering import Refused
from mace_core.program import Arg
from mace_target_cpu.lower.types import MERGE_AXES

RANK = 6
"""Axes that the kernels loop over."""

PAIR = tuple((name, f"i32[{RANK}]") for name in ("dims", "xs", "ys"))
"""The fields of kernels that loop over two operands: the result's dimensions, and the strides of each."""


def strides(shape: Shape, out: Shape) -> tuple[int, ...]:
    """Elements from one index of the result to the next in a dense operand of this shape.

    0 where it repeats.
    """
    padded = (1,) * (len(out) - len(shape)) + shape
    dense = [int(np.prod(padded[i + 1 :], dtype=np.int64)) for i in range(len(padded))]
    # An axis of length 1 has no second element: step 0 repeats the one.
    return tuple(0 if d == 1 else s for d, s in zip(padded, dense, strict=True))


def collapse(out: Shape, operands: Sequence[Shape]) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """The result's dimensions, neighbors merged where every operand allows it, and each operand's strides.

    Exactly RANK axes, with leading ones of 1; Refused where more are left.
    """
    dims: list[int] = []
    rows: list[list[int]] = []
    table = [strides(s, out) for s in operands]
    for i, dim in enumerate(out):
        if dim == 1:
            continue
        row = [t[i] for t in table]
        fits = dims and dims[-1] * dim <= MAX_DIMENSION  # the kernels count and step in 32 bits
        if fits and all(before == step * dim for before, step in zip(rows[-1], row, strict=True)):
            dims[-1], rows[-1] = dims[-1] * dim, row
        else:
            dims.append(dim)
            rows.append(row)
    # Merging leaves more only where operands alternate between broadcast and not.
    if len(dims) > RANK:
        raise Refused(
            f"broadcasts over {len(dims)} axes; the kernels loop over {RANK}", code="shape", remedy=MERGE_AXES
        )
    lead = RANK - len(dims)
    columns = [tuple([0] * lead + [row[k] for row in rows]) for k in range(len(operands))]
    if not dims:  # one element: a step of 1 keeps the inner loop contiguous
        columns = [(*c[:-1], 1) for c in columns]
    return (1,) * lead + tuple(dims), columns


def pair_args(x: Tensor, y: Tensor, z: Tensor) -> dict[str, Arg]:
    """Return the arguments for PAIR of operands x and y and their result."""
    dims, (xs, ys) = collapse(z.shape, (x.shape, y.shape))
    return {"dims": dims, "xs": xs, "ys": ys}

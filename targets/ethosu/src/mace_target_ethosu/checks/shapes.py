"""Checks shapes, axes and operands that decide how data moves."""

from __future__ import annotations

from itertools import combinations
from math import prod

import numpy as np

from mace_target_ethosu.checks.check import Check, Limits
from mace_target_ethosu.operators import OperatorView

SMALL_PERMUTATIONS = ((1, 0, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1), (0, 2, 1))
"""Orders of height, width and channels that differ from (0, 1, 2)."""


def has_constant_parameters(operator: OperatorView, limits: Limits) -> str | None:
    """Check that axes and paddings are stored."""
    for tensor in operator.parameters:
        if tensor.data is None:
            return f"{tensor.name!r} is computed"
    return None


def keeps_shape(operator: OperatorView, limits: Limits) -> str | None:
    """Check that input and result have one shape."""
    same = operator.ifm.shape == operator.ofm.shape
    return None if same else f"the result is {list(operator.ofm.shape)}, the input {list(operator.ifm.shape)}"


def has_batch_of_one(operator: OperatorView, limits: Limits) -> str | None:
    """Check the first of four axes."""
    shape = operator.ifm.shape
    return f"the batch is {shape[0]}" if len(shape) == 4 and shape[0] != 1 else None


def reduces_flat_depth(operator: OperatorView, limits: Limits) -> str | None:
    """Check that a mean over channels has an image with one axis of 1."""
    shape = operator.ifm.shape
    if len(shape) - 1 not in _axes(operator):
        return None
    return None if 1 in shape[-3:] or len(shape) < 3 else f"it reduces the depth of {list(shape)}"


def reduces_short_axes(operator: OperatorView, limits: Limits) -> str | None:
    """Check the length of each reduced axis."""
    longest = max((operator.ifm.shape[axis] for axis in _axes(operator)), default=1)
    return None if longest < limits["max"] else f"it reduces {longest} elements along an axis"


def reduces_few_elements(operator: OperatorView, limits: Limits) -> str | None:
    """Check how many elements become one."""
    count = prod(operator.ifm.shape[axis] for axis in _axes(operator))
    limit = limits.get(operator.ifm.dtype)
    return None if limit is None or count <= limit else f"it reduces {count} elements to one"


def has_softmax_area(operator: OperatorView, limits: Limits) -> str | None:
    """Check height times width; what lies in front of the channels counts."""
    area = prod(operator.ifm.shape[:-1])
    return None if area < limits["max"] else f"it has {area} rows"


def has_depth(operator: OperatorView, limits: Limits) -> str | None:
    """Check the number of channels."""
    depth = operator.ifm.shape[-1]
    return None if depth <= limits["max"] else f"the input is {depth} deep"


def works_along_depth(operator: OperatorView, limits: Limits) -> str | None:
    """Check that the axis is the last one."""
    axes, rank = _axes(operator), len(operator.ifm.shape)
    if axes == (rank - 1,):
        return None
    return f"its axis is {axes[0]}" if axes else "its axis is computed"


def reverses_nothing(operator: OperatorView, limits: Limits) -> str | None:
    """Check that no axis is reversed."""
    axes = operator.inputs[1]
    if axes is not None and axes.data is not None and axes.data.size == 0:
        return None
    return "it reverses an axis"


def slices_a_volume(operator: OperatorView, limits: Limits) -> str | None:
    """Check that a strided slice takes something, in positive steps over height and width alone."""
    step_sizes = operator.parameters[2].data
    if step_sizes is None:
        return "its steps are computed"
    steps = [int(step) for step in np.ravel(step_sizes)]
    if any(step < 1 for step in steps) or 0 in operator.ofm.shape:
        return f"its steps are {steps}"
    inner = steps[-3:-1] if len(steps) > 2 else []
    # No step is below 1, so that equal products mean steps of 1 on all other axes.
    return None if prod(steps) == prod(inner) else f"its steps are {steps}"


def has_rank(operator: OperatorView, limits: Limits) -> str | None:
    """Check the number of axes."""
    rank = len(operator.ifm.shape)
    return None if rank <= limits["max"] else f"it has {rank} axes"


def transposes_int32(operator: OperatorView, limits: Limits) -> str | None:
    """Check which axes of 32-bit integers change places."""
    if operator.ifm.dtype != "INT32":
        return None
    shape, permutation = _align_axes(operator)
    if len(operator.ifm.shape) > 4:
        return "it has more than 4 axes of 32-bit integers"
    n, h, w, c = shape
    # In the order of Vela's sentence: NHWC, NWHC and NHCW; it supports no other permutation.
    allowed: dict[tuple[int, ...], bool] = {
        (0, 1, 2, 3): c <= 2**16,
        (0, 2, 1, 3): n == 1 and max(h, w) <= 2**16 and c <= 2**14,
        (0, 1, 3, 2): n * h <= 2**16 and max(w, c) <= 2**16,
    }
    return (
        None
        if allowed.get(permutation, False)
        else f"it moves axes of {list(operator.ifm.shape)} by {permutation}"
    )


def transposes_small_axes(operator: OperatorView, limits: Limits) -> str | None:
    """Check the sizes of the axes of 8 and 16 bits that change places."""
    if operator.ifm.dtype == "INT32":
        return None
    shape, permutation = _align_axes(operator)
    rank, limit = len(shape), limits["max"]
    if permutation == tuple(range(rank)):
        return None
    outer, order = prod(shape[:-3]), tuple(axis - rank + 3 for axis in permutation[-3:])
    # Each axis has a limit where only height, width and channels move, and products of axes otherwise.
    if outer == 1 and permutation[:-3] == tuple(range(rank - 3)) and order in SMALL_PERMUTATIONS:
        too_large = max(shape[-3:]) > limit
    else:
        too_large = any(prod(part) > limit for part in combinations(shape, rank - 2))
    return f"it moves axes of {list(operator.ifm.shape)}" if too_large else None


def gathers_first_axis(operator: OperatorView, limits: Limits) -> str | None:
    """Check that the axis comes right behind those of the batch."""
    axis, batch = operator.option("Axis"), operator.option("BatchDims")
    return None if axis == batch else f"its axis is {axis}, behind {batch} axes of the batch"


def has_operands(operator: OperatorView, limits: Limits) -> str | None:
    """Check that inputs by number are there."""
    return None if all(_operand(operator, i) for i in limits["inputs"]) else "it leaves out a gate"


def lacks_operands(operator: OperatorView, limits: Limits) -> str | None:
    """Check that inputs by number are absent."""
    return "it has further weights" if any(_operand(operator, i) for i in limits["inputs"]) else None


def has_constants(operator: OperatorView, limits: Limits) -> str | None:
    """Check that inputs by number are stored."""
    for index in limits["inputs"]:
        tensor = operator.inputs[index]
        if tensor is not None and tensor.data is None:
            return f"{tensor.name!r} is computed"
    return None


def has_index_depth(operator: OperatorView, limits: Limits) -> str | None:
    """Check that indices have one number each."""
    index = operator.inputs[0]
    return None if index is None or index.shape[-1] == 1 else f"its indices have {index.shape[-1]} numbers"


def has_unique_indices(operator: OperatorView, limits: Limits) -> str | None:
    """Check that no index stands twice."""
    index = operator.inputs[0]
    if index is None or index.data is None:
        return None
    return None if np.unique(index.data).size == index.data.size else "an index stands twice"


def _operand(operator: OperatorView, index: int) -> bool:
    return index < len(operator.inputs) and operator.inputs[index] is not None


def _axes(operator: OperatorView) -> tuple[int, ...]:
    """Return the axes that an operator works along, counted from the front."""
    rank = len(operator.ifm.shape)
    data = operator.parameters[0].data if operator.parameters else None
    return () if data is None else tuple(int(axis) % rank for axis in np.ravel(data))


def _align_axes(operator: OperatorView) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return shape and permutation of a transpose, with axes of 1 in front up to four."""
    shape, data = operator.ifm.shape, operator.parameters[0].data
    order = tuple(range(len(shape))) if data is None else tuple(int(axis) for axis in np.ravel(data))
    missing = max(0, 4 - len(shape))
    return (1,) * missing + shape, (*range(missing), *(axis + missing for axis in order))


CHECKS: tuple[Check, ...] = (
    has_constant_parameters,
    keeps_shape,
    has_batch_of_one,
    reduces_flat_depth,
    reduces_short_axes,
    reduces_few_elements,
    has_softmax_area,
    has_depth,
    works_along_depth,
    reverses_nothing,
    slices_a_volume,
    has_rank,
    transposes_int32,
    transposes_small_axes,
    gathers_first_axis,
    has_operands,
    lacks_operands,
    has_constants,
    has_index_depth,
    has_unique_indices,
)

"""Which axes of a tensor become which when it is reshaped."""

from __future__ import annotations

from mace_core.ir import Shape

Groups = list[tuple[list[int], list[int]]]


def axis_groups(before: Shape, after: Shape) -> Groups | None:
    """The axes of both shapes in the smallest groups of equal size, in order.

    An axis of length 1 alone or with its like. None for a tensor without elements.
    """
    if 0 in before:
        return None
    groups: Groups = []
    i = j = 0
    while i < len(before) or j < len(after):
        a, b = _count_leading_axes(before[i:], after[j:])
        groups.append((list(range(i, i + a)), list(range(j, j + b))))
        i, j = i + a, j + b
    return groups


def _count_leading_axes(before: Shape, after: Shape) -> tuple[int, int]:
    """How many axes of each make up the first group."""
    if before[:1] == after[:1]:
        return 1, 1
    if before[:1] == (1,):
        return 1, 0
    if after[:1] == (1,):
        return 0, 1
    # The smaller product takes in its next axis until both are equal: at the latest at the end, since all
    # elements are.
    a = b = 1
    left, right = before[0], after[0]
    while left != right:
        if left < right:
            left, a = left * before[a], a + 1
        else:
            right, b = right * after[b], b + 1
    return a, b

"""Which axes of a tensor become which when it is reshaped."""

from __future__ import annotations

from mace_core.ir import Shape

Groups = list[tuple[list[int], list[int]]]


def axis_groups(old: Shape, new: Shape) -> Groups | None:
    """The axes of both shapes in the smallest groups of equal size, in order.

    An axis of length 1 alone or with its like. None for a tensor without elements.
    """
    if 0 in old:
        return None
    groups: Groups = []
    i = j = 0
    while i < len(old) or j < len(new):
        a, b = _leading(old[i:], new[j:])
        groups.append((list(range(i, i + a)), list(range(j, j + b))))
        i, j = i + a, j + b
    return groups


def _leading(old: Shape, new: Shape) -> tuple[int, int]:
    """How many axes of each make up the first group."""
    if old[:1] == new[:1]:
        return 1, 1
    if old[:1] == (1,):
        return 1, 0
    if new[:1] == (1,):
        return 0, 1
    a = b = 1
    left, right = old[0], new[0]
    while left != right:
        if left < right:
            left, a = left * old[a], a + 1
        else:
            right, b = right * new[b], b + 1
    return a, b

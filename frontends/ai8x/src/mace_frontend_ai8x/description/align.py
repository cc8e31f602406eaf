"""Layers of a description beside those of a checkpoint: which one of them the other does not have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mace_frontend_ai8x.checkpoint import LayerParameters

MAX_MISSING = 4
"""More missing layers than these are two different models."""
MARGIN = 1
"""Other layers that explain a fault as well but for one size."""

Misfits = Callable[[Mapping[int, LayerParameters]], int]
"""How many layers do not fit their parameters, which come by the layer's index."""


@dataclass(frozen=True)
class Alignment:
    """What has no counterpart.

    undescribed: names of the checkpoint's layer (several where shapes do not tell which), and the described
    layer that it comes before.
    unweighted: described layers, by index; by_shape: shapes tell which.
    unused: the checkpoint's last layers, where all described ones fit those before them.
    """

    undescribed: tuple[tuple[str, int], ...] = ()
    unweighted: tuple[int, ...] = ()
    unused: tuple[LayerParameters, ...] = ()
    by_shape: bool = False


def align(weighted: Sequence[int], given: Sequence[LayerParameters], misfits: Misfits) -> Alignment:
    """Find the layers whose absence explains best why described layers and weights do not fit.

    Both lists have the model's order.  The shorter one is a part of the longer one; which part is searched by
    leaving out one layer after the other, each time the one without which the fewest layers misfit.
    weighted: described layers with weights, by index.
    """
    surplus = len(given) - len(weighted)
    trailing = given[len(weighted) :]
    if not weighted or not surplus:
        return Alignment()
    prefix = misfits(dict(zip(weighted, given, strict=False)))
    if not prefix or abs(surplus) > MAX_MISSING:
        return Alignment(unweighted=tuple(weighted[len(given) :]), unused=tuple(trailing))
    if surplus < 0:
        dropped, best = _drop(weighted, -surplus, lambda kept: misfits(dict(zip(kept, given, strict=False))))
        missing = tuple(sorted(indexes[0] for indexes in dropped))
        return (
            Alignment(unweighted=missing, by_shape=True)
            if best < prefix
            else Alignment(unweighted=tuple(weighted[len(given) :]))
        )
    dropped, best = _drop(
        range(len(given)),
        surplus,
        lambda kept: misfits(dict(zip(weighted, (given[i] for i in kept), strict=False))),
    )
    if best >= prefix:
        return Alignment(unused=tuple(trailing))
    found = []
    for order, positions in enumerate(sorted(dropped)):
        names = " or ".join(
            f"{given[i].name!r} ({'x'.join(map(str, given[i].weights.shape))})" for i in positions
        )
        found.append((f"layer {names}", weighted[min(positions[0] - order, len(weighted) - 1)]))
    return Alignment(undescribed=tuple(found))


def _drop(
    whole: Sequence[int], count: int, score: Callable[[Sequence[int]], int]
) -> tuple[list[tuple[int, ...]], int]:
    """Positions to leave out for the lowest score, each with those that do nearly as well, the best first.

    And the score.
    """
    kept, dropped, best = list(whole), [], 0
    for _ in range(count):
        scores = {i: score([k for k in kept if k != i]) for i in kept}
        best = min(scores.values())
        likely = sorted((value, i) for i, value in scores.items() if value <= best + MARGIN)
        dropped.append(tuple(i for _, i in likely))
        kept.remove(likely[0][1])
    return dropped, best

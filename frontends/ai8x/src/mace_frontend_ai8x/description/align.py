"""Compares the layers of a description with those of a checkpoint, and finds which are missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mace_frontend_ai8x.checkpoint import LayerParameters

MAX_MISSING = 4
"""More missing layers than these mean two different models."""
MARGIN = 1
"""How many more misfits a layer may leave and still be named as a possible cause."""

Misfits = Callable[[Mapping[int, LayerParameters]], int]
"""Returns how many layers do not fit their parameters, which it gets by index of the layer."""


@dataclass(frozen=True)
class Alignment:
    """The layers without a counterpart.

    undescribed: of the checkpoint: the name of a layer (several where shapes do not tell which), and the
    described layer that it comes before.
    unweighted: of the description, by index.  by_shape: whether shapes tell which these are.
    unused: the last layers of the checkpoint, where all described layers fit those before them.
    """

    undescribed: tuple[tuple[str, int], ...] = ()
    unweighted: tuple[int, ...] = ()
    unused: tuple[LayerParameters, ...] = ()
    by_shape: bool = False


def align(weighted: Sequence[int], parameters: Sequence[LayerParameters], misfits: Misfits) -> Alignment:
    """Find the layers whose absence explains best why described layers and weights do not fit.

    Both lists have the order of the model, and the shorter one is a part of the longer one.  Which part is
    searched step by step: each time the layer is left out without which the fewest layers misfit.
    weighted: described layers with weights, by index.
    """
    surplus = len(parameters) - len(weighted)
    trailing = parameters[len(weighted) :]
    if not weighted or not surplus:
        return Alignment()
    # Where the first parameters fit all layers, the checkpoint only has further ones at its end.
    prefix = misfits(dict(zip(weighted, parameters, strict=False)))
    if not prefix or abs(surplus) > MAX_MISSING:
        return Alignment(unweighted=tuple(weighted[len(parameters) :]), unused=tuple(trailing))
    if surplus < 0:
        dropped, best = _drop(
            weighted, -surplus, lambda indexes: misfits(dict(zip(indexes, parameters, strict=False)))
        )
        missing = tuple(sorted(candidates[0] for candidates in dropped))
        # Leaving out a layer explains something only if fewer of the others misfit then.
        if best < prefix:
            return Alignment(unweighted=missing, by_shape=True)
        return Alignment(unweighted=tuple(weighted[len(parameters) :]))
    dropped, best = _drop(
        range(len(parameters)),
        surplus,
        lambda positions: misfits(dict(zip(weighted, (parameters[i] for i in positions), strict=False))),
    )
    if best >= prefix:
        return Alignment(unused=tuple(trailing))
    undescribed = []
    for order, positions in enumerate(sorted(dropped)):
        names = " or ".join(
            f"{parameters[i].name!r} ({'x'.join(map(str, parameters[i].weights.shape))})" for i in positions
        )
        undescribed.append((f"layer {names}", weighted[min(positions[0] - order, len(weighted) - 1)]))
    return Alignment(undescribed=tuple(undescribed))


def _drop(
    items: Sequence[int], count: int, score: Callable[[Sequence[int]], int]
) -> tuple[list[tuple[int, ...]], int]:
    """Return what to leave out for the lowest score, and that score.

    Each item left out comes with others that do nearly as well, the best first.
    """
    remaining, dropped, best = list(items), [], 0
    for _ in range(count):
        scores = {i: score([k for k in remaining if k != i]) for i in remaining}
        best = min(scores.values())
        likely = sorted((value, i) for i, value in scores.items() if value <= best + MARGIN)
        dropped.append(tuple(i for _, i in likely))
        remaining.remove(likely[0][1])
    return dropped, best

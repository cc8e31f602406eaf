"""A description beside the model that it should describe: what a hand-written file gets wrong without any tool noticing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest

from mace_target_max78000.network import Layer, Operation


def mismatches(described: Sequence[Layer], modelled: Sequence[Layer]) -> list[str]:
    """Each property in which a described layer differs from the model's, as a sentence.

    Empty where they compute the same.

    modelled: the layers that the automatic way forms of the model.  Layers that only move data count on
    neither side.
    """
    pairs = enumerate(zip_longest(_computing(described), _computing(modelled)))
    return [text for index, (ours, theirs) in pairs for text in _differences(index, ours, theirs)]


def _computing(layers: Sequence[Layer]) -> list[Layer]:
    plain = (
        layer.operation is Operation.PASSTHROUGH
        and not layer.pool
        and not layer.eltwise
        and layer.stride == 1
        for layer in layers
    )
    return [layer for layer, moves in zip(layers, plain, strict=True) if not moves]


def _differences(index: int, ours: Layer | None, theirs: Layer | None) -> Iterator[str]:
    if ours is None or theirs is None:
        there, missing = ("model", "description") if ours is None else ("description", "model")
        name = (ours or theirs).name  # type: ignore[union-attr]  # one of the two is there
        yield f"layer {index}: the {there} has {name!r} here, the {missing} has no further layer; correct the list of layers"
        return
    for what, told in PROPERTIES.items():
        described, modelled = told(ours), told(theirs)
        if described != modelled:
            found = f"{described} is described, the model's {theirs.name!r} has {modelled}"
            yield f"layer {index} ({ours.name}): {what}: {found}; correct the description"


def _operation(layer: Layer) -> str:
    """The main operation; a linear layer on one position and a 1x1 convolution are the same."""
    pointwise = layer.operation is Operation.LINEAR or (layer.kernel == (1, 1) and layer.pooled == (1, 1))
    return "linear" if pointwise and layer.weights is not None else layer.operation.value


def _pool(layer: Layer) -> str:
    if layer.pool is None:
        return "none" if layer.stride == 1 else f"every {layer.stride}th"
    kind = "average" if layer.pool.average else "max"
    size = "x".join(map(str, layer.pool.size[: 1 if layer.one_dimensional else 2]))
    return f"{kind} {size} stride {layer.pool.stride}"


PROPERTIES: Mapping[str, Callable[[Layer], str]] = {
    "operation": _operation,
    "pooling": _pool,
    "element-wise operation": lambda layer: (
        f"{layer.eltwise.name.lower()} of {layer.operands}" if layer.eltwise else "none"
    ),
    "kernel": lambda layer: "x".join(map(str, layer.kernel)),
    "padding": lambda layer: str(layer.pad[0]),
    "activation": lambda layer: layer.activation.value,
    "groups": lambda layer: str(layer.groups),
    "input channels": lambda layer: str(layer.channels),
    "output channels": lambda layer: str(layer.out_channels),
}

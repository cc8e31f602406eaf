"""Compares a description with the trained model that it should describe.

A hand-written file may compute something else than the model without any other tool noticing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest

from mace_core.errors import MaceError
from mace_core.ir import Graph
from mace_frontend_ai8x.network import Layer, Network, Operation
from mace_target_max78000.design import quantize_and_legalize
from mace_target_max78000.device import Chip
from mace_target_max78000.quantize.plan import QuantizationPolicy


def check_trained_model(network: Network, name: str, trained: Graph, device: Chip) -> None:
    """Compare a network with the graph of a trained model, which messages call by `name`.

    MaceError with every layer that computes something else than the model does.
    """
    layers = quantize_and_legalize(trained, device, [], QuantizationPolicy()).layers
    differences = find_differences(network.layers, layers)
    if differences:
        raise MaceError.of(f"{network.name} is not {name}: {text}" for text in differences)


def find_differences(described: Sequence[Layer], trained: Sequence[Layer]) -> list[str]:
    """Return each property in which a described layer differs from the model's, as a sentence.

    Empty where they compute the same.

    trained: the layers that `quantize_and_legalize` makes of the model.  Layers that only move data count on
    neither side.
    """
    differences: list[str] = []
    pairs = zip_longest(_list_computing(described), _list_computing(trained))
    for index, (ours, theirs) in enumerate(pairs):
        differences += _describe_differences(index, ours, theirs)
    return differences


def _list_computing(layers: Sequence[Layer]) -> list[Layer]:
    """List the layers that compute something, without those that only move data."""
    plain = (
        layer.operation is Operation.PASSTHROUGH
        and not layer.pool
        and not layer.eltwise
        and layer.stride == 1
        for layer in layers
    )
    return [layer for layer, moves in zip(layers, plain, strict=True) if not moves]


def _describe_differences(index: int, ours: Layer | None, theirs: Layer | None) -> Iterator[str]:
    if ours is None or theirs is None:
        there, missing = ("model", "description") if ours is None else ("description", "model")
        name = (ours or theirs).name  # type: ignore[union-attr]  # one of the two is there
        problem = f"the {there} has {name!r} here, the {missing} has no further layer"
        yield f"layer {index}: {problem}; correct the list of layers"
        return
    for aspect, describe in PROPERTIES.items():
        described, trained = describe(ours), describe(theirs)
        if described != trained:
            difference = f"{described} is described, the model's {theirs.name!r} has {trained}"
            yield f"layer {index} ({ours.name}): {aspect}: {difference}; correct the description"


def _operation(layer: Layer) -> str:
    """Return the main operation; a linear layer on one position and a 1x1 convolution are the same."""
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

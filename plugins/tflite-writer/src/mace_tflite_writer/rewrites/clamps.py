"""Clamps that the format neither fuses nor has as an activation."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from mace_core.ir import Array, Graph, Storage
from mace_core.lowering import Refused
from mace_core.ops.conv import ClampAttributes
from mace_core.ops.unary_attrs import ClipAttributes
from mace_core.quantization import quantize
from mace_tflite_writer.rewrites.site import Site, rewrite_sites
from mace_tflite_writer.storage import fused_activation

Bounds = tuple[float, float]
"""What a clamp lets through: the lowest and the highest number."""


def separate_clamps(graph: Graph) -> Graph:
    """Clamp by a Clip of its own behind convolutions and products whose clamp the format does not fuse.

    Exact for stored integers too: rounding keeps the order of numbers, so that a number clamped before it is
    rounded, or rounded and clamped to the rounded bounds, is the same integer.
    """
    return rewrite_sites(graph, _separate_clamps)


def _separate_clamps(site: Site) -> Sequence[str] | None:
    attrs = site.node.attrs
    if not isinstance(attrs, ClampAttributes) or not attrs.is_clamped or _is_fused(site, attrs):
        return None
    free = replace(attrs, low=-math.inf, high=math.inf)
    result = site.inner(site.node.op.name, site.node.inputs, free, site.y.storage)
    return site.last("Clip", [result], {"min": attrs.low, "max": attrs.high})


def _is_fused(site: Site, attrs: ClampAttributes) -> bool:
    """Tell whether the format fuses an activation that clamps so."""
    try:
        fused_activation(attrs.low, attrs.high, site.y)
    except Refused:
        return False
    return True


def clips_as_limits(graph: Graph, absent: Collection[Bounds] = ()) -> Graph:
    """Clamp by a Maximum and a Minimum with constants where the format has no such activation.

    Exact, as `separate_clamps` is.
    absent: bounds of activations that the format has, and a chip has not.
    """
    return rewrite_sites(graph, lambda site: _clips_as_limits(site, absent))


def _clips_as_limits(site: Site, absent: Collection[Bounds]) -> Sequence[str] | None:
    # Of bounds that cross, the upper one wins, as the last of the two nodes does. A Minimum of NaN is NaN in
    # both.
    if site.node.op.name not in ("Clip", "Relu"):
        return None
    attrs = site.node.attrs if isinstance(site.node.attrs, ClipAttributes) else ClipAttributes(0.0)
    bounds = (attrs.min, attrs.max)
    if bounds not in absent and not site.is_refused:
        return None
    x, storage = site.node.inputs[0], site.y.storage
    if storage is None and site.x.quant is not None:
        return None  # a result of real numbers from stored ones: no bound has both types
    if storage is not None and site.x.storage != storage:
        x = site.inner("Quantize", [x], storage=storage)
    elements = _bound_elements(site, attrs, storage)
    # A bound at infinity lets everything through on its side.
    steps = [
        (op, element)
        for op, bound, element in zip(("Maximum", "Minimum"), bounds, elements, strict=True)
        if not math.isinf(bound)
    ]
    for op, element in steps[:-1]:
        x = site.inner(op, [x, _add_bound(site, element, storage)], storage=storage)
    if not steps:
        return site.last("Identity", [x])
    op, element = steps[-1]
    return site.last(op, [x, _add_bound(site, element, storage)])


def _bound_elements(site: Site, attrs: ClipAttributes, storage: Storage | None) -> Sequence[Array]:
    """Return the bounds as elements of the result: stored, cut to integers, or rounded to floats."""
    bounds: tuple[float, float] = (attrs.min, attrs.max)
    if storage is not None:
        return [quantize(np.asarray(bound, np.float64), storage) for bound in bounds]
    if not site.x.dtype.is_float:
        # numpy's conversion of a float wraps where an integer type cannot hold it.
        bounds = attrs.integer_bounds(site.x.dtype)
    return [np.asarray(bound, site.x.dtype.numpy) for bound in bounds]


def _add_bound(site: Site, element: Array, storage: Storage | None) -> str:
    return site.builder.weight(f"{site.y.name}/bound", element, storage.quant if storage else None)

"""Changes of size by interpolation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.ir import Array, DType, Shape
from mace_core.ops.resize import ResizeAttributes, axis_taps
from mace_frontend_onnx.importer import Result
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler

BYTES = (DType.I8, DType.U8)

MAX_AXIS_BITS, MAX_BITS = 10, 16
"""Fractional bits of the weights of one axis, and of all, with which sums of bytes are exact in floats."""


@dataclass(frozen=True)
class Extents:
    """Length of every axis of the result, and by how much the coordinates are scaled."""

    sizes: Shape
    scales: tuple[float, ...]

    def attributes(self, others: Mapping[str, object]) -> dict[str, object]:
        """Return the attributes of the IR's op, which `others` completes."""
        return {"sizes": self.sizes, "scales": self.scales, **others}


def _upsample(node: OnnxNode) -> Sequence[Result]:
    # Upsample: scales are an attribute before operator set 9; the operator ends with 9.
    scales = node.attr("scales") if node.opset < 9 else _floats(node, 1)
    return _resize_asymmetric(node, [float(scale) for scale in scales])


def _floats(node: OnnxNode, index: int) -> list[float]:
    return [float(v) for v in node.real_constant(index, "scales").reshape(-1)]


def _resize_asymmetric(node: OnnxNode, scales: Sequence[float]) -> Sequence[Result]:
    # Upsample and Resize 10 define no coordinates; ONNX Runtime computes both with x = i / scale. The nearest
    # element is the one at or before x along an axis that grows, and at or behind it along one that shrinks
    # (GetNearestPixelFunctionFromOriginalCoordinate in upsamplebase.h, mode SIMPLE).
    extents = Extents(_scaled_sizes(node, scales), tuple(scales))
    attrs = {"mode": node.attr("mode"), "coordinates": "asymmetric", "nearest": "floor"}
    if attrs["mode"] != "nearest" or min(scales) >= 1:
        return _emit_resize(node, extents, attrs)
    if max(scales) <= 1:
        return _emit_resize(node, extents, {**attrs, "nearest": "ceil"})
    # The IR's op rounds all axes in one way, so it shrinks some first; each axis is resampled by itself.
    sizes = zip(node.shape(0), extents.sizes, scales, strict=True)
    shrinking = Extents(
        tuple(after if scale < 1 else before for before, after, scale in sizes),
        tuple(min(scale, 1.0) for scale in scales),
    )
    small = node.emit(
        "Resize", [node.input(0)], shrinking.attributes({**attrs, "nearest": "ceil"}), tag="shrunk"
    )
    growing = Extents(extents.sizes, tuple(max(scale, 1.0) for scale in scales))
    return node.done("Resize", [small], growing.attributes(attrs))


def _scaled_sizes(node: OnnxNode, scales: Sequence[float]) -> Shape:
    problem = f"scales {list(scales)} for {list(node.shape(0))}"
    node.refuse_unless(len(scales) == len(node.shape(0)) and min(scales) > 0, problem)
    # Resize: output size = floor(input size * scale), a product of single precision as in ONNX Runtime. In
    # double precision, 5 times the float nearest to 1.4 falls short of 7.
    with np.errstate(over="ignore"):  # an infinite length is refused as any other that is no integer
        lengths = np.asarray(node.shape(0), np.float32) * np.asarray(scales, np.float32)
    return tuple(map(floor, lengths.tolist()))


def _emit_resize(node: OnnxNode, extents: Extents, attrs: Mapping[str, object]) -> Sequence[Result]:
    is_same = extents.sizes == node.shape(0) and all(scale == 1 for scale in extents.scales)
    if is_same and not attrs.get("roi"):
        return [node.input(0)]
    attributes = extents.attributes(attrs)
    is_real = attrs["mode"] != "cubic" or node.dtype(0).is_float
    problem = f"cubic interpolation of {node.dtype(0).value}; export the model with floats around it"
    node.refuse_unless(is_real, problem)
    if attrs["mode"] == "linear" and node.dtype(0) in BYTES:
        return _interpolate_bytes(node, attributes)
    tensor = node.raw_input(0)
    storage = node.builder.tensors[tensor].storage
    if storage and attrs["mode"] == "nearest" and not attrs.get("roi"):
        # It only moves elements then, whatever they mean.
        return node.done_quantized("Resize", [tensor], storage, attributes)
    return node.done("Resize", [node.input(0)], attributes)


def _interpolate_bytes(node: OnnxNode, attributes: Mapping[str, Any]) -> Sequence[Result]:
    """Interpolate integers of eight bits, and cut the result towards 0, as ONNX Runtime does."""
    # UpsampleBilinear of upsamplebase.h computes in floats and casts, that of channels last in fixed point
    # with 10 fractional bits. Both are exact, and so the same, where weights are fractions of few bits, as
    # for twice the size; else a result that is nearly an integer may be cut to the one below.
    settings, shape = ResizeAttributes(**attributes), node.shape(0)
    bits = [_fraction_bits(axis_taps(settings, axis, size).weights) for axis, size in enumerate(shape)]
    problem = f"linear interpolation of {node.dtype(0).value} with weights that are no fractions of few bits"
    remedy = "ONNX Runtime cuts such results as they round; export the model with floats around it"
    is_exact = max(bits, default=0) <= MAX_AXIS_BITS and sum(bits) <= MAX_BITS and not attributes.get("roi")
    node.refuse_unless(is_exact, f"{problem}: {remedy}")
    numbers = node.emit("Cast", [node.input(0)], {"to": DType.F32.value}, tag="float")
    resized = node.emit("Resize", [numbers], attributes, tag="resized")
    return node.done("Cast", [resized], {"to": node.dtype(0).value})


def _fraction_bits(weights: Array) -> int:
    """Return how many fractional bits hold all weights exactly; more than the maximum if none of those do."""
    for bits in range(MAX_AXIS_BITS + 1):
        scaled = weights.astype(np.float64) * 2**bits
        if (scaled == np.rint(scaled)).all():
            return bits
    return MAX_AXIS_BITS + 1


def _resize(node: OnnxNode) -> Sequence[Result]:
    if node.opset < 11:
        return _resize_asymmetric(node, _floats(node, 1))
    # Resize: `antialias` exists from operator set 18 on.
    has_antialias = node.opset >= 18 and node.attr("antialias")
    node.refuse_unless(not has_antialias, "antialias; export the model without it")
    extents = _find_extents(node)
    coordinates = node.attr("coordinate_transformation_mode")
    attrs = {
        "mode": node.attr("mode"),
        "coordinates": coordinates,
        "nearest": node.attr("nearest_mode"),
        "cubic_a": node.attr("cubic_coeff_a"),
        "exclude_outside": bool(node.attr("exclude_outside")),
        "extrapolation": node.attr("extrapolation_value"),
    }
    if coordinates == "tf_crop_and_resize":
        attrs["roi"] = _roi(node)
        # The formula of this mode has the length of the region in place of a scale, which has no effect.
    return _emit_resize(node, extents, attrs)


def _axes(node: OnnxNode) -> list[int]:
    """Return the axes that scales, sizes and roi are for."""
    # Resize: `axes` exist from operator set 18 on; before, and without them, every axis is meant.
    rank = len(node.shape(0))
    axes = node.attr("axes") if node.opset >= 18 else None
    return [node.axis(axis, rank) for axis in axes] if axes else list(range(rank))


def _is_stated(node: OnnxNode, index: int) -> bool:
    # Resize 11 had no absent inputs: exporters wrote scales of no elements where sizes count.
    return node.has(index) and node.shape(index) != (0,)


def _find_extents(node: OnnxNode) -> Extents:
    """Return lengths and scales from whichever of the two inputs is stated."""
    shape, axes = node.shape(0), _axes(node)
    scales = [1.0] * len(shape)
    if not _is_stated(node, 2):
        return _extents_by_sizes(node, axes)
    values = _floats(node, 2)
    node.refuse_unless(len(values) == len(axes), f"{len(values)} scales for {len(axes)} axes")
    for axis, scale in zip(axes, values, strict=True):
        scales[axis] = scale
    return Extents(_sizes_by_scale(node, scales, axes), tuple(scales))


def _extents_by_sizes(node: OnnxNode, axes: Sequence[int]) -> Extents:
    shape = node.shape(0)
    sizes, scales = list(shape), [1.0] * len(shape)
    stated = node.ints(3, "sizes")
    node.refuse_unless(len(stated) == len(axes), f"{len(stated)} sizes for {len(axes)} axes")
    policy = (node.opset >= 18 and node.attr("keep_aspect_ratio_policy")) or "stretch"
    if policy == "stretch":
        for axis, size in zip(axes, stated, strict=True):
            sizes[axis], scales[axis] = size, size / shape[axis]
        return Extents(tuple(sizes), tuple(scales))
    # Resize, keep_aspect_ratio_policy: one scale for all axes, and sizes that are rounded half up. In
    # fractions, because the product of a float may fall just below a half.
    ratios = [Fraction(size, shape[axis]) for size, axis in zip(stated, axes, strict=True)]
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    for axis in axes:
        sizes[axis], scales[axis] = floor(ratio * shape[axis] + Fraction(1, 2)), float(ratio)
    return Extents(tuple(sizes), tuple(scales))


def _sizes_by_scale(node: OnnxNode, scales: Sequence[float], axes: Sequence[int]) -> Shape:
    if node.attr("coordinate_transformation_mode") != "tf_crop_and_resize":
        return _scaled_sizes(node, scales)
    # Resize, tf_crop_and_resize: output size = floor(input size * (roi end - roi start) * scale).
    roi, rank, sizes = _roi(node), len(scales), list(node.shape(0))
    for axis in axes:
        extent = sizes[axis] * (roi[rank + axis] - roi[axis])
        sizes[axis] = floor(extent * scales[axis])
    return tuple(sizes)


def _roi(node: OnnxNode) -> tuple[float, ...]:
    """Return the region to resize: starts, then ends, in fractions of every axis."""
    axes, rank = _axes(node), len(node.shape(0))
    values = [float(v) for v in node.constant(1, "roi").reshape(-1)]
    node.refuse_unless(len(values) == 2 * len(axes), f"{len(values)} values of roi for {len(axes)} axes")
    roi = [0.0] * rank + [1.0] * rank
    for i, axis in enumerate(axes):
        roi[axis], roi[rank + axis] = values[i], values[len(axes) + i]
    return tuple(roi)


HANDLERS: Mapping[str, Handler] = MappingProxyType({"Resize": _resize, "Upsample": _upsample})

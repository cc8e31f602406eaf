"""Changes of size by interpolation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import floor
from types import MappingProxyType

from mace_frontend_onnx.importer import Held
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.ops import Handler


def _upsample(node: OnnxNode) -> Sequence[Held]:
    """Asymmetric coordinates, the nearest element at or before them."""
    scales = node.attr("scales") if node.opset < 9 else _floats(node, 1)
    return _plain(node, [float(s) for s in scales])


def _floats(node: OnnxNode, index: int) -> list[float]:
    return [float(v) for v in node.constant(index, "scales").reshape(-1)]


def _plain(node: OnnxNode, scales: Sequence[float]) -> Sequence[Held]:
    sizes = _scaled(node, scales)
    mode = node.attr("mode")
    attrs = {
        "sizes": sizes,
        "scales": tuple(scales),
        "mode": mode,
        "coordinates": "asymmetric",
        "nearest": "floor",
    }
    return _resized(node, attrs)


def _scaled(node: OnnxNode, scales: Sequence[float]) -> tuple[int, ...]:
    node.refuse_unless(
        len(scales) == len(node.shape(0)) and min(scales) > 0,
        f"scales {list(scales)} for {list(node.shape(0))}",
    )
    return tuple(floor(n * s) for n, s in zip(node.shape(0), scales, strict=True))


def _resized(node: OnnxNode, attrs: Mapping[str, object]) -> Sequence[Held]:
    same = attrs["sizes"] == node.shape(0) and all(s == 1 for s in attrs["scales"])  # type: ignore[attr-defined]  # a tuple
    return [node.input(0)] if same and not attrs.get("roi") else node.done("Resize", [node.input(0)], attrs)


def _resize(node: OnnxNode) -> Sequence[Held]:
    if node.opset < 11:
        return _plain(node, _floats(node, 1))
    node.refuse_unless(
        not (node.opset >= 18 and node.attr("antialias")), "antialias; export the model without it"
    )
    sizes, scales = _sizes_and_scales(node)
    coordinates = node.attr("coordinate_transformation_mode")
    attrs = {
        "sizes": sizes,
        "scales": scales,
        "mode": node.attr("mode"),
        "coordinates": coordinates,
        "nearest": node.attr("nearest_mode"),
        "cubic_a": node.attr("cubic_coeff_a"),
        "exclude_outside": bool(node.attr("exclude_outside")),
        "extrapolation": node.attr("extrapolation_value"),
    }
    if coordinates == "tf_crop_and_resize":
        attrs["roi"] = _roi(node)
        if not node.has(2):  # the scales were only asked for sizes
            attrs["scales"] = tuple(o / n for o, n in zip(sizes, node.shape(0), strict=True))
    return _resized(node, attrs)


def _axes(node: OnnxNode) -> list[int]:
    rank = len(node.shape(0))
    given = node.attr("axes") if node.opset >= 18 else None
    return [node.axis(a, rank) for a in given] if given else list(range(rank))


def _given(node: OnnxNode, index: int) -> bool:
    return node.has(index) and node.shape(index) != (0,)


def _sizes_and_scales(node: OnnxNode) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Extent and scale of every axis, from whichever of the two is given."""
    shape, axes = node.shape(0), _axes(node)
    sizes, scales = list(shape), [1.0] * len(shape)
    if _given(node, 2):
        values = _floats(node, 2)
        node.refuse_unless(len(values) == len(axes), f"{len(values)} scales for {len(axes)} axes")
        for axis, scale in zip(axes, values, strict=True):
            scales[axis] = scale
        return _by_scale(node, scales, axes), tuple(scales)
    wanted = node.ints(3, "sizes")
    node.refuse_unless(len(wanted) == len(axes), f"{len(wanted)} sizes for {len(axes)} axes")
    policy = (node.opset >= 18 and node.attr("keep_aspect_ratio_policy")) or "stretch"
    if policy != "stretch":  # one scale for all axes, rounded half up as the operator's page has it
        ratios = [Fraction(w, shape[a]) for w, a in zip(wanted, axes, strict=True)]
        ratio = min(ratios) if policy == "not_larger" else max(ratios)
        wanted = tuple(floor(ratio * shape[a] + Fraction(1, 2)) for a in axes)
        for axis in axes:
            scales[axis] = float(ratio)
    for axis, size in zip(axes, wanted, strict=True):
        sizes[axis] = size
        if policy == "stretch":
            scales[axis] = size / shape[axis]
    return tuple(sizes), tuple(scales)


def _by_scale(node: OnnxNode, scales: Sequence[float], axes: Sequence[int]) -> tuple[int, ...]:
    if node.attr("coordinate_transformation_mode") != "tf_crop_and_resize":
        return _scaled(node, scales)
    roi, rank = _roi(node), len(scales)
    extents = [n * (roi[rank + i] - roi[i]) for i, n in enumerate(node.shape(0))]
    return tuple(
        floor(n * s) if i in axes else node.shape(0)[i]
        for i, (n, s) in enumerate(zip(extents, scales, strict=True))
    )


def _roi(node: OnnxNode) -> tuple[float, ...]:
    """The region to resize, starts then ends, in fractions of every axis."""
    axes, rank = _axes(node), len(node.shape(0))
    values = [float(v) for v in node.constant(1, "roi").reshape(-1)]
    node.refuse_unless(len(values) == 2 * len(axes), f"{len(values)} values of roi for {len(axes)} axes")
    roi = [0.0] * rank + [1.0] * rank
    for i, axis in enumerate(axes):
        roi[axis], roi[rank + axis] = values[i], values[len(axes) + i]
    return tuple(roi)


HANDLERS: Mapping[str, Handler] = MappingProxyType({"Resize": _resize, "Upsample": _upsample})

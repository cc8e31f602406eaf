"""Converts operations that slide a window over a tensor, and those that resize images.

NNEF's images are [N, C, *spatial], its filters [O, I / groups, *kernel]; those of the IR are
channels-last. The phase `layout` removes the transposes that are written here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from types import MappingProxyType
from typing import Any

from mace_core.decompositions import same_paddings
from mace_core.importer import to_first, to_last
from mace_core.ir import Shape
from mace_frontend_nnef.node import NnefNode
from mace_frontend_nnef.ops import Handler
from mace_frontend_nnef.ops.elementwise import square
from mace_frontend_nnef.ops.movement import MODES, add_border
from mace_frontend_nnef.ops.reduce import bias_of, divisor


@dataclass(frozen=True)
class NnefWindow:
    """A window over some axes of a tensor: its size, its steps, and the border around the tensor."""

    kernel: Shape
    strides: Shape
    dilations: Shape
    before: Shape
    after: Shape

    @property
    def is_padded(self) -> bool:
        """Whether the window reaches beyond its operand."""
        return any((*self.before, *self.after))

    def attrs(self) -> dict[str, Any]:
        """Return the attributes of the IR's convolutions and pools."""
        pads = {"pads_before": self.before, "pads_after": self.after}
        return {"strides": self.strides, "dilations": self.dilations, **pads}

    def without_padding(self) -> NnefWindow:
        """Return the window for an operand whose border is written out."""
        return replace(self, before=(0,) * len(self.kernel), after=(0,) * len(self.kernel))


def window_of(node: NnefNode, size: Shape, kernel: Shape) -> NnefWindow:
    """Return the window that the node's attributes state for axes of these sizes.

    Where no padding is stated, the result has ceil(size / stride) elements; if the border is odd, its larger
    half is at the end (NNEF 1.0.5, section 4.3.1).
    """
    rank = len(kernel)
    strides = node.integers("stride") or (1,) * rank
    dilations = node.integers("dilation") or (1,) * rank
    node.refuse_unless(
        len(size) == len(strides) == len(dilations) == rank, f"{len(strides)} strides for {rank} axes"
    )
    node.refuse_unless(
        min((*kernel, *strides, *dilations), default=1) >= 1,
        f"kernel {list(kernel)}, strides {list(strides)}, dilations {list(dilations)}",
    )
    pairs = node.attribute("padding")
    if pairs:
        node.refuse_unless(len(pairs) == rank, f"{len(pairs)} paddings for {rank} axes")
        before, after = (tuple(int(pair[i]) for pair in pairs) for i in range(2))
        node.refuse_unless(min((*before, *after), default=0) >= 0, "a negative padding; slice its input")
    else:
        reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
        before, after = same_paddings(size, reach, strides)
    return NnefWindow(kernel, strides, dilations, before, after)


def _border(node: NnefNode) -> str:
    """Return the name of what surrounds the operand; RefusedError for an unknown one."""
    border = str(node.attribute("border"))
    known = ("ignore", *MODES)
    node.refuse_unless(border in known, f"border {border!r}; known are {', '.join(known)}")
    return border


def _write_border(node: NnefNode, x: str, window: NnefWindow, border: str) -> tuple[str, NnefWindow]:
    """Return a channels-last operand with its border written out, and the window without padding."""
    if not window.is_padded:
        return x, window
    # The batch and, as the last axis, the channels have no border.
    widths = (0, *window.before, 0), (0, *window.after, 0)
    return add_border(node, x, widths, (border, 0.0)), window.without_padding()


def _conv(node: NnefNode) -> Sequence[str]:
    x, shape = node.channels_last(node.input("input")), node.shape("input")
    return node.channels_first(_convolve(node, x, ("filter", shape[1]), bias=True))


def _convolve(node: NnefNode, x: str, operand: tuple[str, int], *, bias: bool) -> str:
    """Return x [N, *spatial, C] convolved.

    operand: the name of the filter, and the channels of x.  bias: whether the node's bias is added.
    """
    name, channels = operand
    filters = node.shape(name)
    groups = node.integer("groups") or channels  # 0 groups: depthwise
    size = node.builder.shape(x)[1:-1]
    node.refuse_unless(
        len(filters) == len(size) + 2 and filters[1] * groups == channels and filters[0] % groups == 0,
        f"filters of shape {list(filters)} for {channels} channels in {groups} groups",
    )
    window, border = window_of(node, size, filters[2:]), _border(node)
    # Conv of the IR pads with zeros; "ignore" is the same for a sum. Other borders are written out before it.
    if border not in ("constant", "ignore"):
        x, window = _write_border(node, x, window, border)
    weights = node.emit("Transpose", [node.input(name)], {"perm": to_last(len(filters))}, tag="filters")
    biases = bias_of(node, filters[0]) if bias else []
    return node.emit("Conv", [x, weights, *biases], {**window.attrs(), "group": groups}, tag="product")


def _separable_conv(node: NnefNode) -> Sequence[str]:
    """Convolve each channel by itself, then combine the channels with filters of one element."""
    x, channels = node.channels_last(node.input("input")), node.shape("input")[1]
    planes, points = node.shape("plane_filter"), node.shape("point_filter")
    node.refuse_unless(
        len(planes) >= 3 and planes[1] == 1 and planes[0] % channels == 0 and prod(points[2:]) == 1,
        f"plane filters {list(planes)} and point filters {list(points)} for {channels} channels",
    )
    size = node.builder.shape(x)[1:-1]
    window, border = window_of(node, size, planes[2:]), _border(node)
    if border not in ("constant", "ignore"):
        x, window = _write_border(node, x, window, border)
    perm = {"perm": to_last(len(planes))}
    plane_weights = node.emit("Transpose", [node.input("plane_filter")], perm, tag="planes")
    filtered = node.emit("Conv", [x, plane_weights], {**window.attrs(), "group": channels}, tag="filtered")
    ones, none = (1,) * len(size), (0,) * len(size)
    groups = node.integer("groups") or planes[0]
    node.refuse_unless(
        len(points) == len(planes) and points[1] * groups == planes[0] and points[0] % groups == 0,
        f"point filters {list(points)} for {planes[0]} channels in {groups} groups",
    )
    point_weights = node.emit("Transpose", [node.input("point_filter")], perm, tag="points")
    attrs = {**NnefWindow(ones, ones, ones, none, none).attrs(), "group": groups}
    biases = bias_of(node, points[0])
    return node.channels_first(node.emit("Conv", [filtered, point_weights, *biases], attrs, tag="product"))


def _deconv(node: NnefNode) -> Sequence[str]:
    """Transpose a convolution; filters are [I, O / groups, *kernel].

    Where no padding is stated, the result is `stride` times as large as the input.
    """
    shape, filters = node.shape("input"), node.shape("filter")
    x = node.channels_last(node.input("input"))
    groups = node.integer("groups") or shape[1]
    node.refuse_unless(
        len(filters) == len(shape) and filters[0] == shape[1] and shape[1] % groups == 0,
        f"filters of shape {list(filters)} for {shape[1]} channels in {groups} groups",
    )
    node.refuse_unless(_border(node) in ("constant", "ignore"), "a border other than zeros")
    window, extra = _transposed_window(node, shape[2:], filters[2:])
    # ConvTranspose of the IR has filters [O, *kernel, I / groups]: the axes of the groups change sides.
    split_shape = (groups, filters[0] // groups, *filters[1:])
    split = node.emit("Reshape", [node.input("filter")], {"shape": split_shape}, tag="groups")
    perm = (0, 2, *range(3, len(split_shape)), 1)
    transposed = node.emit("Transpose", [split], {"perm": perm}, tag="turned")
    channels = groups * filters[1]
    shape_of_weights = {"shape": (channels, *filters[2:], filters[0] // groups)}
    weights = node.emit("Reshape", [transposed], shape_of_weights, tag="filters")
    attrs = {**window.attrs(), "group": groups, "output_padding": extra}
    operands = [x, weights, *bias_of(node, channels)]
    return node.channels_first(node.emit("ConvTranspose", operands, attrs, tag="product"))


def _transposed_window(node: NnefNode, size: Shape, kernel: Shape) -> tuple[NnefWindow, Shape]:
    """Return the window of a deconvolution, and how many elements its result has beyond the full one."""
    stated_sizes = node.integers("output_shape")[2:]
    node.refuse_unless(
        len(stated_sizes) in (0, len(size)), f"its output_shape {list(node.integers('output_shape'))}"
    )
    pads_stated = bool(node.attribute("padding"))
    window = window_of(node, size, kernel)
    befores, afters, extras = [], [], []
    for i, n in enumerate(size):
        stride = window.strides[i]
        # All elements that the filter reaches; the paddings cut off some of them at both ends.
        full = (n - 1) * stride + (kernel[i] - 1) * window.dilations[i] + 1
        out = stated_sizes[i] if stated_sizes else n * stride
        before, after = window.before[i], window.after[i]
        if not pads_stated:
            # The border of the convolution whose transpose this is: the larger half at the end.
            total = max(full - out, 0)
            before, after = total // 2, total - total // 2
        extra = out - (full - before - after) if stated_sizes or not pads_stated else 0
        node.refuse_unless(
            0 <= extra < max(stride, 2),
            f"a result of {out} along spatial axis {i}, which the filter does not reach",
        )
        befores.append(before)
        afters.append(after)
        extras.append(extra)
    padded = NnefWindow(kernel, window.strides, window.dilations, tuple(befores), tuple(afters))
    return padded, tuple(extras)


def _pool(node: NnefNode, x: str, pool: str) -> str:
    """Return x [N, C, *spatial] pooled by "max", "mean" or "sum", over channels too if the window has them.

    The IR pools spatial axes only: for a window over channels, x becomes [N, 1, C, *spatial], where an axis
    of 1 takes the place of the channels.
    """
    shape = node.builder.shape(x)
    size = node.integers("size")
    node.refuse_unless(
        len(shape) >= 3 and len(size) == len(shape), f"a window of {list(size)} on {list(shape)}"
    )
    all_axes = window_of(node, shape, size)
    node.refuse_unless(
        size[0] == all_axes.strides[0] == 1 and not all_axes.before[0] and not all_axes.after[0],
        "a window over the batch; transpose it to another axis",
    )
    over_channels = size[1] != 1 or all_axes.strides[1] != 1 or all_axes.before[1] + all_axes.after[1] > 0
    first = 1 if over_channels else 2
    window = NnefWindow(
        all_axes.kernel[first:],
        all_axes.strides[first:],
        all_axes.dilations[first:],
        all_axes.before[first:],
        all_axes.after[first:],
    )
    if over_channels:
        # Pools of the IR have at most three spatial axes.
        node.refuse_unless(len(shape) <= 4, f"a window over channels and {len(shape) - 2} spatial axes")
        x = node.emit("Reshape", [x], {"shape": (shape[0], 1, *shape[1:])}, tag="channels")
    last = node.emit("Transpose", [x], {"perm": to_last(len(node.builder.shape(x)))}, tag="channels-last")
    pooled = _slide(node, last, window, pool)
    perm = {"perm": to_first(len(node.builder.shape(pooled)))}
    y = node.emit("Transpose", [pooled], perm, tag="channels-first")
    if not over_channels:
        return y
    batch, _, *sizes = node.builder.shape(y)
    return node.emit("Reshape", [y], {"shape": (batch, *sizes)}, tag="joined")


def _slide(node: NnefNode, x: str, window: NnefWindow, pool: str) -> str:
    """Return a channels-last tensor pooled, with the border that the node states."""
    border = _border(node)
    # In the IR a maximum ignores the border; a mean ignores it or counts it as zeros. Other borders, and the
    # zeros of a maximum, are written out.
    if border not in ("ignore", "constant") or (border == "constant" and pool == "max"):
        x, window = _write_border(node, x, window, border)
    attrs: dict[str, Any] = {**window.attrs(), "kernel": window.kernel}
    if pool == "max":
        return node.emit("MaxPool", [x], attrs, tag="pooled")
    counts_all = border != "ignore" or pool == "sum"
    mean = node.emit("AveragePool", [x], {**attrs, "count_pad": counts_all}, tag="pooled")
    if pool == "mean":
        return mean
    return node.emit("Mul", [mean, node.add_float(prod(window.kernel), "volume")], tag="sum")


def _max_pool(node: NnefNode) -> Sequence[str]:
    return node.done("Identity", [_pool(node, node.input("input"), "max")])


def _avg_pool(node: NnefNode) -> Sequence[str]:
    return node.done("Identity", [_pool(node, node.input("input"), "mean")])


def _box(node: NnefNode) -> Sequence[str]:
    pool = "mean" if node.attribute("normalize") else "sum"
    return node.done("Identity", [_pool(node, node.input("input"), pool)])


def _rms_pool(node: NnefNode) -> Sequence[str]:
    return node.done("Sqrt", [_pool(node, square(node, node.input("input")), "mean")])


def _local_mean_of(node: NnefNode, x: str) -> str:
    """Return the mean of the window around each element, with zeros beyond the edge."""
    defaults = {"border": "constant", "padding": [], "stride": [], "dilation": []}
    attribs = {**defaults, **node.operation.attribs}
    # The operation states a size only; border, padding and strides are the defaults of box.
    box = NnefNode(replace(node.operation, attribs=attribs), node.importer)
    return _pool(box, x, "mean")


def _local_response_normalization(node: NnefNode) -> Sequence[str]:
    """Compute input / (bias + alpha * local mean of squares) ^ beta."""
    x = node.input("input")
    mean = _local_mean_of(node, square(node, x))
    scaled = node.emit("Mul", [mean, node.add_float(node.number("alpha"), "alpha")], tag="scaled")
    sigma = node.emit("Add", [scaled, node.add_float(node.number("bias"), "bias")], tag="sigma")
    power = node.emit("Pow", [sigma, node.add_float(node.number("beta"), "beta")], tag="power")
    return node.done("Div", [x, power])


def _local_mean_normalization(node: NnefNode) -> Sequence[str]:
    x = node.input("input")
    return node.done("Sub", [x, _local_mean_of(node, x)])


def _local_variance_normalization(node: NnefNode) -> Sequence[str]:
    return node.done("Div", _with_divisor(node, node.input("input")))


def _local_contrast_normalization(node: NnefNode) -> Sequence[str]:
    x = node.input("input")
    return node.done(
        "Div", _with_divisor(node, node.emit("Sub", [x, _local_mean_of(node, x)], tag="centered"))
    )


def _with_divisor(node: NnefNode, x: str) -> list[str]:
    """Return a tensor and its divisor: max(root of the local mean of squares + bias, epsilon)."""
    sigma = node.emit("Sqrt", [_local_mean_of(node, square(node, x))], tag="sigma")
    return [x, divisor(node, sigma)]


def _factors(node: NnefNode) -> Shape:
    shape, factors = node.shape("input"), node.integers("factor")
    node.refuse_unless(
        len(factors) == len(shape) - 2 and min(factors, default=1) >= 1,
        f"factors {list(factors)} for a tensor of rank {len(shape)}",
    )
    return factors


def _resize(node: NnefNode, sizes: Shape, attrs: Mapping[str, Any]) -> Sequence[str]:
    """Return the node's output: its input with these spatial sizes."""
    shape = node.shape("input")
    all_sizes = (*shape[:2], *sizes)
    scales = tuple(out / n for out, n in zip(all_sizes, shape, strict=True))
    return node.done("Resize", [node.input("input")], {"sizes": all_sizes, "scales": scales, **attrs})


def _nearest_upsample(node: NnefNode) -> Sequence[str]:
    sizes = tuple(n * f for n, f in zip(node.shape("input")[2:], _factors(node), strict=True))
    return _resize(node, sizes, {"mode": "nearest", "coordinates": "asymmetric", "nearest": "floor"})


def _nearest_downsample(node: NnefNode) -> Sequence[str]:
    """Take every `factor`-th element, beginning with the first."""
    shape, factors = node.shape("input"), (1, 1, *_factors(node))
    attrs = {
        "starts": (0,) * len(shape),
        "sizes": tuple(-(-n // f) for n, f in zip(shape, factors, strict=True)),
        "steps": factors,
    }
    return node.done("Slice", [node.input("input")], attrs)


def _area_downsample(node: NnefNode) -> Sequence[str]:
    """Take the mean of every `factor` elements; those that do not fill a window at the end are dropped."""
    size = [1, 1, *_factors(node)]
    attribs = {"size": size, "stride": size, "dilation": [], "padding": [(0, 0)] * len(size)}
    box = NnefNode(replace(node.operation, attribs={**attribs, "border": "ignore"}), node.importer)
    return node.done("Identity", [_pool(box, node.input("input"), "mean")])


METHODS: Mapping[str, str] = MappingProxyType(
    {"symmetric": "half_pixel", "asymmetric": "asymmetric", "aligned": "align_corners"}
)
"""Methods of multilinear_upsample -> coordinates of the IR's Resize (NNEF 1.0.5, section 4.3.4)."""


def _multilinear_upsample(node: NnefNode) -> Sequence[str]:
    method, border = str(node.attribute("method")), str(node.attribute("border"))
    node.refuse_unless(method in METHODS, f"method {method!r}; known are {', '.join(METHODS)}")
    # Resize of the IR replicates the edge. With "aligned", no sample lies beyond it.
    node.refuse_unless(
        border == "replicate" or method == "aligned", f"border {border!r}; export it with 'replicate'"
    )
    sizes = tuple(n * f for n, f in zip(node.shape("input")[2:], _factors(node), strict=True))
    return _resize(node, sizes, {"mode": "linear", "coordinates": METHODS[method]})


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "conv": _conv,
        "separable_conv": _separable_conv,
        "deconv": _deconv,
        "max_pool": _max_pool,
        "avg_pool": _avg_pool,
        "rms_pool": _rms_pool,
        "box": _box,
        "local_response_normalization": _local_response_normalization,
        "local_mean_normalization": _local_mean_normalization,
        "local_variance_normalization": _local_variance_normalization,
        "local_contrast_normalization": _local_contrast_normalization,
        "nearest_upsample": _nearest_upsample,
        "nearest_downsample": _nearest_downsample,
        "area_downsample": _area_downsample,
        "multilinear_upsample": _multilinear_upsample,
    }
)

"""Operations that slide a window: convolutions over the spatial axes, boxes over channels as well, and resizing.

NNEF's images are [N, C, *spatial], filters [O, I / groups, *kernel]; the IR's are channels-last.
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
from mace_frontend_nnef.ops.movement import MODES, padded
from mace_frontend_nnef.ops.reduce import bias_of, divisor


@dataclass(frozen=True)
class Window:
    """How a window slides over the axes that are given to it."""

    kernel: Shape
    strides: Shape
    dilations: Shape
    before: Shape
    after: Shape

    @property
    def is_padded(self) -> bool:
        """Whether it reaches beyond its operand."""
        return any((*self.before, *self.after))

    def attrs(self) -> dict[str, Any]:
        """Return the attributes of the IR's convolutions and pools."""
        return {
            "strides": self.strides,
            "dilations": self.dilations,
            "pads_before": self.before,
            "pads_after": self.after,
        }

    def without_padding(self) -> Window:
        """Return the same window over an operand that has been padded."""
        none = (0,) * len(self.kernel)
        return Window(self.kernel, self.strides, self.dilations, none, none)


def window_of(node: NnefNode, size: Shape, kernel: Shape) -> Window:
    """Return the window that the node's attributes state for axes of these sizes.

    Without padding the result is ceil(size / stride) long, the odd one at the end (NNEF 1.0.5, section 4.3.1).
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
    return Window(kernel, strides, dilations, before, after)


def _border(node: NnefNode) -> str:
    border = str(node.attribute("border"))
    known = ("ignore", *MODES)
    node.refuse_unless(border in known, f"border {border!r}; known are {', '.join(known)}")
    return border


def _bordered(node: NnefNode, x: str, window: Window, border: str) -> tuple[str, Window]:
    """Return a channels-last operand with its border written out, and the window without padding."""
    if not window.is_padded:
        return x, window
    widths = (0, *window.before, 0), (0, *window.after, 0)
    return padded(node, x, widths, (border, 0.0)), window.without_padding()


def _conv(node: NnefNode) -> Sequence[str]:
    x, shape = node.channels_last(node.input("input")), node.shape("input")
    return node.channels_first(_convolved(node, x, ("filter", shape[1]), bias=True))


def _convolved(node: NnefNode, x: str, operand: tuple[str, int], *, bias: bool) -> str:
    """Return x [N, *spatial, C] convolved; `operand` names the filter and has the channels. groups of 0 are depthwise."""
    name, channels = operand
    filters = node.shape(name)
    groups = node.integer("groups") or channels
    size = node.builder.shape(x)[1:-1]
    node.refuse_unless(
        len(filters) == len(size) + 2 and filters[1] * groups == channels and filters[0] % groups == 0,
        f"filters of shape {list(filters)} for {channels} channels in {groups} groups",
    )
    window, border = window_of(node, size, filters[2:]), _border(node)
    if border not in ("constant", "ignore"):
        x, window = _bordered(node, x, window, border)
    weights = node.emit("Transpose", [node.input(name)], {"perm": to_last(len(filters))}, tag="filters")
    biases = bias_of(node, filters[0]) if bias else []
    return node.emit("Conv", [x, weights, *biases], {**window.attrs(), "group": groups}, tag="product")


def _separable_conv(node: NnefNode) -> Sequence[str]:
    """A filter for each channel, then one over channels."""
    x, channels = node.channels_last(node.input("input")), node.shape("input")[1]
    planes, points = node.shape("plane_filter"), node.shape("point_filter")
    node.refuse_unless(
        len(planes) >= 3 and planes[1] == 1 and planes[0] % channels == 0 and prod(points[2:]) == 1,
        f"plane filters {list(planes)} and point filters {list(points)} for {channels} channels",
    )
    size = node.builder.shape(x)[1:-1]
    window, border = window_of(node, size, planes[2:]), _border(node)
    if border not in ("constant", "ignore"):
        x, window = _bordered(node, x, window, border)
    perm = {"perm": to_last(len(planes))}
    weights = node.emit("Transpose", [node.input("plane_filter")], perm, tag="planes")
    filtered = node.emit("Conv", [x, weights], {**window.attrs(), "group": channels}, tag="filtered")
    ones, none = (1,) * len(size), (0,) * len(size)
    groups = node.integer("groups") or planes[0]
    node.refuse_unless(
        len(points) == len(planes) and points[1] * groups == planes[0] and points[0] % groups == 0,
        f"point filters {list(points)} for {planes[0]} channels in {groups} groups",
    )
    weights = node.emit("Transpose", [node.input("point_filter")], perm, tag="points")
    attrs = {**Window(ones, ones, ones, none, none).attrs(), "group": groups}
    biases = bias_of(node, points[0])
    return node.channels_first(node.emit("Conv", [filtered, weights, *biases], attrs, tag="product"))


def _deconv(node: NnefNode) -> Sequence[str]:
    """The transpose of a convolution: filters [I, O / groups, *kernel]; without padding, `stride` times as large."""
    shape, filters = node.shape("input"), node.shape("filter")
    x = node.channels_last(node.input("input"))
    groups = node.integer("groups") or shape[1]
    node.refuse_unless(
        len(filters) == len(shape) and filters[0] == shape[1] and shape[1] % groups == 0,
        f"filters of shape {list(filters)} for {shape[1]} channels in {groups} groups",
    )
    node.refuse_unless(_border(node) in ("constant", "ignore"), "a border other than zeros")
    window, extra = _transposed_window(node, shape[2:], filters[2:])
    split = (groups, filters[0] // groups, *filters[1:])
    parts = node.emit("Reshape", [node.input("filter")], {"shape": split}, tag="groups")
    perm = (0, 2, *range(3, len(split)), 1)
    turned = node.emit("Transpose", [parts], {"perm": perm}, tag="turned")
    channels = groups * filters[1]
    whole = {"shape": (channels, *filters[2:], filters[0] // groups)}
    weights = node.emit("Reshape", [turned], whole, tag="filters")
    attrs = {**window.attrs(), "group": groups, "output_padding": extra}
    operands = [x, weights, *bias_of(node, channels)]
    return node.channels_first(node.emit("ConvTranspose", operands, attrs, tag="product"))


def _transposed_window(node: NnefNode, size: Shape, kernel: Shape) -> tuple[Window, Shape]:
    """Return the window of a deconvolution, and what is added to the end of its result."""
    wanted = node.integers("output_shape")[2:]
    node.refuse_unless(
        len(wanted) in (0, len(size)), f"its output_shape {list(node.integers('output_shape'))}"
    )
    pads_stated = bool(node.attribute("padding"))
    window = window_of(node, size, kernel)
    befores, afters, extras = [], [], []
    for i, n in enumerate(size):
        stride = window.strides[i]
        full = (n - 1) * stride + (kernel[i] - 1) * window.dilations[i] + 1
        out = wanted[i] if wanted else n * stride
        before, after = window.before[i], window.after[i]
        if not pads_stated:
            total = max(full - out, 0)
            before, after = total // 2, total - total // 2
        extra = out - (full - before - after) if wanted or not pads_stated else 0
        node.refuse_unless(
            0 <= extra < max(stride, 2),
            f"a result of {out} along spatial axis {i}, which the filter does not reach",
        )
        befores.append(before)
        afters.append(after)
        extras.append(extra)
    made = Window(kernel, window.strides, window.dilations, tuple(befores), tuple(afters))
    return made, tuple(extras)


def _pooled(node: NnefNode, x: str, pool: str) -> str:
    """Return x [N, C, *spatial] pooled by "max", "mean" or "sum", the channels as well if the window says so.

    A window over channels slides over [N, 1, C, *spatial], whose first axis of 1 stands for the channels.
    """
    shape = node.builder.shape(x)
    size = node.integers("size")
    node.refuse_unless(
        len(shape) >= 3 and len(size) == len(shape), f"a window of {list(size)} on {list(shape)}"
    )
    whole = window_of(node, shape, size)
    node.refuse_unless(
        size[0] == whole.strides[0] == 1 and not whole.before[0] and not whole.after[0],
        "a window over the batch; transpose it to another axis",
    )
    first = 2 if size[1] == whole.strides[1] == 1 and not whole.before[1] + whole.after[1] else 1
    parts = (whole.kernel, whole.strides, whole.dilations, whole.before, whole.after)
    window = Window(*(part[first:] for part in parts))
    if first == 1:
        node.refuse_unless(len(shape) <= 4, f"a window over channels and {len(shape) - 2} spatial axes")
        x = node.emit("Reshape", [x], {"shape": (shape[0], 1, *shape[1:])}, tag="channels")
    last = node.emit("Transpose", [x], {"perm": to_last(len(node.builder.shape(x)))}, tag="channels-last")
    made = _slid(node, last, window, pool)
    rank = len(node.builder.shape(made))
    y = node.emit("Transpose", [made], {"perm": to_first(rank)}, tag="channels-first")
    sizes = node.builder.shape(y)
    return y if first == 2 else node.emit("Reshape", [y], {"shape": (sizes[0], *sizes[2:])}, tag="joined")


def _slid(node: NnefNode, x: str, window: Window, pool: str) -> str:
    """Return a channels-last tensor pooled; what lies outside counts as the border says."""
    border = _border(node)
    # The IR's pools leave out what lies outside of a maximum, and count it as zeros in a mean if they are told to.
    if border not in ("ignore", "constant") or (border == "constant" and pool == "max"):
        x, window = _bordered(node, x, window, border)
    attrs: dict[str, Any] = {**window.attrs(), "kernel": window.kernel}
    if pool == "max":
        return node.emit("MaxPool", [x], attrs, tag="pooled")
    counts_all = border != "ignore" or pool == "sum"
    mean = node.emit("AveragePool", [x], {**attrs, "count_pad": counts_all}, tag="pooled")
    if pool == "mean":
        return mean
    return node.emit("Mul", [mean, node.add_float(prod(window.kernel), "volume")], tag="sum")


def _max_pool(node: NnefNode) -> Sequence[str]:
    return node.done("Identity", [_pooled(node, node.input("input"), "max")])


def _avg_pool(node: NnefNode) -> Sequence[str]:
    return node.done("Identity", [_pooled(node, node.input("input"), "mean")])


def _box(node: NnefNode) -> Sequence[str]:
    pool = "mean" if node.attribute("normalize") else "sum"
    return node.done("Identity", [_pooled(node, node.input("input"), pool)])


def _rms_pool(node: NnefNode) -> Sequence[str]:
    return node.done("Sqrt", [_pooled(node, square(node, node.input("input")), "mean")])


def _local(node: NnefNode, x: str) -> str:
    """Return the mean of a window around each element, beyond the edge zeros."""
    defaults = {"border": "constant", "padding": [], "stride": [], "dilation": []}
    attribs = {**defaults, **node.operation.attribs}
    around = NnefNode(replace(node.operation, attribs=attribs), node.importer)
    return _pooled(around, x, "mean")


def _local_response(node: NnefNode) -> Sequence[str]:
    """Input / (bias + alpha * mean of squares) ^ beta."""
    x = node.input("input")
    mean = _local(node, square(node, x))
    scaled = node.emit("Mul", [mean, node.add_float(node.number("alpha"), "alpha")], tag="scaled")
    sigma = node.emit("Add", [scaled, node.add_float(node.number("bias"), "bias")], tag="sigma")
    power = node.emit("Pow", [sigma, node.add_float(node.number("beta"), "beta")], tag="power")
    return node.done("Div", [x, power])


def _local_mean(node: NnefNode) -> Sequence[str]:
    x = node.input("input")
    return node.done("Sub", [x, _local(node, x)])


def _local_variance(node: NnefNode) -> Sequence[str]:
    return node.done("Div", _by_variance(node, node.input("input")))


def _local_contrast(node: NnefNode) -> Sequence[str]:
    x = node.input("input")
    return node.done("Div", _by_variance(node, node.emit("Sub", [x, _local(node, x)], tag="centered")))


def _by_variance(node: NnefNode, x: str) -> list[str]:
    """Return a tensor and what it is divided by: max(root of the local mean of squares + bias, epsilon)."""
    sigma = node.emit("Sqrt", [_local(node, square(node, x))], tag="sigma")
    return [x, divisor(node, sigma)]


def _factors(node: NnefNode) -> Shape:
    shape, factors = node.shape("input"), node.integers("factor")
    node.refuse_unless(
        len(factors) == len(shape) - 2 and min(factors, default=1) >= 1,
        f"factors {list(factors)} for a tensor of rank {len(shape)}",
    )
    return factors


def _resized(node: NnefNode, sizes: Shape, attrs: Mapping[str, Any]) -> Sequence[str]:
    """The node's output: its input with these spatial sizes."""
    shape = node.shape("input")
    whole = (*shape[:2], *sizes)
    scales = tuple(out / n for out, n in zip(whole, shape, strict=True))
    return node.done("Resize", [node.input("input")], {"sizes": whole, "scales": scales, **attrs})


def _nearest_upsample(node: NnefNode) -> Sequence[str]:
    sizes = tuple(n * f for n, f in zip(node.shape("input")[2:], _factors(node), strict=True))
    return _resized(node, sizes, {"mode": "nearest", "coordinates": "asymmetric", "nearest": "floor"})


def _nearest_downsample(node: NnefNode) -> Sequence[str]:
    """Every `factor`-th element, the first of them."""
    shape, factors = node.shape("input"), (1, 1, *_factors(node))
    attrs = {
        "starts": (0,) * len(shape),
        "sizes": tuple(-(-n // f) for n, f in zip(shape, factors, strict=True)),
        "steps": factors,
    }
    return node.done("Slice", [node.input("input")], attrs)


def _area_downsample(node: NnefNode) -> Sequence[str]:
    """The mean of `factor` elements."""
    size = [1, 1, *_factors(node)]
    attribs = {"size": size, "stride": size, "dilation": [], "padding": [(0, 0)] * len(size)}
    around = NnefNode(replace(node.operation, attribs={**attribs, "border": "ignore"}), node.importer)
    return node.done("Identity", [_pooled(around, node.input("input"), "mean")])


METHODS: Mapping[str, str] = MappingProxyType(
    {"symmetric": "half_pixel", "asymmetric": "asymmetric", "aligned": "align_corners"}
)
"""The IR's coordinates for NNEF's methods of multilinear_upsample (NNEF 1.0.5, section 4.3.4)."""


def _multilinear_upsample(node: NnefNode) -> Sequence[str]:
    method, border = str(node.attribute("method")), str(node.attribute("border"))
    node.refuse_unless(method in METHODS, f"method {method!r}; known are {', '.join(METHODS)}")
    node.refuse_unless(
        border == "replicate" or method == "aligned", f"border {border!r}; export it with 'replicate'"
    )
    sizes = tuple(n * f for n, f in zip(node.shape("input")[2:], _factors(node), strict=True))
    return _resized(node, sizes, {"mode": "linear", "coordinates": METHODS[method]})


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        "conv": _conv,
        "separable_conv": _separable_conv,
        "deconv": _deconv,
        "max_pool": _max_pool,
        "avg_pool": _avg_pool,
        "rms_pool": _rms_pool,
        "box": _box,
        "local_response_normalization": _local_response,
        "local_mean_normalization": _local_mean,
        "local_variance_normalization": _local_variance,
        "local_contrast_normalization": _local_contrast,
        "nearest_upsample": _nearest_upsample,
        "nearest_downsample": _nearest_downsample,
        "area_downsample": _area_downsample,
        "multilinear_upsample": _multilinear_upsample,
    }
)

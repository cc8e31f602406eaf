"""Images resized with kernels that cover many pixels: products with a matrix of weights for each axis.

The kernels are separable and the sizes known, so that two constant matrices hold all that depends on them.

Formulas: tensorflow/core/kernels/image/scale_and_translate_op.cc, sampling_kernels.h, resize_area_op.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from mace_core.ir import Array, DType, Shape
from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops import Handler
from mace_frontend_tensorflow.values import OptionalValue

MAX_MATRIX = 1 << 22
"""Elements of a matrix of weights: it is stored in the library."""


@dataclass(frozen=True)
class ResampleKernel:
    """A kernel: the weight of a pixel by its distance, up to the radius."""

    radius: float
    weight: Callable[[Array], Array]


def _lanczos(radius: float) -> ResampleKernel:
    """Return C. Lanczos's kernel: a sinc within the main lobe of a wider one."""
    return ResampleKernel(radius, lambda x: np.where(x <= radius, np.sinc(x) * np.sinc(x / radius), 0))


def _cubic(near: Sequence[float], far: Sequence[float]) -> ResampleKernel:
    """Return a kernel of two polynomials, highest power first: up to distance 1, and up to 2."""
    return ResampleKernel(
        2, lambda x: np.where(x < 1, np.polyval(near, x), np.where(x < 2, np.polyval(far, x), 0))
    )


KERNELS: Mapping[str, ResampleKernel] = MappingProxyType(
    {
        "lanczos1": _lanczos(1),
        "lanczos3": _lanczos(3),
        "lanczos5": _lanczos(5),
        "gaussian": ResampleKernel(1.5, lambda x: np.where(x < 1.5, np.exp(-2 * x * x), 0)),
        "box": ResampleKernel(1, lambda x: np.where(x < 0.5, 1, np.where(x == 0.5, 0.5, 0))),
        "triangle": ResampleKernel(1, lambda x: np.maximum(1 - x, 0)),
        "keyscubic": _cubic((1.5, -2.5, 0, 1), (-0.5, 2.5, -4, 2)),
        "mitchellcubic": _cubic((7 / 6, -2, 0, 8 / 9), (-7 / 18, 2, -10 / 3, 16 / 9)),
    }
)


def _resample(node: TensorFlowNode, weights: Sequence[Array]) -> Sequence[OptionalValue]:
    """Add images [N, H, W, C] multiplied by weights [H', H] and [W', W]."""
    batch, height, width, channels = node.shape(0)
    rows, columns = (node.add_constant(matrix, DType.F32, "shares") for matrix in weights)
    flat = node.reshape(node.cast(node.input(0), DType.F32), (batch, height, width * channels), "rows")
    height_after, width_after = len(weights[0]), len(weights[1])
    tall = node.emit("MatMul", [rows, flat], tag="tall")
    tall = node.reshape(tall, (batch * height_after, width, channels), "columns")
    images = node.emit("MatMul", [columns, tall], tag="wide")
    return [node.reshape(images, (batch, height_after, width_after, channels), "resized")]


def _read_sizes(node: TensorFlowNode) -> tuple[Shape, Shape]:
    """Return height and width, before and after."""
    shape, size = node.shape(0), node.ints(1, "size")
    text = f"images of shape {list(shape)} are resized to {list(size)}"
    node.refuse_unless(len(shape) == 4 and len(size) == 2 and min(size) > 0 and 0 not in shape, text)
    is_small = all(before * after <= MAX_MATRIX for before, after in zip(shape[1:3], size, strict=True))
    node.refuse_unless(is_small, f"{text}, which is too large", "use bilinear interpolation")
    return shape[1:3], size


def _scale_and_translate(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add images resized and moved; operands are images, size, and each axis' scale and translation."""
    before, after = _read_sizes(node)
    name, smooth = node.attr("kernel_type", "lanczos3"), node.attr("antialias", True)
    node.refuse_unless(name in KERNELS, f"kernel {name!r} is not supported")
    scales = node.constant(2, "scale").astype(np.float32).reshape(-1)
    moves = node.constant(3, "translation").astype(np.float32).reshape(-1)
    node.refuse_unless(
        len(scales) == len(moves) == 2 and bool((scales > 0).all()),
        f"it has scales {scales.tolist()} and translations {moves.tolist()}",
    )
    sides = zip(before, after, scales, moves, strict=True)
    kernel = KERNELS[name]
    weights = [_weights(kernel, (n, m), (scale, move), smooth) for n, m, scale, move in sides]
    return _resample(node, weights)


def _weights(
    kernel: ResampleKernel, sizes: tuple[int, int], placement: tuple[np.float32, np.float32], smooth: bool
) -> Array:
    """Return the weight of each pixel of an axis [before] for each pixel after, as a matrix [after, before].

    sizes: of the axis, before and after.  placement: scale and translation.
    smooth: whether the kernel grows where many pixels become one (`antialias`).
    """
    scale, translation = placement
    inverse = np.float32(1) / scale
    width = max(float(inverse), 1.0) if smooth else 1.0
    # Positions in single precision, as in ComputeSpansCore: pixels at the edge of the kernel depend on it.
    centers = (np.arange(sizes[1], dtype=np.float32) + np.float32(0.5)) * inverse - inverse * translation
    centers = centers[:, None].astype(np.float64)
    distance = np.abs(np.arange(sizes[0]) + 0.5 - centers) / width
    weights = np.where(distance <= kernel.radius, kernel.weight(distance), 0)
    total = weights.sum(axis=1, keepdims=True)
    # Rows whose sum is close to 0 stay as they are, as in the kernel: their quotient would be noise.
    is_sound = np.abs(total) > 1000 * np.finfo(np.float32).tiny
    normalized = np.where(is_sound, weights / np.where(total == 0, 1, total), weights)
    # Pixels whose center lies outside of the image are 0.
    return np.where((centers < 0) | (centers > sizes[0]), 0, normalized)


def _area(node: TensorFlowNode) -> Sequence[OptionalValue]:
    """Add images in which each pixel is the mean of the area that falls on it."""
    before, after = _read_sizes(node)
    node.refuse_unless(
        not node.attr("align_corners", False),
        "it has areas with align_corners",
        "export the model with bilinear interpolation",
    )
    return _resample(node, [_overlap(n, m) for n, m in zip(before, after, strict=True)])


def _overlap(before: int, after: int) -> Array:
    """Return the part of each pixel after that lies on each pixel before, as a matrix [after, before]."""
    edges = np.arange(after + 1) * (before / after)
    low, high = edges[:-1, None], edges[1:, None]
    pixels = np.arange(before)
    overlap = np.maximum(np.minimum(high, pixels + 1) - np.maximum(low, pixels), 0)
    return np.asarray(overlap * (after / before))


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {"ResizeArea": _area, "ScaleAndTranslate": _scale_and_translate}
)

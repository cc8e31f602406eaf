"""Changes of size whose every result is a sum over many pixels: products with a matrix of shares for each axis.

Formulas: tensorflow/core/kernels/image/scale_and_translate_op.cc, sampling_kernels.h, resize_area_op.cc.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from mace_core.ir import Array, DType, Shape
from mace_frontend_tensorflow.held import Held
from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops import Handler

SHARES = 1 << 22
"""Elements of a matrix of shares."""


@dataclass(frozen=True)
class Kernel:
    """How much a pixel counts by its distance, up to the radius."""

    radius: float
    share: Callable[[Array], Array]


def _lanczos(radius: float) -> Kernel:
    """C. Lanczos's kernel: a sinc within the main lobe of a wider one."""
    return Kernel(radius, lambda x: np.where(x <= radius, np.sinc(x) * np.sinc(x / radius), 0))


def _cubic(near: Sequence[float], far: Sequence[float]) -> Kernel:
    """Two polynomials, highest power first: up to distance 1, and up to 2."""
    return Kernel(2, lambda x: np.where(x < 1, np.polyval(near, x), np.where(x < 2, np.polyval(far, x), 0)))


KERNELS: Mapping[str, Kernel] = MappingProxyType(
    {
        "lanczos1": _lanczos(1),
        "lanczos3": _lanczos(3),
        "lanczos5": _lanczos(5),
        "gaussian": Kernel(1.5, lambda x: np.where(x < 1.5, np.exp(-2 * x * x), 0)),
        "box": Kernel(1, lambda x: np.where(x < 0.5, 1, np.where(x == 0.5, 0.5, 0))),
        "triangle": Kernel(1, lambda x: np.maximum(1 - x, 0)),
        "keyscubic": _cubic((1.5, -2.5, 0, 1), (-0.5, 2.5, -4, 2)),
        "mitchellcubic": _cubic((7 / 6, -2, 0, 8 / 9), (-7 / 18, 2, -10 / 3, 16 / 9)),
    }
)


def _resampled(node: TensorFlowNode, shares: Sequence[Array]) -> Sequence[Held]:
    """The node's output from image [N, H, W, C]: shares [H', H] and [W', W]."""
    batch, height, width, channels = node.shape(0)
    rows, columns = (node.add_constant(s, DType.F32, "shares") for s in shares)
    flat = node.reshape(node.cast(node.input(0), DType.F32), (batch, height, width * channels), "rows")
    made, across = len(shares[0]), len(shares[1])
    tall = node.reshape(
        node.emit("MatMul", [rows, flat], tag="tall"), (batch * made, width, channels), "columns"
    )
    whole = node.emit("MatMul", [columns, tall], tag="wide")
    return [node.reshape(whole, (batch, made, across, channels), "resized")]


def _checked(node: TensorFlowNode) -> tuple[Shape, Shape]:
    """Height and width, before and after."""
    shape, wanted = node.shape(0), node.ints(1, "size")
    node.refuse_unless(
        len(shape) == 4 and len(wanted) == 2 and min(wanted) > 0 and 0 not in shape,
        f"{list(shape)} to {list(wanted)}",
    )
    few = all(n * m <= SHARES for n, m in zip(shape[1:3], wanted, strict=True))
    node.refuse_unless(
        few, f"{list(shape)} to {list(wanted)}, which is too large; use bilinear interpolation"
    )
    return shape[1:3], wanted


def _scale_and_translate(node: TensorFlowNode) -> Sequence[Held]:
    """Operands are the image, its new size, the scale of each axis and how far it is moved."""
    before, after = _checked(node)
    name, smooth = node.attr("kernel_type", "lanczos3"), node.attr("antialias", True)
    node.refuse_unless(name in KERNELS, f"kernel {name!r} is not supported")
    scales, moves = (
        node.constant(i, what).astype(np.float32).reshape(-1)
        for i, what in ((2, "scale"), (3, "translation"))
    )
    node.refuse_unless(
        len(scales) == len(moves) == 2 and bool((scales > 0).all()),
        f"scales {scales.tolist()}, moved {moves.tolist()}",
    )
    sides = zip(before, after, scales, moves, strict=True)
    return _resampled(
        node, [_shares(KERNELS[name], (n, m), (scale, moved), smooth) for n, m, scale, moved in sides]
    )


def _shares(
    kernel: Kernel, sizes: tuple[int, int], place: tuple[np.float32, np.float32], smooth: bool
) -> Array:
    """How much each pixel of an axis counts for each new one.

    place: scale, and how far it is moved.  smooth: whether the kernel grows where many pixels become one.
    """
    inverse = np.float32(1) / place[0]
    wide = max(float(inverse), 1.0) if smooth else 1.0
    at = ((np.arange(sizes[1], dtype=np.float32) + np.float32(0.5)) * inverse - inverse * place[1])[
        :, None
    ].astype(np.float64)
    distance = np.abs(np.arange(sizes[0]) + 0.5 - at) / wide
    found = np.where(distance <= kernel.radius, kernel.share(distance), 0)
    total = found.sum(axis=1, keepdims=True)
    even = np.where(
        np.abs(total) > 1000 * np.finfo(np.float32).tiny, found / np.where(total == 0, 1, total), found
    )
    return np.where((at < 0) | (at > sizes[0]), 0, even)


def _area(node: TensorFlowNode) -> Sequence[Held]:
    """The mean of what falls on each new pixel."""
    before, after = _checked(node)
    node.refuse_unless(
        not node.attr("align_corners", False),
        "align_corners of areas; export the model with bilinear interpolation",
    )
    return _resampled(node, [_overlap(n, m) for n, m in zip(before, after, strict=True)])


def _overlap(size: int, made: int) -> Array:
    edges = np.arange(made + 1) * (size / made)
    low, high = edges[:-1, None], edges[1:, None]
    pixels = np.arange(size)
    return np.asarray(np.maximum(np.minimum(high, pixels + 1) - np.maximum(low, pixels), 0) * (made / size))


HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {"ResizeArea": _area, "ScaleAndTranslate": _scale_and_translate}
)

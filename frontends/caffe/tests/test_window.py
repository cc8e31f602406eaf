"""Layers that slide a window over the spatial axes, and products."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from caffe_cases import Case, check, floats

from mace_core.ir import Array

IMAGE = (2, 4, 7, 6)


def convolution(x: Array, w: Array, group: int, stride: int, pad: int) -> Array:
    """By its definition, over any number of spatial axes."""
    rank = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *[(pad, pad)] * rank])
    out = tuple((n - k) // stride + 1 for n, k in zip(x.shape[2:], w.shape[2:], strict=True))
    result = np.zeros((x.shape[0], w.shape[0], *out))
    each = w.shape[0] // group
    for place in product(*map(range, out)):
        window = tuple(slice(p * stride, p * stride + k) for p, k in zip(place, w.shape[2:], strict=True))
        for g in range(group):
            seen = x[(slice(None), slice(g * w.shape[1], (g + 1) * w.shape[1]), *window)]
            own = w[g * each : (g + 1) * each]
            result[(slice(None), slice(g * each, (g + 1) * each), *place)] = np.tensordot(
                seen, own, (range(1, rank + 2),) * 2
            )
    return result


def transposed(x: Array, w: Array, group: int, stride: int, pad: int) -> Array:
    """A transposed convolution by its definition; w: [C, results / group, *kernel]."""
    n, channels, height, width = x.shape
    each = channels // group
    kernel = w.shape[2:]
    result = np.zeros(
        (n, w.shape[1] * group, *((s - 1) * stride + k for s, k in zip((height, width), kernel, strict=True)))
    )
    for g, i, j in product(range(group), range(height), range(width)):
        put = np.tensordot(x[:, g * each : (g + 1) * each, i, j], w[g * each : (g + 1) * each], 1)
        rows, columns = slice(i * stride, i * stride + kernel[0]), slice(j * stride, j * stride + kernel[1])
        result[:, g * w.shape[1] : (g + 1) * w.shape[1], rows, columns] += put
    return result[:, :, pad : result.shape[2] - pad, pad : result.shape[3] - pad]


def bins(length: int, level: int) -> list[slice]:
    """The bins of a pyramid's level: as wide as need be, the first and last cut short."""
    size = -(-length >> level)
    pad = ((size << level) - length + 1) // 2
    return [slice(max(i * size - pad, 0), min(i * size - pad + size, length)) for i in range(1 << level)]


def pyramid(x: Array) -> Array:
    """The greatest of each bin of levels 0 to 2."""
    rows = []
    for level in range(3):
        results = [
            x[:, :, r, c].max((2, 3)) for r in bins(x.shape[2], level) for c in bins(x.shape[3], level)
        ]
        rows.append(np.stack(results, -1).reshape(x.shape[0], -1))
    return np.concatenate(rows, 1)


def columns(x: Array) -> Array:
    """What windows of 2 x 3, 2 apart, see of an image padded by 1."""
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    high, wide = (padded.shape[2] - 2) // 2 + 1, (padded.shape[3] - 3) // 2 + 1
    seen = [
        padded[:, :, i : i + 2 * high : 2, j : j + 2 * wide : 2][:, :, :high, :wide]
        for i in range(2)
        for j in range(3)
    ]
    return np.stack(seen, 2).reshape(x.shape[0], -1, high, wide)


def pooled_with_places(x: Array) -> tuple[Array, Array]:
    """The greatest of windows of 2 x 2 and where in its image it is."""
    n, c, height, width = x.shape
    windows = (
        x.reshape(n, c, height // 2, 2, width // 2, 2)
        .transpose(0, 1, 2, 4, 3, 5)
        .reshape(n, c, height // 2, width // 2, 4)
    )
    at = windows.argmax(-1)
    rows, across = np.meshgrid(np.arange(height // 2) * 2, np.arange(width // 2) * 2, indexing="ij")
    return windows.max(-1), ((rows + at // 2) * width + across + at % 2).astype(np.float32)


def conv(text: str) -> str:
    return f"Convolution convolution_param {{ {text} }}"


def deconv(text: str) -> str:
    return f"Deconvolution convolution_param {{ {text} }}"


def pool(text: str) -> str:
    return f"Pooling pooling_param {{ {text} }}"


CONVOLUTION = (
    Case(
        "convolution", conv("num_output: 5 kernel_size: 3"), [IMAGE], [floats(5, 4, 3, 3), floats(5, seed=1)]
    ),
    Case(
        "convolution without bias",
        conv("num_output: 5 kernel_size: 3 bias_term: false"),
        [IMAGE],
        [floats(5, 4, 3, 3)],
    ),
    Case(
        "convolution pad stride",
        conv("num_output: 5 kernel_size: 3 pad: 2 stride: 2"),
        [IMAGE],
        [floats(5, 4, 3, 3), floats(5)],
    ),
    Case(
        "convolution of two sides",
        conv("num_output: 3 kernel_h: 1 kernel_w: 3 pad_h: 0 pad_w: 1 stride_h: 2 stride_w: 1"),
        [IMAGE],
        [floats(3, 4, 1, 3), floats(3)],
    ),
    Case(
        "convolution of two sides in lists",
        conv("num_output: 3 kernel_size: 1 kernel_size: 3 pad: 0 pad: 1 stride: 2 stride: 1"),
        [IMAGE],
        [floats(3, 4, 1, 3), floats(3)],
    ),
    Case(
        "convolution dilation",
        conv("num_output: 3 kernel_size: 3 dilation: 2 pad: 2"),
        [IMAGE],
        [floats(3, 4, 3, 3), floats(3)],
    ),
    Case(
        "convolution group",
        conv("num_output: 6 kernel_size: 3 group: 2"),
        [IMAGE],
        [floats(6, 2, 3, 3), floats(6)],
    ),
    Case(
        "convolution depthwise",
        conv("num_output: 4 kernel_size: 3 group: 4 pad: 1"),
        [IMAGE],
        [floats(4, 1, 3, 3), floats(4)],
    ),
    Case(
        "convolution depthwise by type",
        "ConvolutionDepthwise convolution_param { num_output: 4 kernel_size: 3 bias_term: false }",
        [IMAGE],
        [floats(4, 1, 3, 3)],
        oracle=lambda x: convolution(x, floats(4, 1, 3, 3), 4, 1, 0),
    ),
    Case(
        "convolution along one axis",
        conv("num_output: 3 kernel_size: 3 pad: 1 stride: 2 bias_term: false"),
        [(2, 4, 9)],
        [floats(3, 4, 3)],
        oracle=lambda x: convolution(x, floats(3, 4, 3), 1, 2, 1),
    ),
    Case(
        "convolution along three axes",
        conv("num_output: 2 kernel_size: 2 bias_term: false group: 2"),
        [(1, 4, 3, 4, 5)],
        [floats(2, 2, 2, 2, 2)],
        oracle=lambda x: convolution(x, floats(2, 2, 2, 2, 2), 2, 1, 0),
    ),
    Case(
        "deconvolution",
        deconv("num_output: 5 kernel_size: 3 stride: 2 pad: 1"),
        [IMAGE],
        [floats(4, 5, 3, 3), floats(5)],
    ),
    Case(
        "deconvolution group",
        deconv("num_output: 6 kernel_size: 4 stride: 2 pad: 1 group: 2 bias_term: false"),
        [IMAGE],
        [floats(4, 3, 4, 4)],
        oracle=lambda x: transposed(x, floats(4, 3, 4, 4), 2, 2, 1),
    ),
    Case(
        "deconvolution depthwise",
        deconv("num_output: 4 kernel_size: 4 stride: 2 pad: 1 group: 4 bias_term: false"),
        [IMAGE],
        [floats(4, 1, 4, 4)],
        oracle=lambda x: transposed(x, floats(4, 1, 4, 4), 4, 2, 1),
    ),
    Case(
        "columns",
        "Im2col convolution_param { kernel_h: 2 kernel_w: 3 stride: 2 pad: 1 }",
        [IMAGE],
        oracle=columns,
    ),
)
POOLING = (
    Case("max pool", pool("kernel_size: 3 stride: 2"), [IMAGE]),
    Case("max pool ceil", pool("kernel_size: 2 stride: 2"), [IMAGE]),
    Case(
        "max pool floor",
        pool("kernel_size: 2 stride: 2 round_mode: FLOOR"),
        [IMAGE],
        oracle=lambda x: pooled_with_places(x[:, :, :6])[0],
    ),
    Case(
        "max pool old floor",
        pool("kernel_size: 2 stride: 2 ceil_mode: false"),
        [IMAGE],
        oracle=lambda x: pooled_with_places(x[:, :, :6])[0],
    ),
    Case("max pool pad", pool("kernel_size: 3 stride: 2 pad: 1"), [IMAGE]),
    Case(
        "max pool two sides",
        pool("kernel_h: 3 kernel_w: 2 stride_h: 2 stride_w: 1 pad_h: 1 pad_w: 0"),
        [IMAGE],
    ),
    Case("max pool global", pool("pool: MAX global_pooling: true"), [IMAGE]),
    Case("mean pool", pool("pool: AVE kernel_size: 3 stride: 2"), [IMAGE]),
    Case("mean pool pad", pool("pool: AVE kernel_size: 3 stride: 2 pad: 1"), [IMAGE]),
    Case("mean pool global", pool("pool: AVE global_pooling: true"), [IMAGE]),
    Case(
        "max pool with places",
        pool("kernel_size: 2 stride: 2"),
        [(2, 3, 4, 6)],
        tops=2,
        oracle=pooled_with_places,
    ),
    Case("pyramid", "SPP spp_param { pyramid_height: 3 pool: MAX }", [(2, 3, 9, 7)], oracle=pyramid),
    Case(
        "regions",
        "ROIPooling roi_pooling_param { pooled_h: 3 pooled_w: 2 spatial_scale: 0.5 }",
        [IMAGE, (3, 5)],
        arrays={"x1": np.array([[0, 1, 1, 9, 11], [0, 0, 2, 6, 6], [0, 4, 4, 7, 13]], np.float32)},
    ),
)
PRODUCTS = (
    Case(
        "inner product",
        "InnerProduct inner_product_param { num_output: 5 }",
        [IMAGE],
        [floats(5, 168, low=-0.1, high=0.1), floats(5)],
    ),
    Case(
        "inner product of old shape",
        "InnerProduct inner_product_param { num_output: 5 bias_term: false }",
        [(2, 6)],
        [floats(1, 1, 5, 6)],
        oracle=lambda x: x @ floats(5, 6).T,
    ),
    Case(
        "inner product axis",
        "InnerProduct inner_product_param { num_output: 3 axis: 2 }",
        [(2, 3, 4, 2)],
        [floats(3, 8), floats(3)],
        oracle=lambda x: x.reshape(2, 3, 8) @ floats(3, 8).T + floats(3),
    ),
    Case(
        "inner product transposed",
        "InnerProduct inner_product_param { num_output: 3 transpose: true bias_term: false }",
        [(2, 8)],
        [floats(8, 3)],
        oracle=lambda x: x @ floats(8, 3),
    ),
    Case(
        "embedding",
        "Embed embed_param { num_output: 3 input_dim: 5 }",
        [(2, 4)],
        [floats(5, 3), floats(3, seed=1)],
        low=0,
        high=5,
        whole=True,
        oracle=lambda x: floats(5, 3)[x.astype(int)] + floats(3, seed=1),
    ),
)
CASES = (*CONVOLUTION, *POOLING, *PRODUCTS)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_layer(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)

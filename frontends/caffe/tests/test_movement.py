"""Layers that move elements or resize images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from caffe_cases import Case, check

from mace_core.ir import Array

IMAGE = (2, 6, 4, 5)


def reorganized(x: Array) -> Array:
    """Darknet's, place by place: block 2."""
    n, c, height, width = x.shape
    fewer = c // 4
    flat, made = x.reshape(n, -1), np.empty((n, c, height, width), np.float32)
    for k in range(c):
        for j in range(height):
            for i in range(width):
                inner, offset = k % fewer, k // fewer
                across, down = i * 2 + offset % 2, j * 2 + offset // 2
                made[:, k, j, i] = flat[:, across + width * 2 * (down + height * 2 * inner)]
    return made.reshape(n, c * 4, height // 2, width // 2)


def corners(x: Array, height: int, width: int) -> Array:
    """Bilinear, the corners of both on each other."""
    rows, columns = np.linspace(0, x.shape[2] - 1, height), np.linspace(0, x.shape[3] - 1, width)
    top, left = np.minimum(rows.astype(int), x.shape[2] - 2), np.minimum(columns.astype(int), x.shape[3] - 2)
    down, across = (rows - top)[:, None], columns - left
    upper = x[:, :, top][..., left] * (1 - across) + x[:, :, top][..., left + 1] * across
    lower = x[:, :, top + 1][..., left] * (1 - across) + x[:, :, top + 1][..., left + 1] * across
    return upper * (1 - down) + lower * down


def unpooled(x: Array, places: Array) -> Array:
    result = np.zeros((*x.shape[:2], 4 * x.shape[2] * x.shape[3]), np.float32)
    np.put_along_axis(result, places.reshape(*x.shape[:2], -1).astype(int), x.reshape(*x.shape[:2], -1), 2)
    return result.reshape(*x.shape[:2], 2 * x.shape[2], 2 * x.shape[3])


PLACES = (
    np.stack([np.random.default_rng(i).permutation(24)[:6].reshape(2, 3) for i in range(6)])
    .reshape(2, 3, 2, 3)
    .astype(np.float32)
)
CASES = (
    Case("concat", "Concat", [(2, 3, 4, 5), (2, 1, 4, 5)]),
    Case(
        "concat axis",
        "Concat concat_param { axis: -1 }",
        [(2, 3, 4), (2, 3, 1)],
        oracle=lambda x, y: np.concatenate([x, y], -1),
    ),
    Case(
        "concat old axis",
        "Concat concat_param { concat_dim: 0 }",
        [(2, 3), (1, 3)],
        oracle=lambda x, y: np.concatenate([x, y], 0),
    ),
    Case("slice", "Slice", [IMAGE], tops=3, oracle=lambda x: tuple(np.split(x, 3, 1))),
    Case("slice points", "Slice slice_param { axis: 1 slice_point: 1 slice_point: 4 }", [IMAGE], tops=3),
    Case(
        "slice axis",
        "Slice slice_param { axis: -1 slice_point: 2 }",
        [IMAGE],
        tops=2,
        oracle=lambda x: (x[..., :2], x[..., 2:]),
    ),
    Case(
        "slice old axis",
        "Slice slice_param { slice_dim: 0 }",
        [IMAGE],
        tops=2,
        oracle=lambda x: (x[:1], x[1:]),
    ),
    Case("split", "Split", [IMAGE], tops=2, oracle=lambda x: (x, x)),
    Case("flatten", "Flatten", [IMAGE]),
    Case("flatten axes", "Flatten flatten_param { axis: 1 end_axis: 2 }", [IMAGE]),
    Case(
        "flatten all",
        "Flatten flatten_param { axis: 0 end_axis: -2 }",
        [IMAGE],
        oracle=lambda x: x.reshape(48, 5),
    ),
    Case("reshape", "Reshape reshape_param { shape { dim: 0 dim: -1 dim: 10 } }", [IMAGE]),
    Case("reshape axis", "Reshape reshape_param { shape { dim: 2 dim: 3 } axis: 1 num_axes: 1 }", [IMAGE]),
    Case(
        "reshape from behind",
        "Reshape reshape_param { shape { dim: 1 dim: -1 } axis: -2 }",
        [IMAGE],
        oracle=lambda x: x.reshape(2, 6, 4, 1, 5),
    ),
    Case("permute", "Permute permute_param { order: 0 order: 2 order: 3 order: 1 }", [IMAGE]),
    Case(
        "permute some",
        "Permute permute_param { order: 1 }",
        [(2, 3, 4)],
        oracle=lambda x: x.transpose(1, 0, 2),
    ),
    Case("crop", "Crop crop_param { axis: 2 offset: 1 offset: 2 }", [IMAGE, (2, 6, 2, 3)]),
    Case(
        "crop alike",
        "Crop crop_param { offset: 1 }",
        [IMAGE, (1, 1, 3, 2)],
        oracle=lambda x, _: x[:, :, 1:4, 1:3],
    ),
    Case(
        "crop from the batch on",
        "Crop crop_param { axis: -4 }",
        [IMAGE, (1, 2, 3, 4)],
        oracle=lambda x, _: x[:1, :2, :3, :4],
    ),
    Case("tile", "Tile tile_param { axis: 1 tiles: 3 }", [IMAGE], oracle=lambda x: np.tile(x, (1, 3, 1, 1))),
    Case("shuffle", "ShuffleChannel shuffle_channel_param { group: 3 }", [IMAGE]),
    Case("reorg", "Reorg reorg_param { stride: 2 }", [(1, 8, 4, 6)], oracle=reorganized),
    Case("reorg as by OpenCV", "Reorg reorg_param { stride: 2 }", [(1, 8, 4, 6)]),
    Case(
        "interpolation to a bottom",
        "Interp",
        [(1, 1, 2, 3), (1, 2, 2, 5)],
        oracle=lambda x, _: (x[..., [0, 0, 1, 1, 2]] + x[..., [0, 1, 1, 2, 2]]) / 2,
    ),
    Case(
        "interpolation by one factor",
        "Interp interp_param { zoom_factor: 2 height: 9 width: 9 }",
        [(1, 1, 1, 3)],
        oracle=lambda x: (x[..., [0, 0, 1, 1, 2]] + x[..., [0, 1, 1, 2, 2]]) / 2,
    ),
    Case("interpolation", "Interp interp_param { height: 9 width: 7 }", [IMAGE]),
    Case(
        "interpolation zoom",
        "Interp interp_param { zoom_factor: 3 }",
        [IMAGE],
        oracle=lambda x: corners(x, 10, 13),
    ),
    Case(
        "interpolation shrink",
        "Interp interp_param { shrink_factor: 2 }",
        [(1, 2, 7, 9)],
        oracle=lambda x: corners(x, 4, 5),
    ),
    Case(
        "interpolation of a part",
        "Interp interp_param { height: 5 width: 5 pad_beg: -1 pad_end: -1 }",
        [(1, 2, 7, 9)],
        oracle=lambda x: corners(x[:, :, 1:-1, 1:-1], 5, 5),
    ),
    Case(
        "upsample",
        "Upsample upsample_param { scale: 3 }",
        [IMAGE],
        oracle=lambda x: x.repeat(3, 2).repeat(3, 3),
    ),
    Case(
        "unpool",
        "Upsample upsample_param { scale: 2 }",
        [(2, 3, 2, 3)] * 2,
        oracle=unpooled,
        arrays={"x1": PLACES},
    ),
    Case("nearest", "ResizeNearest", [IMAGE], oracle=lambda x: x.repeat(2, 2).repeat(2, 3)),
    Case(
        "nearest sides",
        "ResizeNearest resize_nearest_param { height_scale: 3 width_scale: 1.6 }",
        [IMAGE],
        oracle=lambda x: x.repeat(3, 2)[..., (np.arange(8) * 5 // 8)],
    ),
    Case(
        "batch",
        "BatchReindex",
        [IMAGE, (3,)],
        oracle=lambda x, at: x[at.astype(int)],
        arrays={"x1": np.float32([1, 0, 1])},
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_layer(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)

"""Operators that read images at positions known at run time, or by window, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from runtime_cases import RuntimeCase, normal

GRID = "float[2,3,6,5] x, float[2,4,7,2] g"
FAR_GRID = 1.5 * normal(2, 4, 7, 2)
"""Coordinates of which a half lie outside the image, where padding counts."""
ROIS = np.float32([[0, 0.5, 6, 5], [1, 2, 3, 4], [0, 0, 4, 3]])
NUMBERS = np.float32([[1], [0], [1]])
REGIONS = {"r": ROIS, "b": [1, 0, 1]}
ROI_ALIGN = "output_height=2, output_width=3, spatial_scale=0.5, sampling_ratio=2"
OFFSETS = {"o": normal(2, 18, 3, 2, seed=5) * np.float32(0.5), "w": normal(4, 3, 3, 3)}
DEFORM = "float[2,3,5,4] x"
BIG = {
    "x": "float[2,4,7,5] x",
    "o": normal(2, 24, 3, 3, seed=5) * np.float32(0.5),
    "m": np.abs(normal(2, 12, 3, 3, seed=6)),
    "w": normal(6, 2, 3, 2),
    "b": normal(6, seed=7),
}
COLUMNS = "float[2,12,12] x"
CASES = {
    **{
        f"grid {mode} {padding} {corners}": RuntimeCase(
            f'y = GridSample<mode="{mode}", padding_mode="{padding}", align_corners={corners}>(x, g)',
            GRID,
            opset=20,
            values={"g": FAR_GRID},
        )
        for mode in ("linear", "cubic", "nearest")
        for padding in ("zeros", "border", "reflection")
        for corners in (0, 1)
    },
    **{
        f"affine grid {size} {corners}": RuntimeCase(
            f"y = AffineGrid<align_corners={corners}>(t, s)",
            f"float[2,{len(size) - 2},{len(size) - 1}] t",
            {"s": list(size)},
            20,
        )
        for size in ((2, 3, 4, 5), (2, 3, 1, 5), (2, 3, 4, 1), (2, 1, 1, 1), (2, 3, 2, 3, 4), (2, 3, 1, 3, 1))
        for corners in (0, 1)
    },
    "grid by default": RuntimeCase("y = GridSample(x, g)", GRID, opset=16),
    "grid bilinear": RuntimeCase('y = GridSample<mode="bilinear">(x, g)', GRID, opset=16),
    "grid bicubic": RuntimeCase(
        'y = GridSample<mode="bicubic", padding_mode="border">(x, g)', GRID, opset=16, values={"g": FAR_GRID}
    ),
    "grid of microsoft": RuntimeCase("y = com.microsoft.GridSample(x, g)", GRID),
    "regions": RuntimeCase(f"y = RoiAlign<{ROI_ALIGN}>(x, r, b)", "float[2,3,6,7] x", REGIONS, 16),
    "regions of corners": RuntimeCase(
        f'y = RoiAlign<{ROI_ALIGN}, coordinate_transformation_mode="output_half_pixel">(x, r, b)',
        "float[2,3,6,7] x",
        REGIONS,
        16,
    ),
    "highest of regions": RuntimeCase(
        f'y = RoiAlign<{ROI_ALIGN}, mode="max", coordinate_transformation_mode="output_half_pixel">(x, r, b)',
        "float[2,3,6,7] x",
        REGIONS,
        16,
    ),
    **{
        f"regions larger than the image, {mode}": RuntimeCase(
            f'y = RoiAlign<output_height=1, output_width=2, sampling_ratio=0, mode="{mode}">(x, r, b)',
            "float[2,3,6,7] x",
            {"r": np.float32([[-1, -2, 7.5, 8.25], [0, 0, 40, 40], [2, -9, 3, 9]]), "b": [1, 0, 1]},
            16,
        )
        for mode in ("avg", "max")
    },
    "pool of regions": RuntimeCase(
        "y = MaxRoiPool<pooled_shape=[2,3], spatial_scale=0.75>(x, r)",
        "float[2,3,6,7] x",
        {"r": np.concatenate([NUMBERS, ROIS], 1)},
    ),
    "pool of computed regions": RuntimeCase(
        "y = MaxRoiPool<pooled_shape=[3,2]>(x, r)",
        "float[2,3,6,7] x, float[3,5] r",
        values={"r": np.concatenate([NUMBERS, ROIS], 1)},
    ),
    "deformed": RuntimeCase("y = DeformConv(x, w, o)", DEFORM, OFFSETS, 19),
    "deformed with computed weights": RuntimeCase(
        "y = DeformConv(x, w, o)", f"{DEFORM}, float[4,3,3,3] w", {"o": OFFSETS["o"]}, 19
    ),
    "deformed at computed places": RuntimeCase(
        "y = DeformConv<kernel_shape=[3,3]>(x, w, o)", f"{DEFORM}, float[2,18,3,2] o", {"w": OFFSETS["w"]}, 19
    ),
    "deformed in groups": RuntimeCase(
        "y = DeformConv<group=2, offset_group=2, strides=[2,1], dilations=[1,2], pads=[1,0,0,0]>(x, w, o, b, m)",
        BIG["x"],
        {**{key: BIG[key] for key in "wbm"}, "o": BIG["o"]},
        19,
    ),
    "deformed with a mask alone": RuntimeCase(
        "y = DeformConv<group=2, offset_group=2, strides=[2,1], dilations=[1,2], pads=[1,0,0,0]>(x, w, o, , m)",
        BIG["x"],
        {**{key: BIG[key] for key in "wm"}, "o": BIG["o"]},
        19,
    ),
    "columns": RuntimeCase("y = Col2Im(x, s, k)", COLUMNS, {"s": [4, 5], "k": [2, 2]}, 18),
    "columns apart": RuntimeCase(
        "y = Col2Im<strides=[2,1], pads=[1,0,0,2], dilations=[1,2]>(x, s, k)",
        "float[2,12,10] x",
        {"s": [5, 5], "k": [3, 2]},
        18,
    ),
    "columns of a line": RuntimeCase(
        "y = Col2Im<strides=[2]>(x, s, k)", "float[1,6,3] x", {"s": [7], "k": [3]}, 18
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_sampling_computes_what_onnx_runtime_does(name: str, tmp_path: Path) -> None:
    CASES[name].check(tmp_path / "m.onnx", rtol=1e-4, atol=2e-5)

"""Resizing, reductions and choices among boxes, each by itself, against LiteRT's plain kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from flatbuffers import flexbuffers
from tflite_cases import Case, check, const, f32, i8, ints
from tflite_write import Scales, Value

from mace_core.ir import DType

RESIZES = tuple(
    Case(
        f"resize {mode} {flags} {size}",
        f"RESIZE_{mode}",
        [f32(1, 5, 7, 3), const(*size)],
        (kind, dict.fromkeys(flags.split(), True)),
        tolerance=1e-5,
    )
    for mode, kind in (
        ("BILINEAR", "ResizeBilinearOptions"),
        ("NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions"),
    )
    for flags in ("", "AlignCorners", "HalfPixelCenters")
    for size in ((10, 14), (3, 11), (1, 1))
)
RESIZE = (
    *RESIZES,
    Case(
        "resize i8",
        "RESIZE_BILINEAR",
        [i8(1, 5, 7, 3), const(9, 9)],
        ("ResizeBilinearOptions", {"HalfPixelCenters": True}),
        [i8()],
    ),
    *(
        # Sizes for which coordinates are close to integers.
        Case(
            f"resize nearest {flags} {size}",
            "RESIZE_NEAREST_NEIGHBOR",
            [f32(1, *size[:2], 1), const(*size[2:])],
            ("ResizeNearestNeighborOptions", dict.fromkeys(flags.split(), True)),
        )
        for flags, size in (
            ("", (2, 3, 82, 123)),
            ("", (14, 20, 2, 12)),
            ("AlignCorners", (4, 8, 75, 47)),
            ("HalfPixelCenters", (2, 4, 41, 55)),
        )
    ),
    Case(
        "resize nearest i8",
        "RESIZE_NEAREST_NEIGHBOR",
        [i8(1, 5, 7, 3), const(9, 9)],
        ("ResizeNearestNeighborOptions", {}),
        [i8()],
    ),
)
SIGNED = Scales((1 / 128,), (0,))
AXES = const(1, -1)
REDUCE = (
    *(
        Case(f"{code} {keep}", code, [f32(2, 3, 4), AXES], ("ReducerOptions", {"KeepDims": keep}))
        for code in ("MEAN", "SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN")
        for keep in (True, False)
    ),
    *(
        Case(
            code,
            code,
            [ints(2, 3, 4, dtype=DType.BOOL), AXES],
            ("ReducerOptions", {}),
            [ints(dtype=DType.BOOL)],
            0,
            1,
        )
        for code in ("REDUCE_ANY", "REDUCE_ALL")
    ),
    *(
        Case(f"{code} i32", code, [ints(2, 3, 4), AXES], ("ReducerOptions", {}), [ints()])
        for code in ("SUM", "REDUCE_MAX", "REDUCE_PROD")
    ),
    *(
        Case(f"{code} i8", code, [i8(2, 3, 4), AXES], ("ReducerOptions", {}), [i8()])
        for code in ("REDUCE_MAX", "REDUCE_MIN")
    ),
    Case(
        "mean i8",
        "MEAN",
        [i8(2, 3, 4, 5), const(1, 2)],
        ("ReducerOptions", {"KeepDims": True}),
        [i8(scale=0.03)],
    ),
    Case(
        "mean u8",
        "MEAN",
        [i8(2, 3, 4, 5, dtype=DType.U8), const(1, 2)],
        ("ReducerOptions", {}),
        [i8(dtype=DType.U8)],
    ),
    Case("arg max", "ARG_MAX", [f32(3, 7), np.int32(-1)], ("ArgMaxOptions", {"OutputType": 2}), [ints()]),
    Case(
        "arg min",
        "ARG_MIN",
        [f32(3, 7), np.int32(0)],
        ("ArgMinOptions", {"OutputType": 4}),
        [ints(dtype=DType.I64)],
    ),
    Case("arg max i8", "ARG_MAX", [i8(3, 7), np.int32(1)], ("ArgMaxOptions", {"OutputType": 2}), [ints()]),
    Case(
        "cumsum", "CUMSUM", [f32(3, 7), np.int32(1)], ("CumsumOptions", {"Exclusive": True, "Reverse": True})
    ),
    Case("l2 norm i8", "L2_NORMALIZATION", [i8(3, 17)], None, [Value("", DType.I8, scales=SIGNED)]),
    Case(
        "local response",
        "LOCAL_RESPONSE_NORMALIZATION",
        [f32(1, 3, 4, 8)],
        ("LocalResponseNormalizationOptions", {"Radius": 2, "Bias": 1.5, "Alpha": 0.3, "Beta": 0.6}),
    ),
    Case(
        "local response of 3",
        "LOCAL_RESPONSE_NORMALIZATION",
        [f32(1, 3, 4, 8)],
        ("LocalResponseNormalizationOptions", {"Radius": 3, "Bias": 1.5, "Alpha": 0.3, "Beta": 0.6}),
    ),
)
OVERLAPPING = np.float32(
    [[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [0, 10.1, 1, 11.1], [0, 100, 1, 101]]
)
BOXES = (OVERLAPPING, f32(6), np.int32(4), np.float32(0.5), np.float32(0.2))
ANCHORS = np.float32(
    [
        [0.5, 0.5, 1, 1],
        [0.5, 1.5, 1, 1],
        [0.5, 2.5, 1, 1],
        [0.5, 10.5, 1, 1],
        [0.5, 10.6, 1, 1],
        [0.5, 100.5, 1, 1],
    ]
)
SSD = {
    "max_detections": 4,
    "max_classes_per_detection": 1,
    "detections_per_class": 3,
    "num_classes": 2,
    "nms_score_threshold": 0.1,
    "nms_iou_threshold": 0.5,
    "y_scale": 10.0,
    "x_scale": 10.0,
    "h_scale": 5.0,
    "w_scale": 5.0,
}
FOUND = (f32(1, 4, 4), f32(1, 4), f32(1, 4), f32(1))
DETECT = (
    Case("boxes", "NON_MAX_SUPPRESSION_V4", BOXES, None, (ints(4), ints()), low=0, high=1),
    Case(
        "boxes with scores",
        "NON_MAX_SUPPRESSION_V5",
        (*BOXES, np.float32(0)),
        None,
        (ints(4), f32(4), ints()),
        low=0,
        high=1,
    ),
    *(
        Case(
            f"detections {form}",
            "custom TFLite_Detection_PostProcess",
            [f32(1, 6, 4), f32(1, 6, 3), ANCHORS],
            outputs=FOUND,
            low=0,
            high=1,
            custom=bytes(flexbuffers.Dumps({**SSD, "use_regular_nms": form == "regular"})),
        )
        for form in ("regular", "fast")
    ),
)
CASES = (*RESIZE, *REDUCE, *DETECT)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_operator(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)

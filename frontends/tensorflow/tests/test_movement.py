"""Operators that move elements, make them up, or look them up, against TensorFlow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorflow_cases import Case, Frozen, Value, check, f32, floats, freeze, ints, raw, truths

from mace_core.errors import MaceError


def const(*values: Any) -> Any:
    """A constant of whole numbers."""
    return np.array(values, np.int32)


def sliced(name: str, shape: tuple[int, ...], subscript: Any) -> Case:
    """A tensor with Python's subscripts."""
    return Case(name, lambda tf, x: x[subscript], [f32(*shape)])


SHAPES = (
    raw("Reshape", f32(2, 3, 4), const(6, -1)),
    raw("Reshape", f32(2, 3, 4), const(2, 3, 4), name="Reshape to itself"),
    raw("ExpandDims", f32(2, 3), np.int32(1)),
    raw("ExpandDims", f32(2, 3), np.int32(-1), name="ExpandDims at the end"),
    raw("Squeeze", f32(1, 3, 1, 2)),
    raw("Squeeze", f32(1, 3, 1, 2), axis=[0], name="Squeeze one axis"),
    raw("Transpose", f32(2, 3, 4), const(2, 0, 1)),
    raw("Shape", f32(2, 3, 4)),
    raw("ShapeN", [f32(2, 3), f32(4)]),
    raw("Size", f32(2, 3)),
    raw("Rank", f32(2, 3)),
    raw("Fill", const(2, 3), np.float32(1.5)),
    raw("Fill", const(2, 3), f32(), name="Fill at run time"),
    raw("Range", np.int32(2), np.int32(11), np.int32(3)),
    raw("Range", np.float32(1), np.float32(-1), np.float32(-0.3), name="Range of floats"),
    raw("LinSpace", np.float32(0), np.float32(2), np.int32(5)),
    raw("ZerosLike", f32(2, 3)),
    raw("OnesLike", ints(2, 3)),
    raw("BroadcastTo", f32(3, 1), const(2, 3, 4)),
    raw("InvertPermutation", const(2, 0, 1)),
    raw("Where", np.array([[True, False], [True, True]])),
    raw("ListDiff", const(1, 2, 3, 4), const(2, 4)),
    raw("Unique", const(4, 1, 4, 2, 1)),
    raw("BroadcastArgs", const(3, 1), const(2, 1, 4)),
    Case(
        "shapes folded",
        lambda tf, x: tf.reshape(x, tf.concat([tf.shape(x)[:1], [tf.reduce_prod(tf.shape(x)[1:])]], 0)),
        [f32(2, 3, 4)],
    ),
)
PARTS = (
    raw("ConcatV2", [f32(2, 3), f32(2, 4)], np.int32(-1)),
    raw("Concat", np.int32(0), [f32(2, 3), f32(1, 3)]),
    raw("Pack", [f32(2, 3), f32(2, 3)], axis=1),
    raw("Pack", [f32(2, 3)], axis=0, name="Pack of one"),
    raw("Unpack", f32(2, 3), num=3, axis=1),
    raw("Unpack", f32(1, 3), num=1, axis=0, name="Unpack of one"),
    raw("Split", np.int32(1), f32(2, 6), num_split=3),
    raw("Split", np.int32(0), f32(2, 6), num_split=1, name="Split in one"),
    raw("SplitV", f32(2, 6), const(1, -1, 2), np.int32(-1), num_split=3),
    raw("Slice", f32(4, 5), const(1, 2), const(2, -1)),
    raw("Slice", f32(4, 5), const(0, 0), const(-1, -1), name="Slice of all"),
    sliced("subscripts", (4, 5, 6), (slice(1, None, 2), slice(None, None, -1), 3)),
    sliced("ellipsis", (4, 5, 6), (Ellipsis, slice(-3, -1))),
    sliced("new axes", (4, 5), (None, 1, slice(None), None)),
    sliced("ellipsis inside", (4, 5, 6, 2), (slice(0, 2), Ellipsis, None, 1)),
    sliced("empty", (4, 5), (slice(2, 2),)),
    raw(
        "StridedSlice",
        f32(4, 5, 6),
        const(1, 2, 0),
        const(3, 0, 4),
        const(1, -1, 2),
        begin_mask=4,
        end_mask=2,
        shrink_axis_mask=1,
    ),
    raw("Tile", f32(2, 3), const(2, 3)),
    raw("ReverseV2", f32(2, 3, 4), const(1, -1)),
    raw("Reverse", f32(2, 3, 4), np.array([True, False, True])),
    raw("ReverseSequence", f32(3, 5, 2), np.array([2, 5, 0], np.int64), seq_dim=1, batch_dim=0),
    raw("Roll", f32(3, 5), const(2, -1), const(1, 0)),
    raw("MatrixBandPart", f32(2, 4, 5), np.int32(1), np.int32(2)),
    raw("MatrixBandPart", f32(4, 4), np.int32(-1), np.int32(0), name="MatrixBandPart below"),
    raw("Pad", f32(2, 3), const([1, 0], [2, 1])),
    raw("PadV2", f32(2, 3), const([1, 0], [2, 1]), np.float32(1.5)),
    raw("PadV2", ints(3), const([1, 1]), np.int32(2**31 - 1), name="PadV2 with a wide integer"),
    raw("MirrorPad", f32(3, 4), const([2, 1], [0, 3]), mode="REFLECT"),
    raw("MirrorPad", f32(3, 4), const([2, 3], [0, 4]), mode="SYMMETRIC", name="MirrorPad symmetric"),
)
BLOCKS = (
    raw("SpaceToBatchND", f32(1, 5, 6, 3), const(2, 3), const([1, 0], [0, 0])),
    raw("BatchToSpaceND", f32(6, 3, 2, 3), const(2, 3), const([1, 0], [0, 2])),
    raw("SpaceToBatch", f32(1, 4, 6, 3), const([0, 0], [0, 0]), block_size=2),
    raw("BatchToSpace", f32(4, 2, 3, 3), const([0, 1], [1, 0]), block_size=2),
    raw("SpaceToDepth", f32(1, 4, 6, 3), block_size=2),
    raw("DepthToSpace", f32(1, 2, 3, 8), block_size=2),
    raw(
        "ExtractImagePatches",
        f32(1, 7, 6, 2),
        ksizes=[1, 3, 2, 1],
        strides=[1, 2, 1, 1],
        rates=[1, 1, 2, 1],
        padding="SAME",
    ),
    raw(
        "ExtractImagePatches",
        f32(1, 7, 6, 2),
        ksizes=[1, 3, 2, 1],
        strides=[1, 2, 1, 1],
        rates=[1, 2, 1, 1],
        padding="VALID",
        name="valid",
    ),
)
LOOKUPS = (
    raw("Gather", f32(5, 3), ints(4, high=4)),
    raw("GatherV2", f32(2, 5, 3), ints(4, 2, high=4), np.int32(1)),
    raw("GatherV2", f32(2, 5, 3), ints(2, 4, high=4), np.int32(1), batch_dims=1, name="GatherV2 in batches"),
    raw("GatherV2", f32(2, 3, 5, 4), ints(2, 6, high=4), np.int32(2), batch_dims=1, name="GatherV2 behind"),
    raw("GatherNd", f32(3, 4, 5), ints(2, 6, 2, high=2)),
    raw("ScatterNd", np.array([[1], [3], [1]], np.int32), f32(3, 4), const(5, 4)),
    *(
        raw(op, f32(5, 4), np.array([[1], [3]], np.int32), f32(2, 4))
        for op in ("TensorScatterUpdate", "TensorScatterAdd", "TensorScatterSub")
    ),
    *(
        raw(op, f32(5, 4), np.array([[1], [3], [1]], np.int32), f32(3, 4))
        for op in ("TensorScatterMax", "TensorScatterMin")
    ),
    raw("SparseToDense", const([0, 1], [2, 0]), const(3, 4), f32(2), np.float32(-1)),
    *(
        raw(f"UnsortedSegment{op}", f32(5, 2), const(0, 2, 0, -1, 2), np.int32(4))
        for op in ("Sum", "Prod", "Max", "Min")
    ),
    raw("SegmentSum", f32(5, 2), const(0, 0, 1, 1, 3)),
    raw("OneHot", ints(2, 3, low=-1, high=5), np.int32(4), np.float32(2), np.float32(-1)),
    raw(
        "OneHot", ints(2, 3, high=3), np.int32(4), np.float32(1), np.float32(0), axis=1, name="OneHot inside"
    ),
    raw("TopKV2", f32(3, 8), np.int32(3)),
    raw("DynamicStitch", [const(0, 3), const([2, 1])], [f32(2, 3), f32(1, 2, 3)]),
    raw("MatrixDiag", f32(2, 3)),
    raw("MatrixDiagPart", f32(2, 3, 4)),
    Case("tf.linalg.diag_part", lambda tf, x: tf.linalg.diag_part(x), [f32(2, 4, 4)]),
)
TABLE = 3e-3
"""TensorFlow looks its cubic kernel up in a table of 1024 entries (resize_bicubic_op.cc), whose slope is at most 1.5."""

SIZES = (
    *(
        raw(op, f32(1, 4, 6, 2), const(*size), name=f"{op} {size} {attrs}", tolerance=tolerance, **attrs)
        for op, tolerance in (
            ("ResizeBilinear", 1e-5),
            ("ResizeNearestNeighbor", 0),
            ("ResizeBicubic", TABLE),
        )
        for size in ((7, 9), (3, 4), (8, 12), (4, 6))
        for attrs in ({}, {"align_corners": True}, {"half_pixel_centers": True})
    ),
    *(
        # Sizes for which coordinates are close to integers.
        raw("ResizeNearestNeighbor", f32(1, *before, 1), const(*after), name=f"{before} to {after}", **attrs)
        for before, after, attrs in (
            ((2, 3), (82, 123), {}),
            ((14, 20), (2, 12), {}),
            ((4, 8), (75, 47), {"align_corners": True}),
            ((2, 4), (41, 55), {"half_pixel_centers": True}),
        )
    ),
    raw(
        "ResizeBilinear",
        ints(1, 3, 3, 1, high=99),
        const(5, 5),
        name="ResizeBilinear of integers",
        tolerance=1e-5,
    ),
    raw("ResizeArea", f32(1, 4, 6, 2), const(2, 2), name="ResizeArea of whole pixels"),
    raw("ResizeArea", f32(2, 4, 6, 2), const(7, 5), tolerance=1e-5),
    *(
        raw(
            *(
                "ScaleAndTranslate",
                f32(1, 7, 6, 2),
                const(4, 9),
                np.float32([4 / 7, 9 / 6]),
                np.float32([0.3, -0.5]),
            ),
            kernel_type=kernel,
            antialias=smooth,
            name=f"ScaleAndTranslate {kernel} {smooth}",
            tolerance=1e-5,
        )
        for kernel in (
            "lanczos1",
            "lanczos3",
            "lanczos5",
            "gaussian",
            "box",
            "triangle",
            "keyscubic",
            "mitchellcubic",
        )
        for smooth in (True, False)
    ),
    raw(
        "CropAndResize",
        f32(2, 5, 6, 3),
        np.array([[0, 0, 1, 1], [0.1, -0.2, 0.9, 1.3], [0.8, 0.9, 0.2, 0.1]], np.float32),
        const(0, 1, 0),
        const(3, 4),
        extrapolation_value=0.5,
        tolerance=1e-5,
    ),
    raw(
        "CropAndResize",
        f32(2, 6, 8, 2),
        np.array([[0.1, 0.2, 1, 1], [0.9, 1, 0, 0], [0.5, 0.1, 1, 0.9]], np.float32),
        const(0, 1, 0),
        const(8, 4),
        extrapolation_value=5.0,
        tolerance=1e-5,
        name="border",
    ),
    # Places on both borders, which no other end of the region alone leaves where TensorFlow has them.
    raw(
        "CropAndResize",
        f32(1, 2, 2, 1),
        np.array([[-2, 2.8, 1.6, -0.8]], np.float32),
        const(0),
        const(10, 7),
        extrapolation_value=5.0,
        tolerance=1e-5,
        name="borders",
    ),
    raw(
        "CropAndResize",
        f32(1, 5, 6, 3),
        np.array([[0, 0, 1, 0.7]], np.float32),
        const(0),
        const(3, 1),
        method="nearest",
        name="nearest",
    ),
)
CASES = (*SHAPES, *PARTS, *BLOCKS, *LOOKUPS, *SIZES)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_operator(case: Case, tmp_path: Path, tf: Any) -> None:
    check(case, tmp_path, tf)


BOXES = np.array(
    [[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 0.9, 1, 1.9], [2, 2, 3, 3], [2, 2.05, 3, 3.1], [5, 5, 6, 6]],
    np.float32,
)


@pytest.mark.parametrize("form", ["", "V2", "V3", "V4", "V5"])
def test_best_of_boxes_that_overlap(form: str, tmp_path: Path, tf: Any) -> None:
    """As many as can be: TensorFlow's own result is the beginning."""
    attrs = {
        "": {"iou_threshold": 0.5},
        "V4": {"pad_to_max_output_size": True},
        "V5": {"pad_to_max_output_size": True},
    }.get(form, {})
    operands = {"V2": [np.float32(0.5)], "V3": [np.float32(0.5), np.float32(0.3)]}.get(form, [])
    operands = (
        [np.float32(0.5), np.float32(0.3), *([np.float32(0)] if form == "V5" else [])]
        if form in ("V4", "V5")
        else operands
    )
    case = raw(f"NonMaxSuppression{form}", BOXES, Value((6,), low=0, high=1), np.int32(8), *operands, **attrs)
    frozen, arrays = freeze(case, tmp_path, tf), case.arrays()
    actual, expected = computed(frozen, arrays), frozen.expected(arrays)
    for name, array in expected.items():
        length = (
            len(array)
            if form not in ("V4", "V5")
            else min(len(array), len(np.atleast_1d(actual[name])))
            if array.ndim
            else None
        )
        np.testing.assert_allclose(
            actual[name][:length] if array.ndim else actual[name],
            array[:length] if array.ndim else array,
            atol=1e-6,
        )


@pytest.mark.parametrize("form", ["V3", "V5", "padded"])
def test_boxes_that_the_model_looks_up(form: str, tmp_path: Path, tf: Any) -> None:
    """TensorFlow looks up the selected boxes alone, unless the node pads; our rows behind them are no boxes."""

    def compute(tf: Any, scores: Any) -> Any:
        boxes = tf.constant(BOXES)
        if form == "V3":
            selected = tf.image.non_max_suppression(boxes, scores, 8)
        else:
            options = {"pad_to_max_output_size": form == "padded", "soft_nms_sigma": 0.0}
            operands = {"max_output_size": 8, "iou_threshold": 0.5, "score_threshold": 0.3}
            selected, _, _ = tf.raw_ops.NonMaxSuppressionV5(boxes=boxes, scores=scores, **operands, **options)
        return tf.gather(boxes, selected)

    case = Case("lookup", compute, [Value((6,), low=0, high=1)])
    if form == "padded":
        check(case, tmp_path, tf)
        return
    with pytest.raises(
        MaceError, match=r"\(Gather\): it computes with boxes that a suppression selects.*; name the"
    ):
        freeze(case, tmp_path, tf).graph()


def computed(frozen: Frozen, arrays: Any) -> Any:
    from mace_core.run.reference import execute

    return execute(frozen.graph(), arrays)


def test_best_of_boxes_of_several_classes(tmp_path: Path, tf: Any) -> None:
    boxes = np.random.default_rng(0).uniform(0, 1, (1, 12, 1, 4)).astype(np.float32).cumsum(-1)
    operands = [np.int32(3), np.int32(5), np.float32(0.4), np.float32(0.2)]
    check(raw("CombinedNonMaxSuppression", boxes, Value((1, 12, 3), low=0, high=1), *operands), tmp_path, tf)


def test_large_constants_of_one_element_are_not_written_out(tmp_path: Path, tf: Any) -> None:
    case = Case("fill", lambda tf, x: x + tf.fill([1024, 1024], 2.0), [f32(1024, 1024)])
    graph = check(case, tmp_path, tf)
    assert sum(a.nbytes for a in graph.weights.values()) < 100


def test_unread_constants_stay_out(tmp_path: Path, tf: Any) -> None:
    graph = check(
        Case("transposed", lambda tf, x: x @ tf.transpose(tf.constant(floats(5, 4))), [f32(2, 4)]),
        tmp_path,
        tf,
    )
    assert [a.shape for a in graph.weights.values()] == [(4, 5)]


def test_truths_are_counted(tmp_path: Path, tf: Any) -> None:
    check(Case("any", lambda tf, x: [tf.reduce_any(x, 1), tf.reduce_all(x)], [truths(3, 4)]), tmp_path, tf)

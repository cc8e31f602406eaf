"""Operators that move elements, each by itself, against LiteRT's plain kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tflite_cases import Case, check, const, f32, floats, i8, ints, stored

from mace_core.ir import DType

MOVE = (
    Case("reshape", "RESHAPE", [f32(2, 3, 4), const(4, -1)]),
    Case(
        "reshape by options",
        "RESHAPE",
        [f32(2, 3, 4)],
        ("ReshapeOptions", {"NewShape": np.array([6, 4], "i4")}),
    ),
    Case("reshape i8", "RESHAPE", [i8(2, 3, 4), const(4, -1)], None, [i8()]),
    Case("squeeze", "SQUEEZE", [f32(1, 3, 1, 4)], ("SqueezeOptions", {"SqueezeDims": np.array([-2], "i4")})),
    Case("squeeze all", "SQUEEZE", [f32(1, 3, 1, 4)], ("SqueezeOptions", {})),
    Case("expand dims", "EXPAND_DIMS", [f32(3, 4), const(-1)]),
    Case("transpose", "TRANSPOSE", [f32(2, 3, 4), const(2, 0, 1)]),
    Case("transpose from the end", "TRANSPOSE", [f32(2, 3, 4), const(-1, 0, -2)]),
    Case("transpose a vector", "TRANSPOSE", [f32(3), const(-1)]),
    Case("transpose i8", "TRANSPOSE", [i8(2, 3, 4), const(2, 0, 1)], None, [i8()]),
    Case("concatenation", "CONCATENATION", [f32(2, 3), f32(2, 4)], ("ConcatenationOptions", {"Axis": -1})),
    Case(
        "concatenation i8",
        "CONCATENATION",
        [i8(2, 3), i8(2, 4)],
        ("ConcatenationOptions", {"Axis": 1}),
        [i8()],
    ),
    Case(
        "concatenation u8 of scales",
        "CONCATENATION",
        [i8(2, 30, dtype=DType.U8), i8(2, 40, scale=0.02, zero=99, dtype=DType.U8)],
        ("ConcatenationOptions", {"Axis": 1}),
        [i8(zero=9, dtype=DType.U8)],
    ),
    Case("concatenation of one", "CONCATENATION", [f32(2, 3)], ("ConcatenationOptions", {"Axis": -1})),
    Case("pack one", "PACK", [f32(2, 3)], ("PackOptions", {"Axis": -1, "ValuesCount": 1})),
    Case("pack", "PACK", [f32(2, 3), f32(2, 3)], ("PackOptions", {"Axis": -1, "ValuesCount": 2})),
    Case("pack i8", "PACK", [i8(2, 3), i8(2, 3)], ("PackOptions", {"Axis": 1, "ValuesCount": 2}), [i8()]),
    Case("unpack", "UNPACK", [f32(3, 2, 4)], ("UnpackOptions", {"Axis": 1, "Num": 2}), [f32(), f32()]),
    Case("unpack i8", "UNPACK", [i8(3, 2)], ("UnpackOptions", {"Axis": -1, "Num": 2}), [i8(), i8()]),
    Case("split", "SPLIT", [const(1), f32(2, 6)], ("SplitOptions", {"NumSplits": 3}), [f32()] * 3),
    Case("split in one", "SPLIT", [const(-1), f32(2, 6)], ("SplitOptions", {"NumSplits": 1}), [f32()]),
    Case(
        "split v",
        "SPLIT_V",
        [f32(2, 6), const(1, -1, 2), const(-1)],
        ("SplitVOptions", {"NumSplits": 3}),
        [f32()] * 3,
    ),
    Case("slice", "SLICE", [f32(3, 4, 5), const(1, 0, 2), const(2, -1, 2)]),
    Case("slice to the end", "SLICE", [f32(3, 4, 5), const(1, 0, 2), const(2, -1, -1)]),
    Case(
        "strided slice",
        "STRIDED_SLICE",
        [f32(3, 4, 5), const(0, 3, -1), const(2, 0, -5), const(1, -2, -1)],
        ("StridedSliceOptions", {"BeginMask": 1}),
    ),
    Case(
        "strided slice shrink",
        "STRIDED_SLICE",
        [f32(3, 4, 5), const(1, 0), const(2, 4), const(1, 2)],
        ("StridedSliceOptions", {"ShrinkAxisMask": 1, "EndMask": 2}),
    ),
    Case(
        "strided slice ellipsis",
        "STRIDED_SLICE",
        [f32(3, 4, 5), const(0, 1, 0), const(0, 3, 0), const(1, 1, 1)],
        ("StridedSliceOptions", {"EllipsisMask": 1, "NewAxisMask": 4}),
    ),
    Case(
        "strided slice by offsets",
        "STRIDED_SLICE",
        [f32(8, 5), const(2, 1), const(3, 2), const(1, 1)],
        ("StridedSliceOptions", {"Offset": True}),
    ),
    Case(
        "pad with a wide integer",
        "PADV2",
        [ints(3, dtype=DType.I64), const([1, 1]), np.int64(2**53 + 1)],
        None,
        [ints(dtype=DType.I64)],
    ),
    Case("pad", "PAD", [f32(2, 3), const([1, 0], [2, 3])]),
    Case("pad i8", "PAD", [i8(2, 3), const([1, 0], [2, 3])], None, [i8()]),
    Case("pad v2", "PADV2", [f32(2, 3), const([1, 0], [2, 3]), np.float32([7.5])]),
    Case(
        "pad v2 i8", "PADV2", [i8(2, 3), const([1, 0], [2, 3]), stored(np.array([20]), 0.05, 3)], None, [i8()]
    ),
    Case("mirror pad", "MIRROR_PAD", [f32(3, 4), const([1, 2], [2, 0])], ("MirrorPadOptions", {"Mode": 0})),
    Case(
        "mirror pad symmetric",
        "MIRROR_PAD",
        [f32(3, 4), const([1, 2], [2, 4])],
        ("MirrorPadOptions", {"Mode": 1}),
    ),
    Case(
        "mirror pad symmetric on one side",
        "MIRROR_PAD",
        [f32(3, 4, 2), const([0, 2], [3, 0], [0, 0])],
        ("MirrorPadOptions", {"Mode": 1}),
    ),
    Case("tile", "TILE", [f32(2, 3), const(2, 1)]),
    Case("gather", "GATHER", [f32(4, 3, 2), const([2, 0], [1, 1])], ("GatherOptions", {"Axis": 1})),
    Case(
        "gather batches",
        "GATHER",
        [f32(2, 4, 3), const([2, 0], [1, 1])],
        ("GatherOptions", {"Axis": 1, "BatchDims": 1}),
    ),
    Case(
        "gather inner batches",
        "GATHER",
        [f32(2, 3, 4), const([2, 0, 1], [1, 1, 3])],
        ("GatherOptions", {"Axis": 2, "BatchDims": 1}),
    ),
    Case(
        "gather inner batches before other axes",
        "GATHER",
        [f32(2, 3, 4, 2, 3), const([2, 0, 1], [1, 1, 3])],
        ("GatherOptions", {"Axis": 2, "BatchDims": 1}),
    ),
    Case("gather at run time", "GATHER", [f32(4, 3), ints(5)], ("GatherOptions", {"Axis": 0}), low=0, high=3),
    Case("gather i8", "GATHER", [i8(4, 3), const(2, 0)], ("GatherOptions", {"Axis": 0}), [i8()]),
    Case("gather nd", "GATHER_ND", [f32(4, 3, 2), const([2, 0], [1, 1])]),
    Case("embedding", "EMBEDDING_LOOKUP", [const(2, 0, 1), floats(4, 3)]),
    Case("scatter nd", "SCATTER_ND", [const([1], [3], [1]), f32(3, 4), const(5, 4)]),
    Case("depth to space", "DEPTH_TO_SPACE", [f32(1, 2, 3, 8)], ("DepthToSpaceOptions", {"BlockSize": 2})),
    Case("space to depth", "SPACE_TO_DEPTH", [f32(1, 4, 6, 3)], ("SpaceToDepthOptions", {"BlockSize": 2})),
    Case("space to batch", "SPACE_TO_BATCH_ND", [f32(1, 5, 6, 3), const(2, 3), const([1, 0], [0, 0])]),
    Case("batch to space", "BATCH_TO_SPACE_ND", [f32(6, 3, 2, 3), const(2, 3), const([1, 0], [0, 2])]),
    Case(
        "space to batch i8",
        "SPACE_TO_BATCH_ND",
        [i8(1, 5, 6, 3), const(2, 3), const([1, 0], [0, 0])],
        None,
        [i8()],
    ),
    Case("reverse", "REVERSE_V2", [f32(2, 3, 4), const(1)]),
    Case(
        "reverse sequence",
        "REVERSE_SEQUENCE",
        [f32(2, 5, 3), const(3, 5)],
        ("ReverseSequenceOptions", {"SeqDim": 1, "BatchDim": 0}),
    ),
    Case(
        "one hot",
        "ONE_HOT",
        [ints(2, 3), const(4, dtype="i4").reshape(()), np.float32(5), np.float32(-1)],
        ("OneHotOptions", {"Axis": 1}),
        low=0,
        high=3,
    ),
    Case(
        "one hot of indices outside",
        "ONE_HOT",
        [ints(7, 5), np.int32(4), np.float32(5), np.float32(-1)],
        ("OneHotOptions", {"Axis": -1}),
        low=-6,
        high=6,
    ),
    Case(
        "one hot of wide indices outside",
        "ONE_HOT",
        [ints(20, dtype=DType.I64), np.int32(3), np.int32(2), np.int32(7)],
        ("OneHotOptions", {"Axis": 0}),
        [ints()],
        low=-6,
        high=6,
    ),
    Case("top k", "TOPK_V2", [f32(3, 9), np.int32(4)], None, [f32(), ints()]),
    Case("top k i16", "TOPK_V2", [f32(9), np.int32(2)], None, [f32(), ints(dtype=DType.I16)]),
    Case("top k i8", "TOPK_V2", [i8(1, 9), np.int32(2)], None, [i8(), ints()]),
    Case("broadcast", "BROADCAST_TO", [f32(3, 1), const(2, 3, 4)], version=2),
    Case("fill", "FILL", [const(2, 3), np.float32(1.5)]),
    Case("zeros like", "ZEROS_LIKE", [f32(2, 3)]),
    Case("shape", "SHAPE", [f32(2, 3)], ("ShapeOptions", {"OutType": 2}), [ints()]),
    Case("rank", "RANK", [f32(2, 3)], None, [ints()]),
    Case("range", "RANGE", [np.int32(2), np.int32(11), np.int32(3)], None, [ints()]),
    Case("range f32", "RANGE", [np.float32(2), np.float32(0.4), np.float32(-0.5)]),
    *(
        Case(f"range f32 to {limit}", "RANGE", [np.float32(0), np.float32(limit), np.float32(step)])
        for limit, step in ((0.6, 0.2), (0.7, 0.1), (-0.6, -0.2), (1, 2))
    ),
    Case("matrix diagonal", "MATRIX_DIAG", [f32(2, 3)]),
    Case("matrix set diagonal", "MATRIX_SET_DIAG", [f32(2, 3, 4), f32(2, 3)]),
    Case("high matrix set diagonal", "MATRIX_SET_DIAG", [f32(2, 5, 3), f32(2, 3)]),
    Case(
        "sparse to dense",
        "SPARSE_TO_DENSE",
        [const([0, 1], [2, 3]), const(3, 4), f32(2), np.float32(0.5)],
        ("SparseToDenseOptions", {}),
    ),
    *(
        Case(
            f"sparse to dense, {kind}",
            "SPARSE_TO_DENSE",
            [places, const(5), values, np.float32(0.5)],
            ("SparseToDenseOptions", {}),
        )
        for kind, places, values in (
            ("one index", np.int32(3), np.float32(2)),
            ("a vector of indices", const(1, 4), f32(2)),
        )
    ),
    Case("dynamic update slice", "DYNAMIC_UPDATE_SLICE", [f32(5, 4), f32(2, 3), const(2, 1)]),
    Case(
        "dynamic update at run time", "DYNAMIC_UPDATE_SLICE", [f32(5, 4), f32(2, 3), ints(2)], low=0, high=4
    ),
    Case("broadcast args", "BROADCAST_ARGS", [const(3, 1), const(2, 1, 4)], None, [ints()]),
    Case("where constant", "WHERE", [np.array([[True, False], [True, True]])], None, [ints(dtype=DType.I64)]),
    Case(
        "unique constant",
        "UNIQUE",
        [const(3, 1, 3, 7, 1)],
        ("UniqueOptions", {"IdxOutType": 2}),
        [ints(), ints()],
    ),
    Case("segment sum", "SEGMENT_SUM", [f32(5, 2), const(0, 0, 1, 2, 2)]),
    *(
        Case(
            f"unsorted segment {kind}",
            f"UNSORTED_SEGMENT_{kind}",
            [f32(5, 2), const(2, 0, 1, 2, -1), np.int32(4)],
        )
        for kind in ("SUM", "PROD", "MAX", "MIN")
    ),
    Case(
        "bucketize",
        "BUCKETIZE",
        [f32(3, 9)],
        ("BucketizeOptions", {"Boundaries": np.float32([-1, 0, 0.5])}),
        [ints()],
    ),
    Case("bitcast", "BITCAST", [floats(3, 5)], None, [ints()]),
)
CASES = MOVE


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_operator(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)

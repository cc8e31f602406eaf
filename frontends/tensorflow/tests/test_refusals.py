"""What the handlers refuse: a table of operations, each with the message that names its fault and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorflow_graphs import make_graph

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ops import core_ops
from mace_frontend_tensorflow import TensorFlow
from mace_frontend_tensorflow.node import CUT_BEFORE as CUT
from mace_frontend_tensorflow.node import EXPORT_AGAIN as EXPORT

BATCH_NORM = "export the model for inference"
STORE = "store them as a constant"


def ints(*values: int) -> Any:
    return np.array(values, np.int32)


def scalar(value: float) -> Any:
    return np.array(value, np.int32 if isinstance(value, int) else np.float32)


def zeros(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


ROW, IMAGE, FILTERS = zeros(2, 3), zeros(1, 8, 8, 4), zeros(3, 3, 4, 2)
WINDOW = {"strides": [1, 2, 2, 1], "padding": "SAME"}
POOL = {"ksize": [1, 2, 2, 1], **WINDOW}
BOXES, SCORES = zeros(5, 4), zeros(5)

Row = (
    tuple[str, Sequence[Any], Mapping[str, Any], str] | tuple[str, Sequence[Any], Mapping[str, Any], str, str]
)
REFUSALS: Sequence[Row] = (
    ("Relu", (), {}, "it lacks input 0"),
    ("LeakyRelu", (ROW,), {"alpha": 1}, "attribute 'alpha' is 1"),
    # windows
    ("Conv2D", (zeros(2, 3), FILTERS), WINDOW, "its input has rank 2; it needs a batch"),
    ("Conv2D", (IMAGE, FILTERS), {"data_format": "NCHW_VECT_C"}, "data_format 'NCHW_VECT_C' is not", CUT),
    ("Conv2D", (IMAGE, zeros(3, 4, 2)), WINDOW, "its filters have rank 3, its input 4"),
    ("Conv2D", (IMAGE, zeros(3, 3, 4, 0)), WINDOW, "its filters are empty: [3, 3, 4, 0]"),
    ("Conv2D", (IMAGE, zeros(3, 3, 3, 2)), WINDOW, "its filters read 3 channels of 4"),
    ("Conv2D", (IMAGE, FILTERS), {**WINDOW, "strides": [1, 2]}, "it has strides [1, 2] for 4 axes"),
    (
        "Conv2D",
        (IMAGE, FILTERS),
        {**WINDOW, "strides": [2, 1, 1, 1]},
        "it has strides [2, 1, 1, 1], which must be 1 for batch and channels",
    ),
    (
        "Conv2D",
        (IMAGE, FILTERS),
        {**WINDOW, "strides": [1, 0, 1, 1]},
        "its strides are [0, 1]; each must be at least 1",
    ),
    (
        "Conv2D",
        (IMAGE, FILTERS),
        {**WINDOW, "dilations": [1, 0, 1, 1]},
        "its dilations are [0, 1]; each must be at least 1",
    ),
    ("Conv2D", (IMAGE, FILTERS), {**WINDOW, "padding": "ODD"}, "padding 'ODD' is not supported"),
    (
        "Conv2D",
        (IMAGE, FILTERS),
        {**WINDOW, "padding": "EXPLICIT", "explicit_paddings": [1, 1]},
        "it has explicit_paddings [1, 1] for 4 axes",
    ),
    (
        "Conv2DBackpropInput",
        (ints(8, 8), zeros(3, 3, 2, 3), IMAGE),
        WINDOW,
        "its filters read 3 channels of 4",
    ),
    (
        "Conv2DBackpropInput",
        (ints(8), zeros(3, 3, 2, 4), IMAGE),
        WINDOW,
        "its output size is [8] for 4 axes",
    ),
    (
        "Conv2DBackpropInput",
        (ints(30, 30), zeros(3, 3, 2, 4), IMAGE),
        {**WINDOW, "padding": "VALID"},
        "it makes an output of [30, 30] from [8, 8] with strides [2, 2]",
    ),
    (
        "DepthwiseConv2dNativeBackpropInput",
        (ints(8, 8), zeros(3, 3, 3, 2), IMAGE),
        WINDOW,
        "its filters read 6 channels of 4",
    ),
    (
        "MaxPoolV2",
        (IMAGE, ints(1, 2, 1), ints(1, 2, 2, 1)),
        {"padding": "SAME"},
        "it has a kernel of [2] and strides of [2, 2] for 4 axes",
    ),
    (
        "MaxPoolWithArgmax",
        (IMAGE,),
        {**POOL, "data_format": "NCHW"},
        "its data_format is not NHWC",
        CUT,
    ),
    # norms, reductions, products
    ("FusedBatchNormV3", (IMAGE,), {}, "it works in training mode", BATCH_NORM),
    ("Sum", (ROW, ints(2)), {}, "axis 2 of a tensor of rank 2"),
    ("ArgMax", (ROW, ints(0, 1)), {}, "its axis has 2 elements, expected one"),
    (
        "MatMul",
        (zeros(3), ROW),
        {},
        "its operands have ranks [1, 2]; each must have rows and columns",
    ),
    (
        "MatMul",
        (ROW, ints(1, 2).reshape(1, 2)),
        {},
        "its operands have two types",
        "cast them to one before it",
    ),
    ("Einsum", (ROW,), {"equation": "ab"}, "its equation 'ab' is for other than 1 operands"),
    (
        "Einsum",
        (ROW,),
        {"equation": "abc->a"},
        "its equation 'abc->a' does not fit operand 0 of rank 2",
    ),
    ("Einsum", (ROW,), {"equation": "a1->a"}, "its equation 'a1->a' is malformed"),
    ("Einsum", (ROW,), {"equation": "aa->a"}, "it takes a diagonal of axes of 2 and 3"),
    ("Einsum", (ROW,), {"equation": "ab->c"}, "no operand has axes ['c'] of its equation's result"),
    (
        "Einsum",
        (ROW, ROW),
        {"equation": "ab,bc->ac"},
        "axis 'b' of its equation has sizes 2 and 3",
    ),
    (
        "_FusedMatMul",
        (ROW, zeros(3, 2)),
        {"fused_ops": ["BiasAdd"]},
        "it has no operand for its step",
    ),
    # constants
    ("Fill", (ints(-1), scalar(1.0)), {}, "its shape is [-1]"),
    ("Fill", (ints(3), zeros(2)), {}, "it fills with 2 values"),
    ("Range", (scalar(0), scalar(9), scalar(0)), {}, "its delta is 0"),
    ("Range", (scalar(0), scalar(1 << 30), scalar(1)), {}, "it makes 1073741824 numbers", STORE),
    ("LinSpace", (scalar(0.0), scalar(1.0), scalar(0)), {}, "it makes 0 numbers", STORE),
    ("InvertPermutation", (ints(0, 2),), {}, "[0, 2] is no permutation"),
    # movement
    ("Reshape", (ROW, ints(-1, -1)), {}, "its shape is [-1, -1]"),
    ("Reshape", (ROW, ints(7)), {}, "[2, 3] does not fill a shape of [7]"),
    ("Squeeze", (ROW,), {"squeeze_dims": [0]}, "axes [0] of [2, 3] are not all 1 long"),
    ("Transpose", (ROW, ints(0, 0)), {}, "it permutes a tensor of rank 2 by [0, 0]"),
    ("ConcatV2", (scalar(0),), {}, "it joins nothing"),
    ("Pack", (), {}, "it joins nothing"),
    ("Unpack", (ROW,), {"num": 3}, "axis 0 has 2 parts, but it states 3"),
    (
        "Split",
        (scalar(1), ROW),
        {"num_split": 2},
        "3 elements along axis 1 do not make 2 equal parts",
    ),
    (
        "SplitV",
        (ROW, ints(1, 1), scalar(1)),
        {},
        "its sizes [1, 1] do not add up to 3 elements of axis 1",
    ),
    ("Slice", (ROW, ints(0), ints(1)), {}, "it has starts [0] and sizes [1] for a shape of [2, 3]"),
    (
        "StridedSlice",
        (ROW, ints(0), ints(1, 1), ints(1)),
        {},
        "it has 1 begins, 2 ends and 1 strides",
    ),
    ("Pad", (ROW, ints(1, 1)), {}, "it has paddings [1, 1] for 2 axes"),
    (
        "MirrorPad",
        (ROW, ints(0, 0, 0, 0).reshape(2, 2)),
        {"mode": "ODD"},
        "mode 'ODD' is not supported",
    ),
    (
        "MirrorPad",
        (ROW, ints(0, 0, 4, 0).reshape(2, 2)),
        {"mode": "SYMMETRIC"},
        "it mirrors 4 elements of 3 along axis 1",
    ),
    (
        "SpaceToBatchND",
        (IMAGE, ints(2, 2), ints(-1, 0, 0, 0).reshape(2, 2)),
        {},
        "its paddings are [[-1, 0], [0, 0]]; it needs pairs that are not negative",
    ),
    # indices
    (
        "GatherV2",
        (ROW, ints(0), scalar(1)),
        {"batch_dims": 2},
        "it has 2 batch dimensions before axis 1",
    ),
    ("ScatterNd", (ints(0), zeros(1), ints(-2)), {}, "its shape is [-2]"),
    (
        "SparseToDense",
        (ints(0, 1, 2), ints(4, 4), zeros(3), scalar(0.0)),
        {},
        "it has indices of shape [3] for a result of [4, 4]",
    ),
    ("SegmentSum", (ROW, ints(0, 1, 1)), {}, "it has segments of shape [3] for data of [2, 3]"),
    ("UnsortedSegmentSum", (ROW, ints(0, 1), scalar(-1)), {}, "it has -1 segments"),
    ("DynamicStitch", (ints(0, 2), zeros(2, 3)), {}, "its indices [0, 2] leave gaps"),
    ("MatrixDiagPartV2", (ROW, ints(1)), {}, "it has diagonals besides the main one", CUT),
    ("ResourceGather", (ROW, ints(1)), {"batch_dims": 1}, "it has batch dimensions before the rows", CUT),
    # images
    ("ResizeBilinear", (IMAGE, ints(0, 4)), {}, "images of shape [1, 8, 8, 4] are resized to [0, 4]"),
    (
        "ResizeBilinear",
        (IMAGE, ints(4, 4)),
        {"align_corners": True, "half_pixel_centers": True},
        "it has align_corners and half_pixel_centers, which exclude each other",
    ),
    (
        "CropAndResize",
        (IMAGE, zeros(2, 4), ints(0), ints(2, 2)),
        {},
        "it has 1 images for boxes of shape [2, 4]",
    ),
    (
        "CropAndResize",
        (IMAGE, zeros(1, 4), ints(1), ints(2, 2)),
        {},
        "its boxes lie in images [1] of 1",
    ),
    (
        "CropAndResize",
        (IMAGE, zeros(1, 4), ints(0), ints(2, 2)),
        {"method": "area"},
        "method 'area' is not supported",
        CUT,
    ),
    (
        "ExtractImagePatches",
        (IMAGE,),
        {"ksizes": [2, 2]},
        "it has ksizes, strides and rates [[2, 2],",
    ),
    ("ExtractImagePatches", (IMAGE,), {"padding": "ODD"}, "padding 'ODD' is not supported"),
    ("ResizeArea", (ROW, ints(4, 4)), {}, "images of shape [2, 3] are resized to [4, 4]"),
    (
        "ResizeArea",
        (IMAGE, ints(1 << 20, 4)),
        {},
        "images of shape [1, 8, 8, 4] are resized to [1048576, 4], which is too large",
        "use bilinear interpolation",
    ),
    (
        "ScaleAndTranslate",
        (IMAGE, ints(4, 4), zeros(2), zeros(2)),
        {},
        "it has scales [0.0, 0.0] and translations [0.0, 0.0]",
    ),
    (
        "ScaleAndTranslate",
        (IMAGE, ints(4, 4), zeros(2), zeros(2)),
        {"kernel_type": "odd"},
        "kernel 'odd' is not supported",
    ),
    # boxes
    (
        "NonMaxSuppressionV3",
        (zeros(4), SCORES, scalar(3), scalar(0.5), scalar(0.0)),
        {},
        "it chooses 3 of boxes of shape [4]; the maximum is 1048576",
    ),
    (
        "NonMaxSuppressionV5",
        (BOXES, SCORES, scalar(3), scalar(0.5), scalar(0.0), scalar(0.5)),
        {},
        "its scores fall with overlap (Soft-NMS)",
        CUT,
    ),
    (
        "NonMaxSuppressionV3",
        (BOXES, SCORES, scalar(3), zeros(2)),
        {},
        "its overlap has 2 elements, expected one",
    ),
    (
        "CombinedNonMaxSuppression",
        (zeros(1, 5, 1, 4), zeros(1, 5, 2), scalar(0), scalar(3), scalar(0.5), scalar(0.0)),
        {},
        "it chooses 0 boxes of a class and 3 in all; the maximum is 1048576",
    ),
    # quantization
    ("FakeQuantWithMinMaxArgs", (ROW,), {"num_bits": 1}, "1 bits are not supported", "train with 2 to 16"),
    ("FakeQuantWithMinMaxArgs", (ROW,), {"num_bits": 17}, "17 bits are not supported", "train with 2 to 16"),
    (
        "FakeQuantWithMinMaxVarsPerChannel",
        (ROW, scalar(-1.0), scalar(1.0)),
        {},
        "its range has shapes [] and []",
    ),
    (
        "QuantizeAndDequantizeV2",
        (ROW, scalar(-1.0), scalar(1.0)),
        {"round_mode": "HALF_UP"},
        "it does not round halves to even integers",
        CUT,
    ),
    (
        "QuantizeAndDequantizeV2",
        (ROW, zeros(3), zeros(3)),
        {"range_given": True},
        "its range has shapes [3] and [3]",
    ),
    # lists, elements, control
    ("TensorListLength", (ROW,), {}, "its input 0 is no list of tensors"),
    (
        "TensorListReserve",
        (ints(2), scalar(-1)),
        {},
        "it makes a list of -1 items; the maximum is 65536",
        CUT,
    ),
    ("TensorListFromTensor", (scalar(1.0),), {}, "it makes a list of the rows of []", CUT),
    ("Bucketize", (ROW,), {}, "it has no boundaries"),
    ("Const", (), {}, "it has no value"),
    ("VarHandleOp", (), {}, "its value is not stored; freeze the graph, or keep the folder", ""),
    ("RandomStandardNormal", (ints(2),), {}, "it draws random numbers for another purpose", ""),
    ("Mfcc", (ROW,), {}, "audio feature extraction is not supported; cut the graph after it", ""),
    ("GRUBlockCell", (ROW, ROW), {}, "it has 0 weights and biases; it needs 4"),
    (
        "BlockLSTM",
        (scalar(5), zeros(4, 1, 2), zeros(1, 3)),
        {},
        "it has 5 of 4 steps; the maximum is 4096",
    ),
)


@pytest.mark.parametrize("row", REFUSALS, ids=[f"{row[0]} {row[3]}" for row in REFUSALS])
def test_operation_is_refused(row: Row, tmp_path: Path) -> None:
    """A row: operator, operands, attributes, problem, and the remedy if it is another than exporting again."""
    op, inputs, attrs, problem, *remedies = row
    message = refusal_of(make_graph(op, inputs, attrs), tmp_path)
    assert message.startswith(f"model.pb: node 'y' ({op}): {problem}"), message
    assert message.endswith("".join(remedies) if remedies else f"; {EXPORT}"), message
    assert "; " in message
    assert "\n" not in message


def refusal_of(graph: Any, folder: Path) -> str:
    file = folder / "model.pb"
    file.write_bytes(graph.SerializeToString())
    with pytest.raises(MaceError) as error:
        TensorFlow().load((file,), Model("m", (file,)), core_ops())
    return str(error.value)

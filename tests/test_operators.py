"""The predecessors' operators: each is an op here, or has its line on the page of those that are not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mace_core.ops import core_ops

PAGE = Path(__file__).parents[1] / "docs" / "operators-left-out.md"
LEAST = 130

MACE = """
Activation AddN ArgMax BatchNorm BatchToSpaceND BiasAdd BufferTransform Cast ChannelShuffle Concat Conv2D Crop Cumsum Deconv2D
DepthToSpace DepthwiseConv2d DepthwiseDeconv2d Dequantize DetectionOutput DynamicLSTM Eltwise ExpandDims ExtractImagePatches
ExtractPooling Fill FullyConnected Gather GroupNorm Identity IfDefined InferConv2dShape InstanceNorm KaldiBatchNorm LocalResponseNorm
LpNorm LSTMCell LSTMNonlinear MatMul MVNorm NonlocalReshape OneHot Pad PadContext PNorm Pooling PriorBox Quantize Reduce ReplaceIndex
Reshape ResizeBicubic ResizeBilinear ResizeNearestNeighbor Reverse ScalarMath Select Shape Slice Softmax SpaceToBatchND SpaceToDepth
Splice Split SqrDiffMean Squeeze Stack StridedSlice Subsample SumGroup TargetRMSNorm Tile Transpose Unsqueeze Unstack Where
"""
BOLT = """
Conv Deconv FC RNN MatMul Resize BilateralSliceApply Pooling UnPooling Scale PRelu BatchNorm LayerNorm InstanceNorm L2Norm Reduction
ArgMax TopK Softmax LogSoftmax SoftmaxWithLoss Clip Power Sigmoid Relu Relu6 HSwish HSwishNoDiv HSigmoid Gelu TanH Mish Elu Swish Softplus
Exp Log Sin Cos Abs Neg Sign Not Round Floor Ceil Reciprocal Erf Gather Embedding OneHot Scatter Expand Select Where Check Greater Pad
Eltwise SqDiff Cum Einsum Concat Slice TfSlice Split Splice Tdnn Tile Cast Shape ConstantOfShape Constant Range Random NonZero Transpose
Reshape Flatten Squeeze Unsqueeze Space2Depth Depth2Space SpaceToBatchNd BatchToSpaceNd ChannelResize PreAllocatedMemory SharedWeight Copy
Repeat Jump Attention AttentionMask RelativePositionEmbedding RelativeShift MultiHeadAttention GAT PriorBox DetectionOutput
Yolov3DetectionOutput GenerateProposals RoIAlign NonMaxSuppression GridSample Dropout QuantizeLinear ConvertColor Lut LutPreprocess
"""


@pytest.mark.parametrize(("names", "count"), [(MACE, 75), (BOLT, 109)], ids=["mace", "bolt"])
def test_every_operator_has_its_place(names: str, count: int) -> None:
    ops = {name.lower() for name in core_ops()}
    rows = re.findall(r"^\| ([^|]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    told = {word.lower() for row in rows for word in re.findall(r"\w+", row)}
    assert len(names.split()) == count
    assert [n for n in names.split() if n.lower() not in ops | told] == []


def test_there_are_as_many_ops_as_promised() -> None:
    assert len(core_ops()) >= LEAST

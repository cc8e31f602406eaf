"""The version of an operator: the first in which its kernels knew what this node needs.

The numbers are those that TensorFlow's converter writes (tensorflow/lite/tools/versioning/op_version.cc). A
runtime refuses a version that it does not know, so none is higher than the node needs.

ADD and MUL of half precision keep version 1 and not 6 and 8, which op_version.cc has since the CPU got
kernels: such a node is for an accelerator, and a runtime without these kernels would refuse the file before
it asks the accelerator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.ir import DType, Tensor

I8, I16, I32, I64, U8 = DType.I8, DType.I16, DType.I32, DType.I64, DType.U8

_BYTES: Mapping[DType, int] = MappingProxyType({I8: 2})
_WIDE_TOO: Mapping[DType, int] = MappingProxyType({I8: 2, I16: 3})
_WIDE_LATER: Mapping[DType, int] = MappingProxyType({I8: 2, I16: 4})
# Activations of 16 bits beside int8 weights have no version of their own in op_version.cc.
_CONVOLUTION: Mapping[DType, int] = MappingProxyType({I8: 3})
# The same types of operands and results count, and the highest version of the two.
_CAST: Mapping[DType, int] = MappingProxyType({DType.F16: 5, DType.F64: 5, DType.U16: 4, I8: 3, DType.U32: 2})

BY_TYPE: Mapping[str, Mapping[DType, int]] = MappingProxyType(
    {
        **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D"), _CONVOLUTION),
        **dict.fromkeys(("MAX_POOL_2D", "AVERAGE_POOL_2D", "SOFTMAX", "MIRROR_PAD"), _WIDE_TOO),
        **dict.fromkeys(("MEAN", "REDUCE_MAX", "REDUCE_MIN", "RELU6", "RSQRT"), _WIDE_TOO),
        **dict.fromkeys(("CONCATENATION", "PAD", "PADV2", "TANH", "LOGISTIC"), _WIDE_TOO),
        **dict.fromkeys(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "MAXIMUM"), _WIDE_LATER),
        **dict.fromkeys(("SPACE_TO_DEPTH", "DEPTH_TO_SPACE", "SUM", "LOG_SOFTMAX", "SPLIT_V"), _BYTES),
        **dict.fromkeys(("EXP", "LOG"), _BYTES),
        "FULLY_CONNECTED": {I8: 4},
        "ADD": {I8: 2, I16: 3, I64: 4},
        "SUB": {I8: 2, I16: 5, I64: 4},
        "MUL": {I8: 2, I16: 4, I64: 5},
        "MINIMUM": {I8: 2, I16: 4},
        "RELU": {I8: 2, U8: 2, I16: 3},
        "LEAKY_RELU": {I16: 2},
        "GELU": _BYTES,
        "ABS": {I8: 2, I16: 3},
        "TRANSPOSE": {I8: 2, I16: 5, DType.BOOL: 3},
        "SLICE": {I8: 2, I16: 4},
        "STRIDED_SLICE": {I8: 2, DType.BOOL: 3},
        "SPLIT": {I8: 2, I32: 3, I16: 4},
        "TILE": {I8: 3},
        "GATHER": {I8: 2, DType.BOOL: 3, I16: 4},
        "DEQUANTIZE": {I8: 2, I16: 3, DType.F16: 3},
        "CAST": _CAST,
    }
)
"""Operator -> type of its first input -> version, where it is not 1."""

BY_RESULT: Mapping[str, Mapping[DType, int]] = MappingProxyType({"CAST": _CAST, "QUANTIZE": {I16: 2}})
"""Operator -> type of its first output -> version, for operators that convert; where it is not 1."""


def version_of(
    code: str, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor], options: Mapping[str, Any]
) -> int:
    """Return the version of an operator with these inputs, outputs and options."""
    first = inputs[0]
    assert first is not None
    by_type = BY_TYPE.get(code, {}).get(first.dtype, 1)
    by_result = BY_RESULT.get(code, {}).get(outputs[0].dtype, 1)
    rank = max(len(t.shape) for t in inputs if t)
    by_shape = _version_for_shapes(code, rank)
    by_product = _version_for_product(code, inputs, outputs[0])
    return max(by_type, by_result, by_shape, by_product, _version_for_options(code, inputs, options))


def _version_for_shapes(code: str, rank: int) -> int:
    """Return the version that a number of axes demands."""
    versions = [version for axes, version in BY_RANK.get(code, ()) if rank > axes]
    return max(versions, default=1)


BY_RANK: Mapping[str, Sequence[tuple[int, int]]] = MappingProxyType(
    {
        **dict.fromkeys(("PAD", "PADV2", "STRIDED_SLICE"), ((4, 4),)),
        "TRANSPOSE": ((4, 4), (5, 6)),
        "SLICE": ((4, 5),),
    }
)
"""Operator -> numbers of axes, and the version that more of them demand."""


def _version_for_options(code: str, inputs: Sequence[Tensor | None], options: Mapping[str, Any]) -> int:
    """Return the version that options, or a relation of operands, demand."""
    first, second = inputs[0], inputs[1] if len(inputs) > 1 else None
    assert first is not None
    if code == "CONV_2D":
        # In groups, the filters see a part of the channels.
        return 6 if second is not None and second.shape[-1] != first.shape[-1] else 1
    if code == "DEPTHWISE_CONV_2D":
        return 2 if (options["DilationHFactor"], options["DilationWFactor"]) != (1, 1) else 1
    if code == "FULLY_CONNECTED":
        # Version 6 allows to leave out the bias, which the writer always states.
        return 5 if options["KeepNumDims"] else 1
    if code == "TRANSPOSE_CONV":
        # A fused activation came after the bias, which the writer always states.
        return 4 if options["FusedActivationFunction"] else 3
    if code in ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"):
        aligned = code == "RESIZE_NEAREST_NEIGHBOR" and options["AlignCorners"]
        return 3 if options["HalfPixelCenters"] or aligned else 1
    return 1


def _version_for_product(code: str, inputs: Sequence[Tensor | None], result: Tensor) -> int:
    """Return 3 for a MUL whose kernel multiplies sums by 1 or more, which earlier ones could not; else 1."""
    quants = [tensor.quant for tensor in (*inputs, result) if tensor]
    if code != "MUL" or None in quants:
        return 1
    # In single precision, as op_version.cc computes it from the scales that the file holds.
    a, b, y = (np.float32(quant.scale[0]) for quant in quants if quant)
    with np.errstate(over="ignore"):
        return 3 if a * b / y >= 1 else 1

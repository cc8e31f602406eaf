"""The version of an operator: the first in which its kernels knew what this node needs.

The numbers are those that TensorFlow's converter writes (tensorflow/lite/tools/versioning/op_version.cc). A
runtime refuses a version that it does not know, so none is higher than the node needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from mace_core.ir import DType, Tensor

I8, I16, I32, I64, U8 = DType.I8, DType.I16, DType.I32, DType.I64, DType.U8

BY_TYPE: Mapping[str, Mapping[DType, int]] = MappingProxyType(
    {
        "CONV_2D": {I8: 3},
        "DEPTHWISE_CONV_2D": {I8: 3},
        "FULLY_CONNECTED": {I8: 4},
        "ADD": {I8: 2, I16: 3, I64: 4},
        "SUB": {I8: 2, I16: 5, I64: 4},
        "MUL": {I8: 2, I16: 4, I64: 5},
        "MAX_POOL_2D": {I8: 2, I16: 3},
        "AVERAGE_POOL_2D": {I8: 2, I16: 3},
        "RELU": {I8: 2, U8: 2, I16: 3},
        "RELU6": {I8: 2, I16: 3},
        "SOFTMAX": {I8: 2, I16: 3},
        "MEAN": {I8: 2, I16: 3},
        "MIRROR_PAD": {I8: 2, I16: 3},
        "CONCATENATION": {I8: 2, I16: 3},
        "PAD": {I8: 2, I16: 3},
        "PADV2": {I8: 2, I16: 3},
        "TRANSPOSE": {I8: 2, I16: 5, DType.BOOL: 3},
        "DEQUANTIZE": {I8: 2, I16: 3, DType.F16: 3},
    }
)
"""Operator -> type of its first input -> version, where it is not 1."""


def version_of(code: str, inputs: Sequence[Tensor | None], options: Mapping[str, Any]) -> int:
    """Return the version of an operator with these inputs and options."""
    first = inputs[0]
    assert first is not None
    version = BY_TYPE.get(code, {}).get(first.dtype, 1)
    rank = max(len(t.shape) for t in inputs if t)
    return max(version, _version_for_shapes(code, rank), _version_for_options(code, inputs, options))


def _version_for_shapes(code: str, rank: int) -> int:
    """Return the version that a number of axes demands."""
    versions = [version for axes, version in BY_RANK.get(code, ()) if rank > axes]
    return max(versions, default=1)


BY_RANK: Mapping[str, Sequence[tuple[int, int]]] = MappingProxyType(
    {"PAD": ((4, 4),), "PADV2": ((4, 4),), "TRANSPOSE": ((4, 4), (5, 6))}
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
        return 5 if options["KeepNumDims"] else 1
    # A product of scales above the scale of the result is one of the cases that version 3 brought.
    return 3 if code == "MUL" and first.quant and first.dtype is not I16 else 1

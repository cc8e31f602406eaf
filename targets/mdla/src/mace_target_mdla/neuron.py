"""Numbers of the Neuron adapter: types of operands, codes of operations, padding and fused activations.

Source: NeuronAdapter.h of MediaTek's Neuron SDK as published with public software (its comments say for each
operation since which version the adapter has it). The numbers are those of Android's NNAPI.
"""

from __future__ import annotations

from enum import IntEnum

MAX_RANK = 8
"""Axes of an operand: more than any operation takes, and what the driver checks."""


class OperandType(IntEnum):
    """The type of an operand: a scalar, or a tensor of its elements."""

    FLOAT32 = 0
    INT32 = 1
    TENSOR_FLOAT32 = 3
    TENSOR_INT32 = 4
    TENSOR_QUANT8_ASYMM = 5
    BOOL = 6
    TENSOR_QUANT16_SYMM = 7
    TENSOR_FLOAT16 = 8
    TENSOR_BOOL8 = 9
    FLOAT16 = 10
    TENSOR_QUANT8_SYMM_PER_CHANNEL = 11
    TENSOR_QUANT8_ASYMM_SIGNED = 14


class NeuronOperation(IntEnum):
    """The operations that the adapter's header lists as available and that networks are made of here."""

    ADD = 0
    AVERAGE_POOL_2D = 1
    CONCATENATION = 2
    CONV_2D = 3
    DEPTHWISE_CONV_2D = 4
    DEPTH_TO_SPACE = 5
    DEQUANTIZE = 6
    FLOOR = 8
    FULLY_CONNECTED = 9
    L2_NORMALIZATION = 11
    L2_POOL_2D = 12
    LOGISTIC = 14
    MAX_POOL_2D = 17
    MUL = 18
    RELU = 19
    RELU1 = 20
    RELU6 = 21
    RESHAPE = 22
    RESIZE_BILINEAR = 23
    SOFTMAX = 25
    SPACE_TO_DEPTH = 26
    TANH = 28
    BATCH_TO_SPACE_ND = 29
    DIV = 30
    MEAN = 31
    PAD = 32
    SPACE_TO_BATCH_ND = 33
    SQUEEZE = 34
    STRIDED_SLICE = 35
    SUB = 36
    TRANSPOSE = 37
    ABS = 38
    ARGMAX = 39
    ARGMIN = 40
    CAST = 45
    EQUAL = 48
    EXP = 49
    EXPAND_DIMS = 50
    GATHER = 51
    GREATER = 53
    GREATER_EQUAL = 54
    LESS = 58
    LESS_EQUAL = 59
    LOGICAL_AND = 61
    LOGICAL_NOT = 62
    LOGICAL_OR = 63
    MAXIMUM = 65
    MINIMUM = 66
    NEG = 67
    NOT_EQUAL = 68
    PAD_V2 = 69
    POW = 70
    PRELU = 71
    QUANTIZE = 72
    REDUCE_MAX = 77
    REDUCE_MIN = 78
    REDUCE_SUM = 80
    RSQRT = 83
    SELECT = 84
    SLICE = 86
    SPLIT = 87
    SQRT = 88
    TILE = 89
    TRANSPOSE_CONV_2D = 91
    RESIZE_NEAREST_NEIGHBOR = 94
    HARD_SWISH = 99
    BATCH_MATMUL = 102


class Padding(IntEnum):
    """How a window is placed at the edges of an image."""

    SAME = 1
    VALID = 2


class FusedActivation(IntEnum):
    """The activation that an operation applies to its result."""

    NONE = 0
    RELU = 1
    RELU1 = 2
    RELU6 = 3

"""What each TFLite operator is in operations of the Neuron adapter, with its operands in the adapter's order.

Source of names and order: MediaTek's own delegate for TFLite, neuron/neuron_delegate_kernel.cc and
neuron_delegate_builder.h of github.com/MediaTek-NeuroPilot/tflite-neuron-delegate. The tests read the
networks by another source, Android's page of NNAPI operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import tflite

from mace_target_mdla.lite_model import LiteOperator, LiteTensor
from mace_target_mdla.network_table import NetworkTable
from mace_target_mdla.network_windows import (
    Lower,
    lower_convolution,
    lower_depthwise,
    lower_fully_connected,
    lower_pool,
    lower_transpose_convolution,
    make_error,
    read_activation,
)
from mace_target_mdla.neuron import FusedActivation, NeuronOperation


def _lower_plain(code: NeuronOperation) -> Lower:
    """Return a lowering of an operator whose operands are its tensors alone."""

    def lower(operator: LiteOperator, table: NetworkTable) -> None:
        table.call(code, [table.tensor(number) for number in operator.inputs], operator)

    return lower


def _lower_real(code: NeuronOperation) -> Lower:
    """Return a lowering as `_lower_plain` does, of an operation that NNAPI has for real numbers alone."""

    def lower(operator: LiteOperator, table: NetworkTable) -> None:
        _require_real(operator, table)
        _lower_plain(code)(operator, table)

    return lower


def _require_larger_scale(operator: LiteOperator, product: float, result: LiteTensor) -> None:
    """Raise MaceError where MUL of stored integers is not defined, see Android's page of it."""
    if result.scales and not result.scales[0] > product:
        problem = f"the scale of {result.name!r} is not larger than the product of those of its operands"
        raise make_error(operator, problem)


def _require_real(operator: LiteOperator, table: NetworkTable) -> None:
    if any(table.model.tensors[number].scales for number in operator.inputs):
        raise make_error(operator, "the adapter has it for real numbers, not for quantized ones")


def _lower_arithmetic(code: NeuronOperation, options: type) -> Lower:
    """Return a lowering of an operator of two tensors with a fused activation."""

    def lower(operator: LiteOperator, table: NetworkTable) -> None:
        if code is NeuronOperation.DIV:
            _require_real(operator, table)
        if code is NeuronOperation.MUL:
            scales = [table.model.tensors[number].scales or (0.0,) for number in operator.inputs]
            result = table.model.tensors[operator.outputs[0]]
            _require_larger_scale(operator, scales[0][0] * scales[1][0], result)
        fused = read_activation(operator, operator.options(options).FusedActivationFunction())
        operands = [table.tensor(number) for number in operator.inputs]
        table.call(code, [*operands, table.int32(fused)], operator)

    return lower


def _lower_concatenation(operator: LiteOperator, table: NetworkTable) -> None:
    options = operator.options(tflite.ConcatenationOptions)
    if options.FusedActivationFunction():
        # NNAPI's operation has no operand for one, and MediaTek's delegate refuses such files as well.
        raise make_error(operator, "the adapter joins tensors without an activation")
    axis = options.Axis() % len(table.model.tensors[operator.inputs[0]].shape)
    operands = [table.tensor(number) for number in operator.inputs]
    table.call(NeuronOperation.CONCATENATION, [*operands, table.int32(axis)], operator)


def _lower_reshape(operator: LiteOperator, table: NetworkTable) -> None:
    """Lower all that only changes the shape; the result's shape tells all that the options say."""
    shape = table.model.tensors[operator.outputs[0]].shape
    table.call(NeuronOperation.RESHAPE, [table.tensor(operator.inputs[0]), table.vector(shape)], operator)


def _lower_resize(code: NeuronOperation, options: type) -> Lower:
    def lower(operator: LiteOperator, table: NetworkTable) -> None:
        choices = operator.options(options)
        height, width = table.model.tensors[operator.outputs[0]].shape[1:3]
        # NNAPI names the width before the height, and its first flag says that the data are NHWC.
        flags = (False, bool(choices.AlignCorners()), bool(choices.HalfPixelCenters()))
        operands = [table.tensor(operator.inputs[0]), table.int32(width), table.int32(height)]
        table.call(code, [*operands, *map(table.boolean, flags)], operator)

    return lower


def _lower_softmax(operator: LiteOperator, table: NetworkTable) -> None:
    beta = operator.options(tflite.SoftmaxOptions).Beta()
    data = operator.inputs[0]
    operands = [table.tensor(data), table.real(beta, table.model.tensors[data])]
    table.call(NeuronOperation.SOFTMAX, operands, operator)


def _lower_block(code: NeuronOperation, options: type) -> Lower:
    def lower(operator: LiteOperator, table: NetworkTable) -> None:
        size = operator.options(options).BlockSize()
        table.call(code, [table.tensor(operator.inputs[0]), table.int32(size)], operator)

    return lower


def _lower_batch_to_space(operator: LiteOperator, table: NetworkTable) -> None:
    data, block, crops = operator.inputs
    if np.any(table.read(crops)):
        # NNAPI's operation has an operand for the block alone; the delegate takes crops of 0 only, too.
        raise make_error(operator, "the adapter does not crop")
    table.call(NeuronOperation.BATCH_TO_SPACE_ND, [table.tensor(data), table.tensor(block)], operator)


def _lower_reduction(code: NeuronOperation) -> Lower:
    def lower(operator: LiteOperator, table: NetworkTable) -> None:
        keep = bool(operator.options(tflite.ReducerOptions).KeepDims())
        data, axes = operator.inputs
        if code is NeuronOperation.REDUCE_SUM:
            _require_real(operator, table)
        source, result = table.model.tensors[data], table.model.tensors[operator.outputs[0]]
        # NNAPI's MEAN, REDUCE_MAX and REDUCE_MIN give the scale of their operand.
        if (source.scales, source.zero_points) != (result.scales, result.zero_points):
            raise make_error(operator, f"{result.name!r} has another scale than {source.name!r}")
        listed = [int(axis) for axis in np.atleast_1d(table.read(axes))]
        # MEAN alone says by an integer whether axes are kept.
        flag = table.int32(keep) if code is NeuronOperation.MEAN else table.boolean(keep)
        table.call(code, [table.tensor(data), table.vector(listed), flag], operator)

    return lower


def _lower_pad_with_value(operator: LiteOperator, table: NetworkTable) -> None:
    data, pads, value = operator.inputs
    tensor = table.model.tensors[data]
    number = table.read(value).reshape(-1)[0]
    # NNAPI takes the value as it is stored: an int32 beside quantized data.
    scalar = table.int32(int(number)) if tensor.scales else table.real(float(number), tensor)
    table.call(NeuronOperation.PAD_V2, [table.tensor(data), table.tensor(pads), scalar], operator)


def _lower_strided_slice(operator: LiteOperator, table: NetworkTable) -> None:
    options = operator.options(tflite.StridedSliceOptions)
    if options.EllipsisMask() or options.NewAxisMask():
        raise make_error(operator, "the adapter has neither an ellipsis nor new axes in a slice")
    # NNAPI has operands for these three of the five masks of TFLite.
    masks = (options.BeginMask(), options.EndMask(), options.ShrinkAxisMask())
    operands = [table.tensor(number) for number in operator.inputs]
    table.call(NeuronOperation.STRIDED_SLICE, [*operands, *map(table.int32, masks)], operator)


def _lower_split(operator: LiteOperator, table: NetworkTable) -> None:
    axis, data = operator.inputs
    number = int(table.read(axis).reshape(-1)[0]) % len(table.model.tensors[data].shape)
    numbers = (number, len(operator.outputs))
    table.call(NeuronOperation.SPLIT, [table.tensor(data), *map(table.int32, numbers)], operator)


def _lower_extreme_index(code: NeuronOperation) -> Lower:
    def lower(operator: LiteOperator, table: NetworkTable) -> None:
        data, axis = operator.inputs
        number = int(table.read(axis).reshape(-1)[0])
        table.call(code, [table.tensor(data), table.int32(number)], operator)

    return lower


def _lower_gather(operator: LiteOperator, table: NetworkTable) -> None:
    options = operator.options(tflite.GatherOptions)
    if options.BatchDims():
        # NNAPI's GATHER has no operand for batch axes.
        raise make_error(operator, "the adapter gathers without batch axes")
    data, indices = operator.inputs
    operands = [table.tensor(data), table.int32(options.Axis()), table.tensor(indices)]
    table.call(NeuronOperation.GATHER, operands, operator)


def _lower_matrix_product(operator: LiteOperator, table: NetworkTable) -> None:
    options = operator.options(tflite.BatchMatMulOptions)
    flags = (bool(options.AdjX()), bool(options.AdjY()))
    operands = [table.tensor(number) for number in operator.inputs]
    table.call(NeuronOperation.BATCH_MATMUL, [*operands, *map(table.boolean, flags)], operator)


def _lower_leaky_relu(operator: LiteOperator, table: NetworkTable) -> None:
    """Lower to PRELU of a constant; of real numbers alone, because integers would be rounded twice."""
    data = table.model.tensors[operator.inputs[0]]
    if data.scales:
        raise make_error(operator, "the adapter would round its integers otherwise")
    kind = np.float16 if data.type == tflite.TensorType.FLOAT16 else np.float32
    # As MediaTek's plugin for LiteRT does: the adapter has no LEAKY_RELU.
    slope = np.array([operator.options(tflite.LeakyReluOptions).Alpha()], kind)
    operands = [table.tensor(operator.inputs[0]), table.array(slope, data)]
    table.call(NeuronOperation.PRELU, operands, operator)


def _lower_square(operator: LiteOperator, table: NetworkTable) -> None:
    operand = table.tensor(operator.inputs[0])
    table.call(NeuronOperation.MUL, [operand, operand, table.int32(FusedActivation.NONE)], operator)


def _lower_squared_difference(operator: LiteOperator, table: NetworkTable) -> None:
    """Lower to SUB and MUL, as the guide says; of real numbers alone: integers need a scale between."""
    result = table.model.tensors[operator.outputs[0]]
    if result.scales:
        raise make_error(operator, "the adapter would round its integers twice")
    operands = [table.tensor(number) for number in operator.inputs]
    none = table.int32(FusedActivation.NONE)
    difference = table.intermediate(NeuronOperation.SUB, [*operands, none], result)
    table.call(NeuronOperation.MUL, [difference, difference, none], operator)


def _lower_quantize(operator: LiteOperator, table: NetworkTable) -> None:
    """Lower to QUANTIZE; of integers of the same scale, with DEQUANTIZE before, which is exact.

    Between two scales TFLite multiplies integers, and so does a product with 1; DEQUANTIZE and QUANTIZE would
    round a real number, which can differ.
    """
    data = table.model.tensors[operator.inputs[0]]
    result = table.model.tensors[operator.outputs[0]]
    operand = table.tensor(operator.inputs[0])
    if data.scales and data.scales != result.scales:
        one, scale = table.one(data)
        _require_larger_scale(operator, data.scales[0] * scale, result)
        operands = [operand, one, table.int32(FusedActivation.NONE)]
        if data.type == result.type:
            table.call(NeuronOperation.MUL, operands, operator)
            return
        # The same numbers in the other type of eight bits, which is exact.
        shift = 128 if data.type == tflite.TensorType.UINT8 else -128
        zero_points = (result.zero_points[0] + shift,)
        data = replace(data, scales=result.scales, zero_points=zero_points, offset=0, size=0)
        operand = table.intermediate(NeuronOperation.MUL, operands, data)
    if data.scales:
        # NNAPI's QUANTIZE reads real numbers alone.
        real = data.__class__(data.name, tflite.TensorType.FLOAT32, data.shape, (), (), 0, 0, 0)
        operand = table.intermediate(NeuronOperation.DEQUANTIZE, [operand], real)
    table.call(NeuronOperation.QUANTIZE, [operand], operator)


_CODE = tflite.BuiltinOperator
_REAL = {
    _CODE.ABS: NeuronOperation.ABS,
    _CODE.EXP: NeuronOperation.EXP,
    _CODE.FLOOR: NeuronOperation.FLOOR,
    _CODE.NEG: NeuronOperation.NEG,
    _CODE.POW: NeuronOperation.POW,
    _CODE.RSQRT: NeuronOperation.RSQRT,
    _CODE.SQRT: NeuronOperation.SQRT,
}
_PLAIN = {
    _CODE.CAST: NeuronOperation.CAST,
    _CODE.DEQUANTIZE: NeuronOperation.DEQUANTIZE,
    _CODE.EQUAL: NeuronOperation.EQUAL,
    _CODE.GREATER: NeuronOperation.GREATER,
    _CODE.GREATER_EQUAL: NeuronOperation.GREATER_EQUAL,
    _CODE.HARD_SWISH: NeuronOperation.HARD_SWISH,
    _CODE.L2_NORMALIZATION: NeuronOperation.L2_NORMALIZATION,
    _CODE.LESS: NeuronOperation.LESS,
    _CODE.LESS_EQUAL: NeuronOperation.LESS_EQUAL,
    _CODE.LOGICAL_AND: NeuronOperation.LOGICAL_AND,
    _CODE.LOGICAL_NOT: NeuronOperation.LOGICAL_NOT,
    _CODE.LOGICAL_OR: NeuronOperation.LOGICAL_OR,
    _CODE.LOGISTIC: NeuronOperation.LOGISTIC,
    _CODE.MAXIMUM: NeuronOperation.MAXIMUM,
    _CODE.MINIMUM: NeuronOperation.MINIMUM,
    _CODE.NOT_EQUAL: NeuronOperation.NOT_EQUAL,
    _CODE.PAD: NeuronOperation.PAD,
    _CODE.PRELU: NeuronOperation.PRELU,
    _CODE.RELU: NeuronOperation.RELU,
    _CODE.RELU6: NeuronOperation.RELU6,
    _CODE.RELU_N1_TO_1: NeuronOperation.RELU1,
    _CODE.SELECT: NeuronOperation.SELECT,
    _CODE.SLICE: NeuronOperation.SLICE,
    _CODE.SPACE_TO_BATCH_ND: NeuronOperation.SPACE_TO_BATCH_ND,
    _CODE.TANH: NeuronOperation.TANH,
    _CODE.TILE: NeuronOperation.TILE,
    _CODE.TRANSPOSE: NeuronOperation.TRANSPOSE,
}
_OTHER: dict[int, Lower] = {
    _CODE.ADD: _lower_arithmetic(NeuronOperation.ADD, tflite.AddOptions),
    _CODE.SUB: _lower_arithmetic(NeuronOperation.SUB, tflite.SubOptions),
    _CODE.MUL: _lower_arithmetic(NeuronOperation.MUL, tflite.MulOptions),
    _CODE.DIV: _lower_arithmetic(NeuronOperation.DIV, tflite.DivOptions),
    _CODE.AVERAGE_POOL_2D: lower_pool(NeuronOperation.AVERAGE_POOL_2D),
    _CODE.MAX_POOL_2D: lower_pool(NeuronOperation.MAX_POOL_2D),
    _CODE.L2_POOL_2D: lower_pool(NeuronOperation.L2_POOL_2D),
    _CODE.CONV_2D: lower_convolution,
    _CODE.DEPTHWISE_CONV_2D: lower_depthwise,
    _CODE.FULLY_CONNECTED: lower_fully_connected,
    _CODE.TRANSPOSE_CONV: lower_transpose_convolution,
    _CODE.CONCATENATION: _lower_concatenation,
    _CODE.RESHAPE: _lower_reshape,
    _CODE.SQUEEZE: _lower_reshape,
    _CODE.EXPAND_DIMS: _lower_reshape,
    _CODE.RESIZE_BILINEAR: _lower_resize(NeuronOperation.RESIZE_BILINEAR, tflite.ResizeBilinearOptions),
    _CODE.RESIZE_NEAREST_NEIGHBOR: _lower_resize(
        NeuronOperation.RESIZE_NEAREST_NEIGHBOR, tflite.ResizeNearestNeighborOptions
    ),
    _CODE.SOFTMAX: _lower_softmax,
    _CODE.DEPTH_TO_SPACE: _lower_block(NeuronOperation.DEPTH_TO_SPACE, tflite.DepthToSpaceOptions),
    _CODE.SPACE_TO_DEPTH: _lower_block(NeuronOperation.SPACE_TO_DEPTH, tflite.SpaceToDepthOptions),
    _CODE.BATCH_TO_SPACE_ND: _lower_batch_to_space,
    _CODE.MEAN: _lower_reduction(NeuronOperation.MEAN),
    _CODE.REDUCE_MAX: _lower_reduction(NeuronOperation.REDUCE_MAX),
    _CODE.REDUCE_MIN: _lower_reduction(NeuronOperation.REDUCE_MIN),
    _CODE.SUM: _lower_reduction(NeuronOperation.REDUCE_SUM),
    _CODE.PADV2: _lower_pad_with_value,
    _CODE.STRIDED_SLICE: _lower_strided_slice,
    _CODE.SPLIT: _lower_split,
    _CODE.ARG_MAX: _lower_extreme_index(NeuronOperation.ARGMAX),
    _CODE.ARG_MIN: _lower_extreme_index(NeuronOperation.ARGMIN),
    _CODE.GATHER: _lower_gather,
    _CODE.BATCH_MATMUL: _lower_matrix_product,
    _CODE.LEAKY_RELU: _lower_leaky_relu,
    _CODE.SQUARE: _lower_square,
    _CODE.SQUARED_DIFFERENCE: _lower_squared_difference,
    _CODE.QUANTIZE: _lower_quantize,
}

LOWERINGS: Mapping[int, Lower] = MappingProxyType(
    {
        **{number: _lower_plain(operation) for number, operation in _PLAIN.items()},
        **{number: _lower_real(operation) for number, operation in _REAL.items()},
        **_OTHER,
    }
)
"""By the number of the operator in the schema."""

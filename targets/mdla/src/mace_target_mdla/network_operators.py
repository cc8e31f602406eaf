"""What each TFLite operator is in operations of the Neuron adapter, with its operands in the adapter's order.

Source of names and order: MediaTek's own delegate for TFLite, neuron/neuron_delegate_kernel.cc and
neuron_delegate_builder.h of github.com/MediaTek-NeuroPilot/tflite-neuron-delegate. The tests read the
networks by another source, Android's page of NNAPI operations.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import tflite

from mace_target_mdla.lite_model import LiteOperator
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
from mace_target_mdla.neuron import Fused, Operation


def _lower_plain(code: Operation) -> Lower:
    """Return a lowering of an operator whose operands are its tensors alone."""

    def lower(operator: LiteOperator, table: NetworkTable) -> None:
        table.call(code, [table.tensor(number) for number in operator.inputs], operator)

    return lower


def _lower_real(code: Operation) -> Lower:
    """Return a lowering as `_lower_plain` does, of an operation that NNAPI has for real numbers alone."""

    def lower(operator: LiteOperator, table: NetworkTable) -> None:
        _require_real(operator, table)
        _lower_plain(code)(operator, table)

    return lower


def _require_real(operator: LiteOperator, table: NetworkTable) -> None:
    if any(table.model.tensors[number].scales for number in operator.inputs):
        raise make_error(operator, "the adapter has it for real numbers, not for quantized ones")


def _lower_arithmetic(code: Operation, options: type) -> Lower:
    """Return a lowering of an operator of two tensors with a fused activation."""

    def lower(operator: LiteOperator, table: NetworkTable) -> None:
        if code is Operation.DIV:
            _require_real(operator, table)
        fused = read_activation(operator, operator.options(options).FusedActivationFunction())
        operands = [table.tensor(number) for number in operator.inputs]
        table.call(code, [*operands, table.int32(fused)], operator)

    return lower


def _lower_concatenation(operator: LiteOperator, table: NetworkTable) -> None:
    options = operator.options(tflite.ConcatenationOptions)
    if options.FusedActivationFunction():
        raise make_error(operator, "the adapter joins tensors without an activation")
    axis = options.Axis() % len(table.model.tensors[operator.inputs[0]].shape)
    operands = [table.tensor(number) for number in operator.inputs]
    table.call(Operation.CONCATENATION, [*operands, table.int32(axis)], operator)


def _lower_reshape(operator: LiteOperator, table: NetworkTable) -> None:
    """Lower all that only changes the shape; the result's shape tells all that the options say."""
    shape = table.model.tensors[operator.outputs[0]].shape
    table.call(Operation.RESHAPE, [table.tensor(operator.inputs[0]), table.vector(shape)], operator)


def _lower_resize(code: Operation, options: type) -> Lower:
    def lower(operator: LiteOperator, table: NetworkTable) -> None:
        choices = operator.options(options)
        height, width = table.model.tensors[operator.outputs[0]].shape[1:3]
        flags = (False, bool(choices.AlignCorners()), bool(choices.HalfPixelCenters()))
        operands = [table.tensor(operator.inputs[0]), table.int32(width), table.int32(height)]
        table.call(code, [*operands, *map(table.boolean, flags)], operator)

    return lower


def _lower_softmax(operator: LiteOperator, table: NetworkTable) -> None:
    beta = operator.options(tflite.SoftmaxOptions).Beta()
    data = operator.inputs[0]
    operands = [table.tensor(data), table.real(beta, table.model.tensors[data])]
    table.call(Operation.SOFTMAX, operands, operator)


def _lower_block(code: Operation, options: type) -> Lower:
    def lower(operator: LiteOperator, table: NetworkTable) -> None:
        size = operator.options(options).BlockSize()
        table.call(code, [table.tensor(operator.inputs[0]), table.int32(size)], operator)

    return lower


def _lower_batch_to_space(operator: LiteOperator, table: NetworkTable) -> None:
    data, block, crops = operator.inputs
    if np.any(table.read(crops)):
        raise make_error(operator, "the adapter does not crop")
    table.call(Operation.BATCH_TO_SPACE_ND, [table.tensor(data), table.tensor(block)], operator)


def _lower_reduction(code: Operation) -> Lower:
    def lower(operator: LiteOperator, table: NetworkTable) -> None:
        keep = bool(operator.options(tflite.ReducerOptions).KeepDims())
        data, axes = operator.inputs
        if code is Operation.REDUCE_SUM:
            _require_real(operator, table)
        source, result = table.model.tensors[data], table.model.tensors[operator.outputs[0]]
        if (source.scales, source.zero_points) != (result.scales, result.zero_points):
            raise make_error(operator, f"{result.name!r} has another scale than {source.name!r}")
        listed = [int(axis) for axis in np.atleast_1d(table.read(axes))]
        # MEAN alone says by an integer whether axes are kept.
        flag = table.int32(keep) if code is Operation.MEAN else table.boolean(keep)
        table.call(code, [table.tensor(data), table.vector(listed), flag], operator)

    return lower


def _lower_pad_with_value(operator: LiteOperator, table: NetworkTable) -> None:
    data, pads, value = operator.inputs
    tensor = table.model.tensors[data]
    number = table.read(value).reshape(-1)[0]
    scalar = table.int32(int(number)) if tensor.scales else table.real(float(number), tensor)
    table.call(Operation.PAD_V2, [table.tensor(data), table.tensor(pads), scalar], operator)


def _lower_strided_slice(operator: LiteOperator, table: NetworkTable) -> None:
    options = operator.options(tflite.StridedSliceOptions)
    if options.EllipsisMask() or options.NewAxisMask():
        raise make_error(operator, "the adapter has neither an ellipsis nor new axes in a slice")
    masks = (options.BeginMask(), options.EndMask(), options.ShrinkAxisMask())
    operands = [table.tensor(number) for number in operator.inputs]
    table.call(Operation.STRIDED_SLICE, [*operands, *map(table.int32, masks)], operator)


def _lower_split(operator: LiteOperator, table: NetworkTable) -> None:
    axis, data = operator.inputs
    number = int(table.read(axis).reshape(-1)[0]) % len(table.model.tensors[data].shape)
    numbers = (number, len(operator.outputs))
    table.call(Operation.SPLIT, [table.tensor(data), *map(table.int32, numbers)], operator)


def _lower_extreme_index(code: Operation) -> Lower:
    def lower(operator: LiteOperator, table: NetworkTable) -> None:
        data, axis = operator.inputs
        number = int(table.read(axis).reshape(-1)[0])
        table.call(code, [table.tensor(data), table.int32(number)], operator)

    return lower


def _lower_gather(operator: LiteOperator, table: NetworkTable) -> None:
    options = operator.options(tflite.GatherOptions)
    if options.BatchDims():
        raise make_error(operator, "the adapter gathers without batch axes")
    data, indices = operator.inputs
    operands = [table.tensor(data), table.int32(options.Axis()), table.tensor(indices)]
    table.call(Operation.GATHER, operands, operator)


def _lower_matrix_product(operator: LiteOperator, table: NetworkTable) -> None:
    options = operator.options(tflite.BatchMatMulOptions)
    flags = (bool(options.AdjX()), bool(options.AdjY()))
    operands = [table.tensor(number) for number in operator.inputs]
    table.call(Operation.BATCH_MATMUL, [*operands, *map(table.boolean, flags)], operator)


def _lower_leaky_relu(operator: LiteOperator, table: NetworkTable) -> None:
    """Lower to PRELU of a constant; of real numbers alone, because integers would be rounded twice."""
    data = table.model.tensors[operator.inputs[0]]
    if data.scales:
        raise make_error(operator, "the adapter would round its integers otherwise")
    kind = np.float16 if data.type == tflite.TensorType.FLOAT16 else np.float32
    slope = np.array([operator.options(tflite.LeakyReluOptions).Alpha()], kind)
    operands = [table.tensor(operator.inputs[0]), table.array(slope, data)]
    table.call(Operation.PRELU, operands, operator)


def _lower_square(operator: LiteOperator, table: NetworkTable) -> None:
    operand = table.tensor(operator.inputs[0])
    table.call(Operation.MUL, [operand, operand, table.int32(Fused.NONE)], operator)


def _lower_squared_difference(operator: LiteOperator, table: NetworkTable) -> None:
    """Lower to SUB and MUL, as the guide says; of real numbers alone: integers need a scale between."""
    result = table.model.tensors[operator.outputs[0]]
    if result.scales:
        raise make_error(operator, "the adapter would round its integers twice")
    operands = [table.tensor(number) for number in operator.inputs]
    none = table.int32(Fused.NONE)
    difference = table.intermediate(Operation.SUB, [*operands, none], result)
    table.call(Operation.MUL, [difference, difference, none], operator)


def _lower_quantize(operator: LiteOperator, table: NetworkTable) -> None:
    """Lower to QUANTIZE; of integers of the same scale, with DEQUANTIZE before, which is exact.

    Between two scales TFLite multiplies integers and the adapter would round a real number: these can differ.
    """
    data = table.model.tensors[operator.inputs[0]]
    result = table.model.tensors[operator.outputs[0]]
    operand = table.tensor(operator.inputs[0])
    if data.scales:
        if data.scales != result.scales:
            raise make_error(operator, f"{result.name!r} has another scale than {data.name!r}")
        real = data.__class__(data.name, tflite.TensorType.FLOAT32, data.shape, (), (), 0, 0, 0)
        operand = table.intermediate(Operation.DEQUANTIZE, [operand], real)
    table.call(Operation.QUANTIZE, [operand], operator)


def _list_lowerings() -> Mapping[int, Lower]:
    code = tflite.BuiltinOperator
    real = {
        code.ABS: Operation.ABS,
        code.EXP: Operation.EXP,
        code.FLOOR: Operation.FLOOR,
        code.NEG: Operation.NEG,
        code.POW: Operation.POW,
        code.RSQRT: Operation.RSQRT,
        code.SQRT: Operation.SQRT,
    }
    plain = {
        code.CAST: Operation.CAST,
        code.DEQUANTIZE: Operation.DEQUANTIZE,
        code.EQUAL: Operation.EQUAL,
        code.GREATER: Operation.GREATER,
        code.GREATER_EQUAL: Operation.GREATER_EQUAL,
        code.HARD_SWISH: Operation.HARD_SWISH,
        code.L2_NORMALIZATION: Operation.L2_NORMALIZATION,
        code.LESS: Operation.LESS,
        code.LESS_EQUAL: Operation.LESS_EQUAL,
        code.LOGICAL_AND: Operation.LOGICAL_AND,
        code.LOGICAL_NOT: Operation.LOGICAL_NOT,
        code.LOGICAL_OR: Operation.LOGICAL_OR,
        code.LOGISTIC: Operation.LOGISTIC,
        code.MAXIMUM: Operation.MAXIMUM,
        code.MINIMUM: Operation.MINIMUM,
        code.NOT_EQUAL: Operation.NOT_EQUAL,
        code.PAD: Operation.PAD,
        code.PRELU: Operation.PRELU,
        code.RELU: Operation.RELU,
        code.RELU6: Operation.RELU6,
        code.RELU_N1_TO_1: Operation.RELU1,
        code.SELECT: Operation.SELECT,
        code.SLICE: Operation.SLICE,
        code.SPACE_TO_BATCH_ND: Operation.SPACE_TO_BATCH_ND,
        code.TANH: Operation.TANH,
        code.TILE: Operation.TILE,
        code.TRANSPOSE: Operation.TRANSPOSE,
    }
    lowerings: dict[int, Lower] = {number: _lower_plain(operation) for number, operation in plain.items()}
    lowerings.update({number: _lower_real(operation) for number, operation in real.items()})
    return MappingProxyType(
        {
            **lowerings,
            code.ADD: _lower_arithmetic(Operation.ADD, tflite.AddOptions),
            code.SUB: _lower_arithmetic(Operation.SUB, tflite.SubOptions),
            code.MUL: _lower_arithmetic(Operation.MUL, tflite.MulOptions),
            code.DIV: _lower_arithmetic(Operation.DIV, tflite.DivOptions),
            code.AVERAGE_POOL_2D: lower_pool(Operation.AVERAGE_POOL_2D),
            code.MAX_POOL_2D: lower_pool(Operation.MAX_POOL_2D),
            code.L2_POOL_2D: lower_pool(Operation.L2_POOL_2D),
            code.CONV_2D: lower_convolution,
            code.DEPTHWISE_CONV_2D: lower_depthwise,
            code.FULLY_CONNECTED: lower_fully_connected,
            code.TRANSPOSE_CONV: lower_transpose_convolution,
            code.CONCATENATION: _lower_concatenation,
            code.RESHAPE: _lower_reshape,
            code.SQUEEZE: _lower_reshape,
            code.EXPAND_DIMS: _lower_reshape,
            code.RESIZE_BILINEAR: _lower_resize(Operation.RESIZE_BILINEAR, tflite.ResizeBilinearOptions),
            code.RESIZE_NEAREST_NEIGHBOR: _lower_resize(
                Operation.RESIZE_NEAREST_NEIGHBOR, tflite.ResizeNearestNeighborOptions
            ),
            code.SOFTMAX: _lower_softmax,
            code.DEPTH_TO_SPACE: _lower_block(Operation.DEPTH_TO_SPACE, tflite.DepthToSpaceOptions),
            code.SPACE_TO_DEPTH: _lower_block(Operation.SPACE_TO_DEPTH, tflite.SpaceToDepthOptions),
            code.BATCH_TO_SPACE_ND: _lower_batch_to_space,
            code.MEAN: _lower_reduction(Operation.MEAN),
            code.REDUCE_MAX: _lower_reduction(Operation.REDUCE_MAX),
            code.REDUCE_MIN: _lower_reduction(Operation.REDUCE_MIN),
            code.SUM: _lower_reduction(Operation.REDUCE_SUM),
            code.PADV2: _lower_pad_with_value,
            code.STRIDED_SLICE: _lower_strided_slice,
            code.SPLIT: _lower_split,
            code.ARG_MAX: _lower_extreme_index(Operation.ARGMAX),
            code.ARG_MIN: _lower_extreme_index(Operation.ARGMIN),
            code.GATHER: _lower_gather,
            code.BATCH_MATMUL: _lower_matrix_product,
            code.LEAKY_RELU: _lower_leaky_relu,
            code.SQUARE: _lower_square,
            code.SQUARED_DIFFERENCE: _lower_squared_difference,
            code.QUANTIZE: _lower_quantize,
        }
    )


LOWERINGS = _list_lowerings()
"""By the number of the operator in the schema."""

"""What TFLite's convolutions, products with weights and pools are in operations of the Neuron adapter.

Source of names and order: see network_operators.py.
"""

from __future__ import annotations

from collections.abc import Callable

import tflite

from mace_core.errors import MaceError
from mace_target_mdla.lite_model import LiteOperator
from mace_target_mdla.network_table import PLACE, NetworkTable
from mace_target_mdla.neuron import FusedActivation, NeuronOperation, Padding

Lower = Callable[[LiteOperator, NetworkTable], None]

FUSED = {
    tflite.ActivationFunctionType.NONE: FusedActivation.NONE,
    tflite.ActivationFunctionType.RELU: FusedActivation.RELU,
    tflite.ActivationFunctionType.RELU_N1_TO_1: FusedActivation.RELU1,
    tflite.ActivationFunctionType.RELU6: FusedActivation.RELU6,
}
# NNAPI's windows of explicit padding are not needed: the format itself pads SAME or VALID alone.
PADDING = {tflite.Padding.SAME: Padding.SAME, tflite.Padding.VALID: Padding.VALID}


def make_error(operator: LiteOperator, problem: str) -> MaceError:
    """Return the error of an operator that the adapter cannot be told."""
    return MaceError(f"{PLACE}, {operator.name}", problem, "leave this operation to the CPU")


def read_activation(operator: LiteOperator, number: int) -> FusedActivation:
    """Return a fused activation by its number in the schema; MaceError where the adapter has none such."""
    if number not in FUSED:
        raise make_error(operator, f"the adapter has no fused activation {number}")
    return FUSED[number]


def lower_pool(code: NeuronOperation) -> Lower:
    """Return a lowering of a pool over windows of an image."""

    def lower(operator: LiteOperator, table: NetworkTable) -> None:
        options = operator.options(tflite.Pool2DOptions)
        # NNAPI names the width before the height, of strides and of windows.
        numbers = (
            PADDING[options.Padding()],
            options.StrideW(),
            options.StrideH(),
            options.FilterWidth(),
            options.FilterHeight(),
            read_activation(operator, options.FusedActivationFunction()),
        )
        table.call(code, [table.tensor(operator.inputs[0]), *map(table.int32, numbers)], operator)

    return lower


def lower_convolution(operator: LiteOperator, table: NetworkTable) -> None:
    """Lower CONV_2D; the dilation is always stated."""
    options = operator.options(tflite.Conv2DOptions)
    before = (PADDING[options.Padding()], options.StrideW(), options.StrideH())
    numbers = (*before, read_activation(operator, options.FusedActivationFunction()))
    dilation = (options.DilationWFactor(), options.DilationHFactor())
    operands = [*_filter_operands(operator, table, 0), *map(table.int32, numbers), table.boolean(False)]
    table.call(NeuronOperation.CONV_2D, [*operands, *map(table.int32, dilation)], operator)


def lower_depthwise(operator: LiteOperator, table: NetworkTable) -> None:
    """Lower DEPTHWISE_CONV_2D, with a dilation only where it is not 1."""
    options = operator.options(tflite.DepthwiseConv2DOptions)
    data, filters = (table.model.tensors[number] for number in operator.inputs[:2])
    # The option may be 0 or wrong in old files; the shapes tell it.
    multiplier = filters.shape[3] // data.shape[3]
    before = (PADDING[options.Padding()], options.StrideW(), options.StrideH(), multiplier)
    numbers = (*before, read_activation(operator, options.FusedActivationFunction()))
    dilation = (options.DilationWFactor(), options.DilationHFactor())
    # Filters are [1, height, width, channels] here, so that their scales lie along axis 3. False says NHWC.
    operands = [*_filter_operands(operator, table, 3), *map(table.int32, numbers), table.boolean(False)]
    if dilation != (1, 1):
        operands += map(table.int32, dilation)
    table.call(NeuronOperation.DEPTHWISE_CONV_2D, operands, operator)


def _filter_operands(operator: LiteOperator, table: NetworkTable, axis: int) -> list[int]:
    """Return the operands of data, filters and bias.

    axis: the filters' axis of output channels.
    """
    data, filters = operator.inputs[:2]
    bias = operator.inputs[2] if len(operator.inputs) > 2 else -1
    pair = (table.model.tensors[data], table.model.tensors[filters])
    return [
        table.tensor(data),
        table.weights(filters, axis),
        table.bias(bias, pair[1].shape[axis], pair),
    ]


def lower_fully_connected(operator: LiteOperator, table: NetworkTable) -> None:
    """Lower FULLY_CONNECTED with a result of batch and units."""
    options = operator.options(tflite.FullyConnectedOptions)
    if options.WeightsFormat():
        # Shuffled weights (Shuffled4x16Int8) are in the order that LiteRT's own kernels want, not in NNAPI's.
        raise make_error(operator, "its weights are shuffled")
    result = table.model.tensors[operator.outputs[0]]
    if len(result.shape) != 2:
        # The adapter's result has two axes: batch and units.
        raise make_error(operator, f"its result has {len(result.shape)} axes, and the adapter's has 2")
    fused = table.int32(read_activation(operator, options.FusedActivationFunction()))
    table.call(NeuronOperation.FULLY_CONNECTED, [*_filter_operands(operator, table, 0), fused], operator)


def lower_transpose_convolution(operator: LiteOperator, table: NetworkTable) -> None:
    """Lower TRANSPOSE_CONV, whose inputs TFLite has in another order."""
    options = operator.options(tflite.TransposeConvOptions)
    shape, filters, data = operator.inputs[:3]
    bias = operator.inputs[3] if len(operator.inputs) > 3 else -1
    swapped = LiteOperator(operator.code, (data, filters, bias), operator.outputs, operator.table)
    fused = read_activation(operator, options.FusedActivationFunction())
    numbers = (PADDING[options.Padding()], options.StrideW(), options.StrideH(), fused)
    operands = [*_filter_operands(swapped, table, 0), table.tensor(shape), *map(table.int32, numbers)]
    table.call(NeuronOperation.TRANSPOSE_CONV_2D, [*operands, table.boolean(False)], operator)

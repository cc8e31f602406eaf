"""Conv, ConvTranspose and MatMul over quantized tensors: exact sums, rounded once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from mace_core.emit.text import CIdentifier, Code
from mace_core.integer_storage import EIGHT_BITS, NARROW, IntegerWeights, Scale, need_stored
from mace_core.ir import Array, DType, Node, Tensor
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.ops.conv import ConvAttributes
from mace_core.ops.windows import Windows
from mace_target_opencl.lower.conv import choose_join, order_filters, plan_conv
from mace_target_opencl.lower.packing import WeightOrder
from mace_target_opencl.lower.product import IntegerSums, MatrixProduct, enqueue_product, plan_product
from mace_target_opencl.lower.windows import WindowKernel, enqueue_windows
from mace_target_opencl.quantized.storage import StepRange, clamp, spell_store
from mace_target_opencl.steps import ElementStep, Lookup
from mace_target_opencl.types import FLOAT, INT, SHORT
from mace_target_opencl.views import View

BIAS_TOLERANCE = 2.0**-10
"""Steps of the result that a bias may lose to leave room for the sum."""

MAX_SUM = (1 << 31) - 1

QUAD = 4
"""Bytes of the depth that are multiplied at once."""

MAX_DOTS = 1 << 15
"""Products of two bytes, at most 2^14 each: twice their sum fits 32 bits, for zero points on both sides."""


@dataclass(frozen=True)
class SumScales:
    """For each output channel what its sums begin with, and by what they are multiplied to become steps."""

    bias: Array
    factor: Array

    @classmethod
    def from_node(cls, node: Node, lowering: Lowering, scale: Array, reach: Array) -> SumScales:
        """Return those of a product; raises Refused where a sum can be too large for 32 bits.

        scale: of the second factor.  reach: sums of magnitudes of the second factor, for each output channel.
        """
        x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
        unit = np.broadcast_to(Scale.from_tensor(x).step * scale, reach.shape)
        bias = _read_bias(node, lowering, unit)
        factor = unit / Scale.from_tensor(y).step
        limits, zero = np.iinfo(x.dtype.numpy), Scale.from_tensor(x).zero
        largest = max(limits.max - zero, zero - limits.min)
        room = MAX_SUM - reach * largest
        # Only a channel whose scale is next to nothing has a bias beyond that; it loses what no step shows.
        limited = np.clip(bias, -np.maximum(room, 0), np.maximum(room, 0))
        if (room < 0).any() or (np.abs(bias - limited) * factor).max(initial=0) > BIAS_TOLERANCE:
            raise Refused(f"sums of {y.name} can be too large for 32 bits", code="too-large")
        return cls(limited.astype(np.int32), factor.astype(np.float32))

    def subtract_zero(self, zero: int, sums: Array) -> SumScales:
        """Return what sums begin with where kernels multiply x with its zero point.

        sums: of the weights of each output channel: the sum of (x - zero) w is that of x w less zero sums.
        """
        # It fits: `from_node` has left room for the largest distance from the zero point times these weights.
        return replace(self, bias=(self.bias.astype(np.int64) - zero * sums).astype(np.int32))

    def finish(self, node: Node, lowering: Lowering) -> tuple[ElementStep, Mapping[str, str]]:
        """Return the step from a sum to what the result stores, and the operands that it looks up."""
        y = lowering.tensors[node.outputs[0]]
        columns = self.bias.size
        view = View.of([(y.elements // max(1, columns), 0), (columns, 1)])
        # The bias is added as an integer, so that the sum is rounded once.
        store = spell_store("(float)(x + y) * z", y, StepRange.from_result(y, *clamp(node)))
        arguments = (None, Lookup(CIdentifier("bias"), view), Lookup(CIdentifier("factor"), view))
        operands = {
            "bias": lowering.weight(f"{y.name}.bias", self.bias.shape, "int32", lambda: self.bias),
            "factor": lowering.weight(f"{y.name}.factor", self.factor.shape, "float32", lambda: self.factor),
        }
        return replace(store, arguments=arguments), operands


TYPES: Mapping[str, Code] = {"bias": INT, "factor": FLOAT}
"""C types of the operands of `SumScales.finish`."""


def _read_bias(node: Node, lowering: Lowering, unit: Array) -> Array:
    """Return the bias in the units of the sums, as float64, which holds every integer of 32 bits."""
    name = node.inputs[2] if len(node.inputs) > 2 else ""
    if not name:
        return np.zeros(unit.shape)
    tensor, values = lowering.tensors[name], lowering.constant(name)
    if values is None:
        raise Refused(f"{name} is computed, not a constant", code="other")
    if tensor.quant is None:
        return np.asarray(np.rint(values / unit))
    steps = values.astype(np.float64) - tensor.quant.zero_point[0]
    return np.asarray(np.rint(steps * np.array(tensor.quant.scale) / unit))


def _need_left_factor(node: Node, lowering: Lowering) -> Tensor:
    x = need_stored(lowering, node.inputs[0], NARROW)
    if x.dtype is DType.I16 and Scale.from_tensor(x).zero:
        raise Refused(f"{x.name} has sixteen bits and a zero point", code="quantization")
    return x


def conv(node: Node, lowering: Lowering) -> None:
    """Compute a convolution of eight or sixteen bits with constant weights of eight."""
    x, w = _need_left_factor(node, lowering), lowering.tensors[node.inputs[1]]
    group = node.attributes(ConvAttributes).group
    weights = IntegerWeights.from_constant(w.name, lowering)
    reach = weights.reach(tuple(range(1, weights.values.ndim)))
    columns = SumScales.from_node(node, lowering, weights.scale, reach)
    if group > 1 and w.shape[-1] == 1 and w.shape[0] == group == x.shape[-1]:
        _enqueue_depthwise(node, lowering, weights, columns)
        return
    _enqueue_conv(node, lowering, (weights, columns), transposed=False)


def conv_transpose(node: Node, lowering: Lowering) -> None:
    """Compute a transposed convolution of constant weights."""
    _need_left_factor(node, lowering)
    weights = IntegerWeights.from_constant(node.inputs[1], lowering)
    reach = weights.reach(tuple(range(1, weights.values.ndim)))
    columns = SumScales.from_node(node, lowering, weights.scale, reach)
    _enqueue_conv(node, lowering, (weights, columns), transposed=True)


def _enqueue_conv(
    node: Node, lowering: Lowering, scaled: tuple[IntegerWeights, SumScales], *, transposed: bool
) -> None:
    weights, columns = scaled
    order = order_filters(node, lowering)
    integer = _describe_sums(node, lowering, weights, prod(order.shape[2:]))
    if integer.dots:
        columns = _subtract_zero(integer, columns, weights, tuple(range(1, weights.values.ndim)))
        order = WeightOrder((*order.shape[:3], order.shape[3] // QUAD, QUAD), (0, 2, 3, 1, 4))
    filters = _pack(lowering, node.inputs[1], order, weights.values)
    product = plan_conv(node, lowering, filters, transposed=transposed)
    joins = choose_join(node, lowering, product)
    _enqueue(node, lowering, replace(product, integer=integer, depthwise=joins), columns)


def _describe_sums(node: Node, lowering: Lowering, weights: IntegerWeights, summands: int) -> IntegerSums:
    """Return how a product with constant weights is summed.  summands: products of a sum."""
    x, depth = lowering.tensors[node.inputs[0]], lowering.shape(node.inputs[0])[-1]
    zeros = (Scale.from_tensor(x).zero, weights.zero)
    # Of one group: x has the channels of all.
    if node.op.name != "MatMul":
        depth = weights.values.shape[-1]
    # A sum of products of bytes with their zero points fits 32 bits too.
    dots = x.dtype in EIGHT_BITS and depth % QUAD == 0 and summands <= MAX_DOTS
    return IntegerSums(zeros, {**TYPES, "w": Code("char")}, dots, x.dtype is DType.U8)


def _subtract_zero(
    integer: IntegerSums, columns: SumScales, weights: IntegerWeights, axes: tuple[int, ...]
) -> SumScales:
    zero = integer.zeros[0] - 128 if integer.flips else integer.zeros[0]
    return columns.subtract_zero(zero, weights.sums(axes))


def _enqueue(node: Node, lowering: Lowering, product: MatrixProduct, columns: SumScales) -> None:
    step, operands = columns.finish(node, lowering)
    enqueue_product(lowering, node, replace(product, steps=(step,), others=operands))


def _pack(lowering: Lowering, name: str, order: WeightOrder, values: Array) -> str:
    """Return integers in the order of a kernel."""
    shape = tuple(order.shape[axis] for axis in order.order)

    def make() -> Array:
        return np.ascontiguousarray(values.reshape(order.shape).transpose(order.order))

    key = (name, order, str(values.dtype))
    return lowering.once(key, lambda: lowering.weight(f"{name}_packed", shape, values.dtype.name, make))


def _enqueue_depthwise(node: Node, lowering: Lowering, weights: IntegerWeights, columns: SumScales) -> None:
    x, kernel = lowering.tensors[node.inputs[0]], lowering.shape(node.inputs[1])[1:-1]
    windows = Windows.of(kernel, node.attributes(ConvAttributes))
    # Less its zero point a weight has nine bits.
    values = weights.values.astype(np.int16) - np.int16(weights.zero)
    order = WeightOrder((x.shape[-1], prod(kernel)), (1, 0))
    load = "LOAD4_w" if x.shape[-1] % 4 == 0 else "LOAD_w"
    step, operands = columns.finish(node, lowering)
    window = WindowKernel(
        "0",
        f"a + v * {load}(w_at)",
        weights=_pack(lowering, node.inputs[1], order, values),
        steps=(step,),
        others=operands,
        types={**TYPES, "w": SHORT},
        sums=INT,
        zero=Scale.from_tensor(x).zero,
    )
    enqueue_windows(lowering, node, windows, window)


def matmul(node: Node, lowering: Lowering) -> None:
    """Multiply eight or sixteen bits with a constant matrix, or eight bits with a computed one."""
    if lowering.constant(node.inputs[1]) is None:
        _multiply_computed(node, lowering)
        return
    x, shape = _need_left_factor(node, lowering), lowering.shape(node.inputs[1])
    if len(shape) < 2 or prod(shape[:-2]) != 1 or len(x.shape) < 2:
        raise Refused("its second factor is a batch, or a factor is a vector", code="shape")
    weights = IntegerWeights.from_constant(node.inputs[1], lowering)
    columns = SumScales.from_node(node, lowering, weights.scale, weights.reach((-2,)))
    depth, results = shape[-2:]
    integer = _describe_sums(node, lowering, weights, depth)
    order = WeightOrder((depth, results), (0, 1))
    if integer.dots:
        columns = _subtract_zero(integer, columns, weights, (-2,))
        order = WeightOrder((depth // QUAD, QUAD, results), (0, 2, 1))
    matrix = _pack(lowering, node.inputs[1], order, weights.values)
    _enqueue(node, lowering, replace(plan_product(node, lowering), w=matrix, integer=integer), columns)


def _multiply_computed(node: Node, lowering: Lowering) -> None:
    a, b, y = (need_stored(lowering, name, EIGHT_BITS) for name in (*node.inputs[:2], *node.outputs))
    if min(len(a.shape), len(b.shape)) < 2:
        raise Refused("a factor is a vector", code="shape")
    depth, columns = b.shape[-2:]
    # Magnitudes less their zero points are below 2^8, so each product is below 2^16.
    if depth << 16 > 1 << 31 or not y.elements:
        raise Refused(f"sums of {depth} products may not fit 32 bits, or there are none", code="too-large")
    scale = np.array([Scale.from_tensor(b).step])
    # Nothing more to refuse: the test above bounds the sums of any two matrices.
    sums = SumScales.from_node(node, lowering, scale, np.zeros(columns, np.int64))
    zeros = Scale.from_tensor(a).zero, Scale.from_tensor(b).zero
    # Without `dots`, which want fours of the depth together: a computed matrix is not packed.
    product = replace(plan_product(node, lowering), integer=IntegerSums(zeros, TYPES))
    _enqueue(node, lowering, product, sums)


LOWERINGS: Mapping[str, Lower] = {"Conv": conv, "ConvTranspose": conv_transpose, "MatMul": matmul}

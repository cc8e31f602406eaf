"""What quantized operators of the format demand of their tensors, and the activations they fuse."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import tflite

from mace_core.ir import Array, DType, Quant, Storage, Tensor
from mace_core.lowering import Refused
from mace_tflite_writer.operator import ConstantOperand, NodeView, Operand, need
from mace_tflite_writer.schema import SCALE_TOLERANCE

_Type = tflite.ActivationFunctionType
ACTIVATIONS: Mapping[int, tuple[float, float]] = MappingProxyType(
    {
        _Type.NONE: (-math.inf, math.inf),
        _Type.RELU: (0.0, math.inf),
        _Type.RELU6: (0.0, 6.0),
        _Type.RELU_N1_TO_1: (-1.0, 1.0),
    }
)
"""Fused activations -> the bounds between which they clamp, the cheapest first."""

MAX_SUM = 2**31 - 1
"""The largest sum of products that kernels of eight bits hold."""


def fused_activation(low: float, high: float, result: Tensor) -> int:
    """Return the fused activation that clamps a result to low ... high; Refused if there is none."""
    for function, bounds in ACTIVATIONS.items():
        if bounds == (low, high):
            return function
        # Stored integers end with their type, so that activations of other bounds may clamp to the same.
        if result.storage and _integer_range(bounds, result.storage) == _range_of_ir(
            (low, high), result.storage
        ):
            return function
    raise Refused(
        f"the format fuses no activation that clamps to {low:g} ... {high:g}",
        code="attribute",
        remedy="clamp by a node of its own (rewrite `separate_clamps`)",
    )


def _integer_range(bounds: tuple[float, float], storage: Storage) -> tuple[int, int]:
    """Return the stored integers between bounds as the kernels round these: halves away from zero."""
    return _clamp_bounds(bounds, storage, lambda steps: math.copysign(math.floor(abs(steps) + 0.5), steps))


def _range_of_ir(bounds: tuple[float, float], storage: Storage) -> tuple[int, int]:
    """Return the stored integers between bounds, as the IR rounds these: halves to even."""
    return _clamp_bounds(bounds, storage, lambda steps: float(np.rint(steps)))


def _clamp_bounds(
    bounds: tuple[float, float], storage: Storage, round_steps: Callable[[float], float]
) -> tuple[int, int]:
    limits = np.iinfo(storage.dtype.numpy)
    scale, zero_point = storage.quant.scale[0], storage.quant.zero_point[0]
    integers = []
    for bound in bounds:
        if math.isinf(bound):
            integers.append(limits.min if bound < 0 else limits.max)
        else:
            integers.append(int(np.clip(round_steps(bound / scale) + zero_point, limits.min, limits.max)))
    return integers[0], integers[1]


def need_one_scale(tensor: Tensor) -> None:
    """Raise Refused if an activation has scales along an axis."""
    need(
        tensor.quant is None or tensor.quant.axis is None,
        f"{tensor.name!r} has scales along an axis; the format's kernels take one for an activation",
        "quantization",
        "quantize the model with one scale for each activation",
    )


def check_products(view: NodeView, weights_axis: int) -> None:
    """Raise Refused unless the kernels sum products of these inputs, weights and bias exactly.

    weights_axis: the axis of the weights along which the results lie, where they may have several scales.
    """
    x, w, y = view.x, view.input(1), view.y
    assert w is not None
    if x.quant is None:
        tensors = [t for t in (*view.inputs(), y) if t.quant or t.dtype is not x.dtype]
        need(
            not tensors,
            f"it computes floats, and {tensors[0].name if tensors else ''!r} is none",
            "quantization",
            "quantize all of its tensors, or none",
        )
        return
    for tensor in (x, y):
        need_one_scale(tensor)
    need(
        y.quant is not None and y.dtype is x.dtype and w.quant is not None,
        f"its tensors are {x}, {w} and {y}; all three must be quantized, inputs and results to one type",
        "quantization",
        "quantize all of its tensors to one type",
    )
    _check_weights(x, w, weights_axis)
    _check_bias(view, x, w)
    _check_sums(view, weights_axis)


def _check_weights(x: Tensor, w: Tensor, weights_axis: int) -> None:
    assert x.quant is not None
    assert w.quant is not None
    expected = DType.U8 if x.dtype is DType.U8 else DType.I8
    need(
        w.dtype is expected,
        f"its weights are {w.dtype.value} beside {x.dtype.value} activations; expected {expected.value}",
        "quantization",
        "shift the activations to int8 (rewrite `activations_to_int8`)" if expected is DType.U8 else "",
    )
    if w.dtype is DType.U8:
        need(
            w.quant.axis is None,
            "its uint8 weights have scales along an axis; the format takes one scale for such weights",
            "quantization",
            "give them one scale (rewrite `weights_per_tensor`), or use int8",
        )
        return
    need(
        w.quant.axis in (None, weights_axis),
        f"its weights have scales along axis {w.quant.axis}; the format has them along that of the results",
        "quantization",
    )
    need(
        not any(w.quant.zero_point),
        "its int8 weights have zero points other than 0, which the format's kernels do not read",
        "quantization",
        "quantize the weights symmetrically",
    )


def _check_bias(view: NodeView, x: Tensor, w: Tensor) -> None:
    bias = view.input(2)
    if bias is None:
        return
    need(
        bias.dtype is DType.I32 and bias.quant is not None and not any(bias.quant.zero_point),
        f"its bias is {bias}; expected quantized int32 with zero point 0",
        "quantization",
        "quantize the bias to int32",
    )
    assert bias.quant is not None
    # LiteRT takes scales that differ more (kernel_util.cc), and computes as if they did not.
    expected, actual = np.asarray(bias_quant(x, w).scale), np.asarray(bias.quant.scale)
    need(
        bool(np.all(np.abs(actual - expected) <= SCALE_TOLERANCE * expected)),
        "the scale of its bias is not that of its inputs times that of its weights, as the kernels assume",
        "quantization",
        "quantize the bias with the product of both scales",
    )


def bias_quant(x: Tensor, w: Tensor) -> Quant:
    """Return the quantization that the kernels assume of a bias: scales of inputs times those of weights."""
    assert x.quant is not None
    assert w.quant is not None
    scales = tuple(float(np.float32(x.quant.scale[0]) * np.float32(s)) for s in w.quant.scale)
    return Quant(scales, (0,) * len(scales), None if w.quant.axis is None else 0)


def _check_sums(view: NodeView, weights_axis: int) -> None:
    """Raise Refused if a sum of products may leave 32 bits, where the kernels wrap."""
    x, w = view.x, view.input(1)
    assert w is not None
    if x.dtype is DType.I16:
        return  # sums of 16-bit activations have 64 bits
    bias = view.constant(2)
    offsets = bias.astype(np.int64) if bias is not None else np.zeros(1, np.int64)
    products = math.prod(w.shape) // max(w.shape[weights_axis], 1)
    # The bound of all weights of the type costs nothing; only where it is too high are the weights read.
    largest = products * 255 * 255 + int(np.abs(offsets).max(initial=0))
    if largest > MAX_SUM and view.constant(1) is not None:
        largest = int(largest_sums(view, weights_axis).max(initial=0))
    need(
        largest <= MAX_SUM,
        f"its sums may reach {largest}, and the format's kernels add in 32 bits",
        "too-large",
        "use fewer channels, a smaller bias, or floats",
    )


def largest_sums(view: NodeView, axis: int) -> Array:
    """Return each channel's largest magnitude of a sum, with or without its bias, of any activations.

    axis: that of the results in the weights, which are constant.
    """
    x, w, weights, bias = view.x, view.input(1), view.constant(1), view.constant(2)
    assert x.quant is not None
    assert w is not None
    assert w.quant is not None
    assert weights is not None
    limits = np.iinfo(x.dtype.numpy)
    low, high = limits.min - x.quant.zero_point[0], limits.max - x.quant.zero_point[0]
    zero = w.quant.zero_point[0] if w.dtype is DType.U8 else 0
    axes = tuple(i for i in range(weights.ndim) if i != axis)
    count = weights.size // weights.shape[axis]
    # Clipped in their own type and added in 64 bits, so that no copy of large weights has 64 bits.
    kind = weights.dtype.type
    positive = np.maximum(weights, kind(zero)).sum(axis=axes, dtype=np.int64) - zero * count
    negative = np.minimum(weights, kind(zero)).sum(axis=axes, dtype=np.int64) - zero * count
    offsets = np.int64(0) if bias is None else bias.astype(np.int64)
    # The kernels add the bias last, so that the products alone must fit as well.
    highest, lowest = positive * high + negative * low, positive * low + negative * high
    sums = np.stack([highest, lowest, highest + offsets, lowest + offsets])
    return np.asarray(np.abs(sums).max(axis=0))


def bias_operand(view: NodeView, results: int) -> Operand:
    """Return the bias as kernels want it: zeros for none, 64 bits beside 16-bit activations."""
    x, w = view.x, view.input(1)
    assert w is not None
    bias = view.input(2)
    dtype = DType.I64 if x.dtype is DType.I16 else DType.I32
    if x.quant is None:
        # Some delegates refuse a convolution without a bias; adding zeros changes no sum.
        return bias.name if bias else ConstantOperand(np.zeros(results, x.dtype.numpy))
    quant = bias_quant(x, w)
    if bias is None:
        return ConstantOperand(np.zeros(results, dtype.numpy), quant)
    if dtype is DType.I32:
        return bias.name
    return ConstantOperand(widen_bias(view), quant)


def widen_bias(view: NodeView) -> Array:
    """Return a constant bias in 64 bits; Refused for one that is computed."""
    array = view.constant(2)
    if array is None:
        raise Refused(
            "its bias is computed; 16-bit activations need a constant one of 64 bits", code="quantization"
        )
    return array.astype(np.int64)

"""Operators over stored integers with random shapes and parameters, for a comparison with LiteRT bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tflite_cases import Case, Operand
from tflite_write import Scales, TableFields, Value

from mace_core.ir import Array, DType, Shape

Options = tuple[str, TableFields] | None
EIGHT = (DType.I8, DType.U8)
RELUS = (0, 1, 3)
"""No activation, ReLU, ReLU6."""


@dataclass(frozen=True)
class Draw:
    """Random parameters; the same seed gives the same ones."""

    rng: np.random.Generator

    def size(self, low: int, high: int) -> int:
        """A size, both ends included."""
        return int(self.rng.integers(low, high, endpoint=True))

    def choice(self, items: Sequence[int]) -> int:
        """One of some numbers."""
        return int(self.rng.choice(items))

    def scale(self, low: float, high: float) -> float:
        """A scale that single precision holds, as files do."""
        return float(np.float32(np.exp(self.rng.uniform(np.log(low), np.log(high)))))

    def zero(self, dtype: DType) -> int:
        """A zero point; 0 for sixteen bits."""
        middle = 128 if dtype is DType.U8 else 0
        return 0 if dtype is DType.I16 else self.size(middle - 70, middle + 70)

    def scales(self, dtype: DType, low: float = 0.01, high: float = 0.2) -> Scales:
        """A scale and a zero point."""
        return Scales((self.scale(low, high),), (self.zero(dtype),))

    def integers(self, shape: Shape, dtype: DType) -> Array:
        """All that a type stores."""
        limits = np.iinfo(dtype.numpy)
        return self.rng.integers(limits.min, limits.max, shape, dtype.numpy, endpoint=True)


def value(dtype: DType, shape: Shape, scales: Scales) -> Value:
    """A tensor that is computed."""
    return Value("", dtype, shape, scales=scales)


def product(
    draw: Draw, dtype: DType, x: Value, w: tuple[Shape, int, bool], depth: int
) -> tuple[Value, Value, Scales]:
    """Weights, a bias and the scale of a result that fills its range.

    w: the shape of the weights, the axis of their outputs, and whether each of these has a scale.
    """
    shape, axis, by_channel = w
    outputs = shape[axis]
    count = outputs if by_channel else 1
    steps = [draw.scale(0.002, 0.02) for _ in range(count)]
    zero = 0 if dtype is not DType.U8 else draw.zero(dtype)
    assert x.scales is not None
    x_step = x.scales.scale[0]
    weights = Value.constant("", draw.integers(shape, dtype), Scales(steps, [zero] * count, axis))
    products = [float(np.float32(np.float32(x_step) * np.float32(s))) for s in steps]
    bias = draw.rng.integers(-8000, 8000, outputs).astype(np.int32)
    # The result of random factors is about as large as its sums, so that few saturate.
    result = Scales(
        (float(np.float32(np.mean(products) * 70 * np.sqrt(depth) * draw.scale(0.5, 4))),),
        (draw.zero(dtype),),
    )
    return weights, Value.constant("", bias, Scales(products, [0] * count)), result


def conv(draw: Draw, dtype: DType) -> Case:
    """CONV_2D, by channel where the type allows it."""
    inner, outputs, kernel = draw.size(1, 20), draw.size(1, 40), (draw.size(1, 3), draw.size(1, 3))
    stride, dilation, same = draw.size(1, 2), draw.size(1, 2), draw.size(0, 1)
    x = value(dtype, (draw.size(1, 2), 9, 8, inner), draw.scales(dtype))
    by_channel = dtype is DType.I8 and bool(draw.size(0, 1))
    shape = (outputs, *kernel, inner)
    w, b, y = product(draw, dtype, x, (shape, 0, by_channel), inner * kernel[0] * kernel[1])
    fields = {"StrideH": stride, "StrideW": stride, "DilationHFactor": dilation, "DilationWFactor": dilation}
    fields |= {"Padding": same, "FusedActivationFunction": draw.choice(RELUS)}
    out = [_windows(n, k, (stride, dilation), not same) for n, k in zip((9, 8), kernel, strict=True)]
    outputs_of = (value(dtype, (x.shape[0], *out, outputs), y),)
    return Case("conv", "CONV_2D", [x, w, b], ("Conv2DOptions", fields), outputs_of, version=3)


def depthwise(draw: Draw, dtype: DType) -> Case:
    """DEPTHWISE_CONV_2D, one or two results for each channel."""
    inner, times, kernel = draw.size(1, 20), draw.size(1, 2), (draw.size(1, 3), draw.size(1, 3))
    stride, same = draw.size(1, 2), draw.size(0, 1)
    x = value(dtype, (1, 9, 8, inner), draw.scales(dtype))
    shape = (1, *kernel, inner * times)
    w, b, y = product(draw, dtype, x, (shape, 3, dtype is DType.I8), kernel[0] * kernel[1])
    fields = {"StrideH": stride, "StrideW": stride, "DilationHFactor": 1, "DilationWFactor": 1}
    fields |= {"Padding": same, "DepthMultiplier": times, "FusedActivationFunction": draw.choice(RELUS)}
    out = [_windows(n, k, (stride, 1), not same) for n, k in zip((9, 8), kernel, strict=True)]
    outputs_of = (value(dtype, (1, *out, inner * times), y),)
    return Case(
        "depthwise", "DEPTHWISE_CONV_2D", [x, w, b], ("DepthwiseConv2DOptions", fields), outputs_of, version=3
    )


def _windows(size: int, kernel: int, step: tuple[int, int], same: bool) -> int:
    """Windows along an axis; step: stride and dilation."""
    stride, dilation = step
    return -(-size // stride) if same else (size - (kernel - 1) * dilation - 1) // stride + 1


def transposed(draw: Draw, dtype: DType) -> Case:
    """TRANSPOSE_CONV."""
    inner, outputs, kernel, stride = draw.size(1, 9), draw.size(1, 9), draw.size(2, 3), draw.size(1, 2)
    x = value(dtype, (1, 4, 5, inner), draw.scales(dtype))
    w, b, y = product(
        draw, dtype, x, ((outputs, kernel, kernel, inner), 0, dtype is DType.I8), inner * kernel
    )
    out = (1, 4 * stride, 5 * stride, outputs)
    fields = {"StrideH": stride, "StrideW": stride, "Padding": 0}
    operands = [np.array(out, np.int32), w, x, b]
    return Case(
        "transposed",
        "TRANSPOSE_CONV",
        operands,
        ("TransposeConvOptions", fields),
        (value(dtype, out, y),),
        version=3,
    )


def fully_connected(draw: Draw, dtype: DType) -> Case:
    """FULLY_CONNECTED."""
    rows, depth, units = draw.size(1, 5), draw.size(1, 90), draw.size(1, 40)
    x = value(dtype, (rows, depth), draw.scales(dtype))
    w, b, y = product(draw, dtype, x, ((units, depth), 0, dtype is DType.I8 and bool(draw.size(0, 1))), depth)
    options = ("FullyConnectedOptions", {"FusedActivationFunction": draw.choice(RELUS)})
    operands: list[Operand] = [x, w, b] if draw.size(0, 2) else [x, w]
    return Case(
        "fully_connected", "FULLY_CONNECTED", operands, options, (value(dtype, (rows, units), y),), version=4
    )


def batch_matmul(draw: Draw, dtype: DType) -> Case:
    """BATCH_MATMUL of two computed factors."""
    batch, rows, depth, columns = draw.size(1, 3), draw.size(1, 6), draw.size(1, 30), draw.size(1, 9)
    x = value(dtype, (batch, rows, depth), draw.scales(dtype))
    y = value(dtype, (batch, depth, columns), draw.scales(dtype))
    result = Scales((draw.scale(0.2, 2),), (draw.zero(dtype),))
    fields: TableFields = {"AdjX": False, "AdjY": False}
    outputs = (value(dtype, (batch, rows, columns), result),)
    return Case("batch_matmul", "BATCH_MATMUL", [x, y], ("BatchMatMulOptions", fields), outputs, version=2)


def binary(code: str) -> Callable[[Draw, DType], Case]:
    """ADD, SUB or MUL, broadcast or not."""

    def make(draw: Draw, dtype: DType) -> Case:
        shape = (draw.size(1, 3), draw.size(2, 6), draw.size(2, 40))
        other = [shape, shape[1:], shape[2:], (1, shape[1], 1)][draw.size(0, 3)]
        low = 1e-4 if dtype is DType.I16 else 0.01
        x, y = (value(dtype, s, draw.scales(dtype, low, 20 * low)) for s in (shape, other))
        result = draw.scales(dtype, low, 20 * low)
        kind = f"{code.capitalize()}Options"
        relus = RELUS if dtype in EIGHT else (0,)
        fields: TableFields = {"FusedActivationFunction": draw.choice(relus)}
        if code != "MUL":
            fields = {**fields, "PotScaleInt16": False}
        return Case(code.lower(), code, [x, y], (kind, fields), (value(dtype, shape, result),), version=3)

    return make


def extreme(draw: Draw, dtype: DType) -> Case:
    """MAXIMUM or MINIMUM, broadcast, of one scale."""
    shape, scales = (2, draw.size(2, 6), draw.size(2, 40)), draw.scales(dtype)
    operands = [value(dtype, shape, scales), value(dtype, shape[1:], scales)]
    code = ("MAXIMUM", "MINIMUM")[draw.size(0, 1)]
    return Case(
        "extreme", code, operands, ("MaximumMinimumOptions", {}), (value(dtype, shape, scales),), version=2
    )


def average(draw: Draw, dtype: DType) -> Case:
    """AVERAGE_POOL_2D, which keeps the scale."""
    kernel, stride, same = (draw.size(1, 4), draw.size(1, 4)), draw.size(1, 2), draw.size(0, 1)
    scales, channels = draw.scales(dtype), draw.size(1, 40)
    fields = {"StrideH": stride, "StrideW": stride, "FilterHeight": kernel[0], "FilterWidth": kernel[1]}
    fields |= {"Padding": same, "FusedActivationFunction": draw.choice(RELUS)}
    out = [_windows(n, k, (stride, 1), not same) for n, k in zip((7, 6), kernel, strict=True)]
    outputs = (value(dtype, (1, *out, channels), scales),)
    return Case(
        "average",
        "AVERAGE_POOL_2D",
        [value(dtype, (1, 7, 6, channels), scales)],
        ("Pool2DOptions", fields),
        outputs,
        version=2,
    )


def mean(draw: Draw, dtype: DType) -> Case:
    """MEAN over any axes."""
    shape = tuple(draw.size(1, 6) for _ in range(4))
    axes = sorted(draw.rng.choice(4, draw.size(1, 3), replace=False).tolist())
    out = tuple(1 if i in axes else n for i, n in enumerate(shape))
    options = ("ReducerOptions", {"KeepDims": True})
    operands: list[Operand] = [value(dtype, shape, draw.scales(dtype)), np.array(axes, np.int32)]
    return Case("mean", "MEAN", operands, options, (value(dtype, out, draw.scales(dtype)),), version=2)


def softmax(draw: Draw, dtype: DType) -> Case:
    """SOFTMAX to steps of 1/256."""
    shape = (draw.size(1, 4), draw.size(1, 50))
    result = Scales((1 / 256,), (-128 if dtype is DType.I8 else 0,))
    x = value(dtype, shape, draw.scales(dtype, 0.001, 1))
    return Case(
        "softmax",
        "SOFTMAX",
        [x],
        ("SoftmaxOptions", {"Beta": 1.0}),
        (value(dtype, shape, result),),
        version=2,
    )


def function(code: str) -> Callable[[Draw, DType], Case]:
    """An element-wise function over every integer of its type."""

    def make(draw: Draw, dtype: DType) -> Case:
        shape = (1, draw.size(20, 300))
        result = draw.scales(dtype)
        least = -128 if dtype is DType.I8 else 0
        result = {"LOGISTIC": Scales((1 / 256,), (least,)), "TANH": Scales((1 / 128,), (least + 128,))}.get(
            code, result
        )
        options: Options = None
        if code == "LEAKY_RELU":
            options = ("LeakyReluOptions", {"Alpha": float(np.float32(draw.rng.uniform(-1, 1)))})
        return Case(
            code.lower(),
            code,
            [value(dtype, shape, draw.scales(dtype))],
            options,
            (value(dtype, shape, result),),
            version=1 if code == "HARD_SWISH" else 2,
        )

    return make


def quantize(draw: Draw, dtype: DType) -> Case:
    """QUANTIZE of floats; some lie between two steps."""
    y = draw.scales(dtype, 0.01, 1)
    limits = np.iinfo(dtype.numpy)
    high = y.scale[0] * float(limits.max)
    x = Value("", DType.F32, (1, 300))
    return Case("quantize", "QUANTIZE", [x], None, (value(dtype, x.shape, y),), low=-high, high=high)


def requantize(draw: Draw, dtype: DType) -> Case:
    """QUANTIZE of stored integers."""
    other = EIGHT[draw.size(0, 1)]
    outputs = (value(other, (1, 300), draw.scales(other)),)
    return Case(
        "requantize", "QUANTIZE", [value(dtype, (1, 300), draw.scales(dtype))], None, outputs, version=2
    )


def dequantize(draw: Draw, dtype: DType) -> Case:
    """DEQUANTIZE to floats."""
    return Case(
        "dequantize",
        "DEQUANTIZE",
        [value(dtype, (1, 300), draw.scales(dtype))],
        None,
        (Value("", DType.F32, (1, 300)),),
        version=2,
    )


def concat(draw: Draw, dtype: DType) -> Case:
    """CONCATENATION of one scale."""
    scales = draw.scales(dtype)
    x, y = (value(dtype, (2, draw.size(1, 9)), scales) for _ in range(2))
    outputs = (value(dtype, (2, x.shape[1] + y.shape[1]), scales),)
    return Case("concat", "CONCATENATION", [x, y], ("ConcatenationOptions", {"Axis": 1}), outputs, version=2)


def max_pool(draw: Draw, dtype: DType) -> Case:
    """MAX_POOL_2D with an activation."""
    scales, channels = draw.scales(dtype), draw.size(1, 40)
    fields = {
        "StrideH": 2,
        "StrideW": 2,
        "FilterHeight": 3,
        "FilterWidth": 2,
        "FusedActivationFunction": draw.choice(RELUS),
    }
    outputs = (value(dtype, (1, 4, 3, channels), scales),)
    return Case(
        "max_pool",
        "MAX_POOL_2D",
        [value(dtype, (1, 7, 6, channels), scales)],
        ("Pool2DOptions", fields),
        outputs,
        version=2,
    )


SIXTEEN = (*EIGHT, DType.I16)
MAKERS: Mapping[Callable[[Draw, DType], Case], Sequence[DType]] = {
    conv: EIGHT,
    depthwise: EIGHT,
    transposed: EIGHT,
    fully_connected: EIGHT,
    batch_matmul: (DType.I8,),
    **{binary(code): SIXTEEN for code in ("ADD", "SUB", "MUL")},
    extreme: EIGHT,
    average: EIGHT,
    mean: SIXTEEN,
    softmax: EIGHT,
    **{function(code): EIGHT for code in ("LOGISTIC", "TANH", "RELU", "RELU6", "LEAKY_RELU", "HARD_SWISH")},
    quantize: EIGHT,
    requantize: EIGHT,
    dequantize: SIXTEEN,
    concat: EIGHT,
    max_pool: EIGHT,
}


def draw_cases(seed: int, count: int) -> Iterator[Case]:
    """Draw `count` cases of each operator and type."""
    draw = Draw(np.random.default_rng(seed))
    for make, dtypes in MAKERS.items():
        for dtype in dtypes:
            for _ in range(count):
                yield make(draw, dtype)

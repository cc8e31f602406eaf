"""For each constraint an operator that just keeps it, and one that just breaks it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import tflite

from mace_target_ethosu.operators import OperatorView, TensorView

SAME, VALID = tflite.Padding.SAME, tflite.Padding.VALID
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """A constraint of a generation with both sides of its limit."""

    generation: str
    constraint: str
    keeps: OperatorView
    breaks: OperatorView


def fm(shape: Shape = (1, 8, 8, 16), dtype: str = "INT8", scale: float = 0.5, zero: int = 0) -> TensorView:
    """A quantized feature map."""
    return TensorView("t", dtype, shape, (scale,), (zero,))


def const(values: object, dtype: str = "INT32") -> TensorView:
    """A constant of integers, such as axes."""
    data = np.asarray(values, dtype.lower())
    return TensorView("c", dtype, data.shape, data=data)


def plain(shape: Shape = (1, 8, 8, 16), dtype: str = "INT8") -> TensorView:
    """A feature map without quantization."""
    return TensorView("t", dtype, shape)


def op(
    code: str, *inputs: TensorView | None, out: TensorView | None = None, **options: object
) -> OperatorView:
    """An operator with one result, like its first input if none is given."""
    first = next(t for t in inputs if t is not None and t.data is None)

    def option(name: str) -> object:
        if name not in options and name.startswith("Stride") and code == "FULLY_CONNECTED":
            raise AttributeError(name)
        defaults = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1, "Padding": SAME}
        return options.get(name, defaults.get(name))

    return OperatorView(code, inputs, (out or first,), option)


def weights(values: object, dtype: str = "INT8") -> TensorView:
    """Weights with a scale."""
    data = np.asarray(values, dtype.lower())
    return TensorView("w", dtype, data.shape, (1.0,), (0,), data)


def conv(
    w: TensorView | None = None,
    bias: TensorView | None = None,
    x: TensorView | None = None,
    **options: object,
) -> OperatorView:
    """A convolution; its operands where they are given."""
    return op("CONV_2D", x or fm(), w or weights(np.ones((4, 3, 3, 16))), bias, **options)


def dense(
    w: TensorView | None = None, x: TensorView | None = None, out: TensorView | None = None
) -> OperatorView:
    """A fully connected layer."""
    return op(
        "FULLY_CONNECTED", x or fm((1, 16)), w or weights(np.ones((4, 16))), None, out=out or fm((1, 4))
    )


def pool(code: str, height: int, width: int, padding: int) -> OperatorView:
    """A pool with a window."""
    return op(code, fm((1, 400, 400, 8)), FilterHeight=height, FilterWidth=width, Padding=padding)


def resize(code: str, size: Shape, result: Shape, **options: object) -> OperatorView:
    """A resize from a size to another."""
    return op(code, fm((1, *size, 8)), const([*result]), out=fm((1, *result, 8)), **options)


def reduce(code: str, shape: Shape, axes: list[int], dtype: str = "INT8") -> OperatorView:
    """A reduction along axes."""
    return op(
        code,
        fm(shape, dtype),
        const(axes),
        out=fm(tuple(n for i, n in enumerate(shape) if i not in axes), dtype),
    )


def transpose(shape: Shape, order: list[int], dtype: str = "INT8") -> OperatorView:
    """A transpose by an order of axes."""
    return op("TRANSPOSE", fm(shape, dtype), const(order), out=fm(tuple(shape[i] for i in order), dtype))


def deconv(size: Shape, kernel: Shape, strides: Shape, result: Shape, padding: int) -> OperatorView:
    """A transposed convolution."""
    return op(
        "TRANSPOSE_CONV",
        const([1, *result, 4]),
        weights(np.ones((4, *kernel, 8))),
        fm((1, *size, 8)),
        out=fm((1, *result, 4)),
        StrideH=strides[0],
        StrideW=strides[1],
        Padding=padding,
    )


def lstm(*absent: int, present: tuple[int, ...] = ()) -> OperatorView:
    """A recurrent layer with all gates, without or with operands by number."""
    always = (*range(9), *range(12, 16), 18, 19)
    inputs = [fm() if (i in always and i not in absent) or i in present else None for i in range(24)]
    return replace(op("UNIDIRECTIONAL_SEQUENCE_LSTM", fm()), inputs=tuple(inputs))


def general_cases() -> Iterator[Case]:
    """Constraints of types and quantization."""
    relu = op("RELU", fm())
    yield Case("u55", "types-u55", relu, op("RELU", fm(dtype="FLOAT32")))
    yield Case("u85", "types-u85", op("RELU", fm(dtype="INT16")), op("RELU", fm(dtype="FLOAT32")))
    yield Case("u55", "one-ifm", relu, replace(relu, inputs=(weights([1]),)))
    yield Case("u55", "quantized", relu, op("RELU", plain()))
    yield Case("u55", "positive-scale", relu, op("RELU", fm(scale=0.0)))
    two = TensorView("t", "INT8", (1, 8, 8, 2), (0.5, 0.5), (0, 0))
    yield Case("u55", "per-axis", relu, op("RELU", two))
    yield Case("u55", "no-64-bit", relu, op("RESHAPE", fm(dtype="INT64")))
    yield Case(
        "u55", "no-32-bit", op("ADD", fm(dtype="INT32"), fm(dtype="INT32")), op("RELU", fm(dtype="INT32"))
    )
    add = op("ADD", fm(dtype="INT32"), fm(dtype="INT32"))
    yield Case("u55", "zero-points-u55", add, op("ADD", fm(dtype="INT32", zero=1), fm(dtype="INT32")))
    wide = op("RELU", fm(dtype="INT16", zero=1))
    yield Case("u85", "ifm-zero-points-u85", op("RELU", fm(zero=-128)), wide)
    yield Case("u85", "ofm-zero-points-u85", relu, op("RELU", fm(), out=fm(zero=128)))
    both = op("MAXIMUM", fm(), fm())
    yield Case("u55", "same-quantization", both, op("MAXIMUM", fm(), fm(scale=0.25)))
    yield Case("u55", "same-type-int8", op("ELU", fm()), op("ELU", fm(dtype="INT16")))
    yield Case("u55", "same-type-8-bits", op("GELU", fm(dtype="UINT8")), op("GELU", fm(dtype="INT16")))
    yield Case("u55", "same-type-int8-int16", op("LOG", fm(dtype="INT16")), op("LOG", fm(dtype="UINT8")))
    yield Case("u55", "rsqrt-type", op("RSQRT", fm(dtype="INT16")), op("RSQRT", fm(dtype="UINT8")))
    yield Case("u55", "same-shape", op("ELU", fm()), op("ELU", fm(), out=fm((1, 8, 8, 8))))


def product_cases() -> Iterator[Case]:
    """Constraints of weights, biases and products."""
    yield Case("u55", "weights-8-bit", conv(), conv(weights(np.ones((4, 1, 1, 1)), "INT16")))
    # 65,536 x 127 = 8,323,072, the limit.
    full = np.full((1, 1, 1, 65536), 127)
    over = full.copy()
    over[0, 0, 0, 0] = -128
    yield Case("u55", "weight-sum-u55", conv(weights(full)), conv(weights(over)))
    yield Case("u85", "weight-sum-u85", conv(weights(over), x=fm(dtype="INT16")), conv(weights(over)))
    yield Case("u55", "bias-on-channels", conv(bias=const([[1, 2]])), conv(bias=const([[1], [2]])))
    yield Case("u55", "constant-bias", conv(bias=const([1])), conv(bias=plain((4,), "INT32")))
    yield Case("u55", "bias-type", conv(bias=const([1], "INT64")), conv(bias=const([1], "INT16")))
    for name, generation, limit in (("bias-40-bits", "u55", 2**40 - 1), ("bias-48-bits", "u85", 2**48 - 1)):
        small, large = (conv(bias=const([value], "INT64")) for value in (limit - 1, limit))
        yield Case(generation, name, small, large)
    yield Case("u55", "fully-connected-weights", dense(), dense(weights(np.ones((4, 2, 16)))))
    computed = fm((4, 16), "INT8")
    yield Case("u55", "dynamic-matmul-type", dense(computed), dense(computed, fm((1, 16), "UINT8")))
    deep = [dense(computed, out=fm((1, 65536 + more))) for more in (0, 1)]
    yield Case("u55", "dynamic-matmul-depth", *deep)
    long = [
        op("BATCH_MATMUL", fm((4, 65536 + more)), fm((65536 + more, 4)), out=fm((4, 4))) for more in (0, 1)
    ]
    yield Case("u55", "dynamic-matmul-axis", *long)


def image_cases() -> Iterator[Case]:
    """Constraints of windows, strides and factors."""
    deep = weights(np.ones((1, 3, 3, 16)))
    steps = [op("DEPTHWISE_CONV_2D", fm(), deep, None, StrideH=n, StrideW=1) for n in (3, 4)]
    yield Case("u55", "stride-1-to-3", *steps)
    yield Case("u55", "stride-or-valid", conv(StrideH=4, Padding=VALID), conv(StrideH=4, Padding=SAME))
    yield Case(
        "u55", "average-window", pool("AVERAGE_POOL_2D", 8, 8, SAME), pool("AVERAGE_POOL_2D", 9, 8, SAME)
    )
    yield Case(
        "u85",
        "average-window",
        pool("AVERAGE_POOL_2D", 256, 256, VALID),
        pool("AVERAGE_POOL_2D", 257, 1, VALID),
    )
    yield Case(
        "u55", "max-window", pool("MAX_POOL_2D", 256, 256, VALID), pool("MAX_POOL_2D", 256, 257, VALID)
    )
    linear, nearest = "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"
    yield Case(
        "u55", "resize-bilinear-u55", resize(linear, (4, 4), (32, 32)), resize(linear, (4, 4), (12, 12))
    )
    half = [resize(linear, (4, 4), (size, size), HalfPixelCenters=True) for size in (8, 16)]
    yield Case("u55", "resize-bilinear-u55", *half)
    yield Case("u55", "resize-bilinear-u55", resize(linear, (1, 4), (1, 8)), resize(linear, (2, 4), (2, 8)))
    aligned = [resize(nearest, (4, 4), (size, size), AlignCorners=True) for size in (7, 8)]
    yield Case("u55", "resize-nearest-u55", *aligned)
    both = {"AlignCorners": True, "HalfPixelCenters": True}
    yield Case(
        "u85", "resize-exclusive", resize(nearest, (4, 4), (8, 8)), resize(nearest, (4, 4), (8, 8), **both)
    )
    large = [resize(nearest, (2, 2), (2 * n, 2)) for n in (1024, 1025)]
    yield Case("u85", "resize-max-factor", *large)
    yield Case(
        "u85", "resize-power-of-two", resize(linear, (4, 4), (16, 16)), resize(linear, (4, 4), (12, 12))
    )
    fits, larger = (deconv((4, 4), (3, 3), (2, 2), (n, n), VALID) for n in (9, 10))
    yield Case("u55", "transpose-conv-shape", fits, larger)
    row = deconv((1, 4), (1, 3), (1, 2), (1, 8), SAME)
    yield Case("u55", "transpose-conv-stride", row, deconv((4, 4), (3, 3), (1, 2), (4, 8), SAME))


def shape_cases() -> Iterator[Case]:
    """Constraints of axes, sizes and operands."""
    pads = const([[0, 0], [1, 1], [1, 1], [0, 0]])
    wider = fm((1, 10, 10, 16))
    pad = op("PAD", fm(), pads, out=wider)
    yield Case("u55", "constant-parameters", pad, op("PAD", fm(), plain((4, 2), "INT32"), out=wider))
    yield Case("u55", "parameter-type", pad, op("PAD", fm(), const([[0, 0]], "INT16"), out=wider))
    yield Case(
        "u55",
        "mean-type",
        reduce("MEAN", (1, 8, 8, 4), [1, 2]),
        reduce("MEAN", (1, 8, 8, 4), [1, 2], "INT64"),
    )
    yield Case("u55", "mean-batch", reduce("MEAN", (1, 8, 8, 4), [1]), reduce("MEAN", (2, 8, 8, 4), [1]))
    yield Case("u55", "mean-depth", reduce("MEAN", (1, 1, 8, 4), [3]), reduce("MEAN", (1, 8, 8, 4), [3]))
    yield Case("u55", "mean-axis", reduce("MEAN", (1, 4095, 8, 4), [1]), reduce("MEAN", (1, 4096, 8, 4), [1]))
    few, many = (reduce("MEAN", (1, n, 256, 4), [1, 2], "INT16") for n in (256, 257))
    yield Case("u55", "mean-elements", few, many)
    yield Case("u55", "softmax-area", op("SOFTMAX", fm((1, 65535, 4))), op("SOFTMAX", fm((1, 65536, 4))))
    small, deep = (reduce("ARG_MAX", (1, 4, 4, n), [3]) for n in (127, 128))
    yield Case("u55", "argmax-depth", small, deep)
    yield Case("u55", "argmax-axis", small, reduce("ARG_MAX", (1, 4, 4, 8), [2]))
    yield Case("u55", "reverse-axis", op("REVERSE_V2", fm(), const([])), op("REVERSE_V2", fm(), const([1])))
    zeros, sizes = const([0, 0, 0, 0]), const([1, 8, 8, 16])
    steps = [op("STRIDED_SLICE", fm(), zeros, sizes, const([1, 2, 2, n])) for n in (1, 2)]
    yield Case("u55", "slice-volume", *steps)
    yield Case("u85", "transpose-rank", transpose((1,) * 8, [*range(8)]), transpose((1,) * 9, [*range(9)]))
    wide, wider32 = (transpose((1, 4, 4, 2**14 + n), [0, 2, 1, 3], "INT32") for n in (0, 1))
    yield Case("u55", "transpose-int32", wide, wider32)
    short, long = (transpose((1, 2**16 + n, 2, 2), [0, 2, 1, 3]) for n in (0, 1))
    yield Case("u55", "transpose-8-16-bits", short, long)
    outer = [transpose((2, 2**15 + n, 2, 2), [1, 0, 2, 3]) for n in (0, 1)]
    yield Case("u55", "transpose-8-16-bits", *outer)
    yield Case(
        "u85",
        "gather-axis",
        op("GATHER", fm(), plain((4,), "INT32"), Axis=0, BatchDims=0),
        op("GATHER", fm(), plain((4,), "INT32"), Axis=1, BatchDims=0),
    )
    yield Case("u55", "lstm-gates", lstm(), lstm(1))
    yield Case("u55", "lstm-peephole", lstm(), lstm(present=(10,)))
    yield Case("u55", "lstm-projection", lstm(), lstm(present=(16,)))
    yield Case("u55", "lstm-norm", lstm(), lstm(present=(20,)))
    index, sizes = const([[0], [1]]), const([4, 4])
    scatter = op("SCATTER_ND", index, fm((2, 4)), sizes)
    yield Case("u85", "scatter-shape", scatter, op("SCATTER_ND", index, fm((2, 4)), plain((2,), "INT32")))
    yield Case("u85", "scatter-index", scatter, op("SCATTER_ND", plain((2, 1), "INT32"), fm((2, 4)), sizes))
    yield Case("u85", "scatter-channel", scatter, op("SCATTER_ND", const([[0, 1]]), fm((1, 4)), sizes))
    yield Case("u85", "scatter-unique", scatter, op("SCATTER_ND", const([[0], [0]]), fm((2, 4)), sizes))


CASES = (*general_cases(), *product_cases(), *image_cases(), *shape_cases())

"""Writes each operation of NNAPI as an operator of a TFLite file, and checks what Android's page demands of its operands."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from neuron_network import (
    BOOL,
    FLOAT16,
    FLOAT32,
    INT32,
    NUMPY,
    T_CHANNELS,
    T_FLOAT16,
    T_INT8,
    T_INT32,
    T_UINT8,
    Writer,
)

FUSED = {0: 0, 1: 1, 2: 2, 3: 3}
"""Of FuseCode to ActivationFunctionType: NONE, RELU, RELU1, RELU6."""


class Call:
    """One operation: its operands, and the TFLite tensors of them."""

    def __init__(self, writer: Writer, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> None:
        self.writer, self.numbers, self.results = writer, inputs, outputs
        self.operands = [writer.network.operands[i] for i in inputs]
        self.outputs = [writer.network.operands[i] for i in outputs]

    def scalar(self, i: int, kind: int = INT32) -> int:
        assert self.operands[i].type == kind, f"input {i} has type {self.operands[i].type}, not {kind}"
        return self.operands[i].scalar

    def optional(self, i: int, default: int, kind: int = INT32) -> int:
        return self.scalar(i, kind) if i < len(self.operands) else default

    def tensors(self, *which: int) -> list[int]:
        return [self.writer.tensor(self.numbers[i]) for i in which]

    def emit(self, name: str, inputs: list[int], options: str = "", **values: object) -> None:
        self.writer.call(name, inputs, [self.writer.tensor(i) for i in self.results], options, **values)

    def emit_product(self, name: str, inputs: list[int], options: str, **values: object) -> None:
        """Emit a product with filters; in int8 where they have scales of channels, which TFLite has beside int8 alone."""
        x, y = self.operands[0], self.outputs[0]
        if self.operands[1].type != T_CHANNELS or x.type != T_UINT8:
            self.emit(name, inputs, options, **values)
            return
        assert y.type == T_UINT8
        data = self.tensors(0)[0]
        signed, product = (
            self.writer.add("i1", o.shape, b"", ([o.scale], [o.zero - 128], 0)) for o in (x, y)
        )
        self.writer.call("QUANTIZE", [data], [signed])
        inputs = [signed if number == data else number for number in inputs]
        self.writer.call(name, inputs, [product], options, **values)
        self.writer.call("QUANTIZE", [product], [self.writer.tensor(self.results[0])])

    def expect(self, count: int, most: int | None = None) -> None:
        assert count <= len(self.operands) <= (most or count), f"{len(self.operands)} inputs"

    def same_scale(self) -> None:
        for result in self.outputs:
            assert (result.scale, result.zero) == (self.operands[0].scale, self.operands[0].zero), (
                "the result has another scale"
            )

    def real(self) -> None:
        assert not any(o.is_quantized for o in (*self.operands, *self.outputs)), "of real numbers alone"

    def check_bias(self) -> int:
        """The TFLite tensor of the bias; the page says what its scale is where the operand has none."""
        data, filters, bias = self.operands[:3]
        if not data.is_quantized:
            assert bias.type == data.type == filters.type
            return self.tensors(2)[0]
        assert bias.type == T_INT32
        assert bias.zero == 0
        if filters.type == T_CHANNELS:
            assert bias.scale == 0
            scales = (np.float32(data.scale) * np.array(filters.scales, np.float32)).tolist()
            return self.writer.add("<i4", bias.shape, bias.data, (scales, [0] * len(scales), 0))
        product = np.float32(data.scale) * np.float32(filters.scale)
        assert np.isclose(bias.scale, product, rtol=1e-6, atol=0)
        return self.tensors(2)[0]


def padding(code: int) -> int:
    return {1: 0, 2: 1}[code]  # PADDING_SAME, PADDING_VALID; in the schema SAME is 0


def channel_first(c: Call, i: int) -> None:
    assert not c.optional(i, 0, BOOL), "the data are NHWC"


def convolution(c: Call) -> None:
    c.expect(7, 10)  # implicit padding
    bias = c.check_bias()
    channel_first(c, 7)
    assert c.operands[1].type != T_CHANNELS or c.operands[1].axis == 0
    c.emit_product("CONV_2D", [*c.tensors(0, 1), bias], "Conv2DOptions", padding=padding(c.scalar(3)), strideW=c.scalar(4),
           strideH=c.scalar(5), fusedActivationFunction=FUSED[c.scalar(6)],
           dilationWFactor=c.optional(8, 1), dilationHFactor=c.optional(9, 1))  # fmt: skip


def depthwise(c: Call) -> None:
    c.expect(8, 11)
    bias = c.check_bias()
    channel_first(c, 8)
    assert c.operands[1].type != T_CHANNELS or c.operands[1].axis == 3
    assert c.operands[1].shape[3] == c.operands[0].shape[3] * c.scalar(6)
    c.emit_product("DEPTHWISE_CONV_2D", [*c.tensors(0, 1), bias], "DepthwiseConv2DOptions", padding=padding(c.scalar(3)),
           strideW=c.scalar(4), strideH=c.scalar(5), depthMultiplier=c.scalar(6), fusedActivationFunction=FUSED[c.scalar(7)],
           dilationWFactor=c.optional(9, 1), dilationHFactor=c.optional(10, 1))  # fmt: skip


def transpose_convolution(c: Call) -> None:
    c.expect(9)
    bias = c.check_bias()
    channel_first(c, 8)
    assert c.operands[3].type == T_INT32
    data, filters, shape = c.tensors(0, 1, 3)
    c.emit_product("TRANSPOSE_CONV", [shape, filters, data, bias], "TransposeConvOptions", padding=padding(c.scalar(4)),
           strideW=c.scalar(5), strideH=c.scalar(6), fusedActivationFunction=FUSED[c.scalar(7)])  # fmt: skip


def fully_connected(c: Call) -> None:
    c.expect(4)
    bias = c.check_bias()
    assert len(c.outputs[0].shape) == 2
    c.emit(
        "FULLY_CONNECTED",
        [*c.tensors(0, 1), bias],
        "FullyConnectedOptions",
        fusedActivationFunction=FUSED[c.scalar(3)],
    )


def pool(name: str) -> Callable[[Call], None]:
    def write(c: Call) -> None:
        c.expect(7, 8)
        channel_first(c, 7)
        c.same_scale() if name != "L2_POOL_2D" else c.real()
        c.emit(name, c.tensors(0), "Pool2DOptions", padding=padding(c.scalar(1)), strideW=c.scalar(2), strideH=c.scalar(3),
               filterWidth=c.scalar(4), filterHeight=c.scalar(5), fusedActivationFunction=FUSED[c.scalar(6)])  # fmt: skip

    return write


def arithmetic(name: str) -> Callable[[Call], None]:
    def write(c: Call) -> None:
        c.expect(3)
        assert c.operands[0].type == c.operands[1].type
        if name == "MUL" and c.outputs[0].is_quantized:
            assert c.outputs[0].scale > c.operands[0].scale * c.operands[1].scale
        options = f"{name.title()}Options"
        c.emit(name, c.tensors(0, 1), options, fusedActivationFunction=FUSED[c.scalar(2)])

    return write


def plain(name: str, count: int = 1, rule: str = "", options: str = "") -> Callable[[Call], None]:
    def write(c: Call) -> None:
        c.expect(count)
        if rule:
            getattr(c, rule)()
        c.emit(name, c.tensors(*range(count)), options)

    return write


def fixed(name: str, scale: float, zero: int, unsigned_zero: int) -> Callable[[Call], None]:
    """An operation whose quantized result has a scale that the page fixes."""

    def write(c: Call) -> None:
        result = c.outputs[0]
        if result.type in (T_INT8, T_UINT8):
            assert result.scale == scale
            assert result.zero == (zero if result.type == T_INT8 else unsigned_zero)
        if name == "SOFTMAX":
            c.expect(2, 3)
            beta = c.scalar(1, FLOAT16 if c.operands[0].type == T_FLOAT16 else FLOAT32)
            assert c.optional(2, -1) in (-1, len(c.operands[0].shape) - 1)
            return c.emit(name, c.tensors(0), "SoftmaxOptions", beta=beta)
        c.expect(1)
        return c.emit(name, c.tensors(0))

    return write


def concatenation(c: Call) -> None:
    count = len(c.operands) - 1
    c.emit("CONCATENATION", c.tensors(*range(count)), "ConcatenationOptions", axis=c.scalar(count))


def reshape(c: Call) -> None:
    c.expect(2)
    c.same_scale()
    assert c.operands[1].type == T_INT32
    c.emit("RESHAPE", c.tensors(0, 1), "ReshapeOptions", newShape=c.operands[1].value.tolist())


def resize(name: str, options: str) -> Callable[[Call], None]:
    def write(c: Call) -> None:
        c.expect(3, 6)
        channel_first(c, 3)
        c.same_scale()
        width, height = c.scalar(1), c.scalar(2)
        size = c.writer.constant(np.array([height, width]))
        c.emit(name, [*c.tensors(0), size], options, alignCorners=bool(c.optional(4, 0, BOOL)),
               halfPixelCenters=bool(c.optional(5, 0, BOOL)))  # fmt: skip

    return write


def block(name: str, options: str) -> Callable[[Call], None]:
    def write(c: Call) -> None:
        c.expect(2, 3)
        c.same_scale()
        c.emit(name, c.tensors(0), options, blockSize=c.scalar(1))

    return write


def batch_to_space(c: Call) -> None:
    c.expect(2, 3)
    c.same_scale()
    crops = c.writer.constant(np.zeros((c.operands[1].shape[0], 2)))
    c.emit("BATCH_TO_SPACE_ND", [*c.tensors(0, 1), crops])


def reduction(name: str, rule: str, flag: int = BOOL) -> Callable[[Call], None]:
    def write(c: Call) -> None:
        c.expect(3)
        getattr(c, rule)()
        assert c.operands[1].type == T_INT32
        c.emit(name, c.tensors(0, 1), "ReducerOptions", keepDims=bool(c.scalar(2, flag)))

    return write


def pad_with_value(c: Call) -> None:
    c.expect(3)
    c.same_scale()
    data, value = c.operands[0], c.operands[2]
    assert value.type == (INT32 if data.is_quantized else FLOAT16 if data.type == T_FLOAT16 else FLOAT32)
    quant = ([data.scale], [data.zero], 0) if data.is_quantized else None
    array = np.array([value.scalar], NUMPY[data.type])
    c.emit("PADV2", [*c.tensors(0, 1), c.writer.add(NUMPY[data.type], (1,), array.tobytes(), quant)])


def strided_slice(c: Call) -> None:
    c.expect(7)
    c.same_scale()
    c.emit("STRIDED_SLICE", c.tensors(0, 1, 2, 3), "StridedSliceOptions", beginMask=c.scalar(4), endMask=c.scalar(5),
           shrinkAxisMask=c.scalar(6))  # fmt: skip


def split(c: Call) -> None:
    c.expect(3)
    c.same_scale()
    axis = c.writer.constant(np.array(c.scalar(1)))
    assert len(c.results) == c.scalar(2)
    c.emit("SPLIT", [axis, *c.tensors(0)], "SplitOptions", numSplits=c.scalar(2))


def extreme_index(name: str, options: str) -> Callable[[Call], None]:
    def write(c: Call) -> None:
        c.expect(2)
        axis = c.writer.constant(np.array(c.scalar(1)))
        c.emit(name, [*c.tensors(0), axis], options, outputType=2)

    return write


def gather(c: Call) -> None:
    c.expect(3)
    c.same_scale()
    assert c.operands[2].type == T_INT32
    c.emit("GATHER", c.tensors(0, 2), "GatherOptions", axis=c.scalar(1))


def matrix_product(c: Call) -> None:
    c.expect(4)
    flags = [bool(c.scalar(i, BOOL)) for i in (2, 3)]
    c.emit("BATCH_MATMUL", c.tensors(0, 1), "BatchMatMulOptions", adjX=flags[0], adjY=flags[1])


OPERATIONS: dict[int, Callable[[Call], None]] = {
    0: arithmetic("ADD"), 1: pool("AVERAGE_POOL_2D"), 2: concatenation, 3: convolution, 4: depthwise,
    5: block("DEPTH_TO_SPACE", "DepthToSpaceOptions"), 6: plain("DEQUANTIZE"), 8: plain("FLOOR", rule="real"), 9: fully_connected,
    11: plain("L2_NORMALIZATION", options="L2NormOptions"), 12: pool("L2_POOL_2D"), 14: fixed("LOGISTIC", 1 / 256, -128, 0),
    17: pool("MAX_POOL_2D"), 18: arithmetic("MUL"), 19: plain("RELU"), 20: plain("RELU_N1_TO_1"), 21: plain("RELU6"), 22: reshape,
    23: resize("RESIZE_BILINEAR", "ResizeBilinearOptions"), 25: fixed("SOFTMAX", 1 / 256, -128, 0),
    26: block("SPACE_TO_DEPTH", "SpaceToDepthOptions"), 28: fixed("TANH", 1 / 128, 0, 128), 29: batch_to_space, 30: arithmetic("DIV"),
    31: reduction("MEAN", "same_scale", INT32), 32: plain("PAD", 2, "same_scale"), 33: plain("SPACE_TO_BATCH_ND", 3, "same_scale"),
    35: strided_slice, 36: arithmetic("SUB"), 37: plain("TRANSPOSE", 2, "same_scale"), 38: plain("ABS", rule="real"),
    39: extreme_index("ARG_MAX", "ArgMaxOptions"), 40: extreme_index("ARG_MIN", "ArgMinOptions"), 45: plain("CAST"),
    48: plain("EQUAL", 2), 49: plain("EXP", rule="real"), 51: gather, 53: plain("GREATER", 2), 54: plain("GREATER_EQUAL", 2),
    58: plain("LESS", 2), 59: plain("LESS_EQUAL", 2), 61: plain("LOGICAL_AND", 2), 62: plain("LOGICAL_NOT"),
    63: plain("LOGICAL_OR", 2), 65: plain("MAXIMUM", 2), 66: plain("MINIMUM", 2), 67: plain("NEG", rule="real"),
    68: plain("NOT_EQUAL", 2), 69: pad_with_value, 70: plain("POW", 2, "real"), 71: plain("PRELU", 2), 72: plain("QUANTIZE"),
    77: reduction("REDUCE_MAX", "same_scale"), 78: reduction("REDUCE_MIN", "same_scale"), 80: reduction("SUM", "real"),
    83: plain("RSQRT", rule="real"), 84: plain("SELECT", 3), 86: plain("SLICE", 3, "same_scale"), 87: split,
    88: plain("SQRT", rule="real"), 89: plain("TILE", 2, "same_scale"), 91: transpose_convolution,
    94: resize("RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions"), 99: plain("HARD_SWISH"), 102: matrix_product,
}  # fmt: skip

"""TFLite files of one operator each, one at least for every operator that the encoder knows."""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema
from neuron_session import STUB

from mace_core.ir import Array

sys.path.insert(0, str(STUB))
from neuron_network import TYPES, Writer


@dataclass(frozen=True)
class Port:
    """A tensor of a file: an input, or the result where it stands last."""

    shape: tuple[int, ...]
    kind: str = "<f4"
    scale: float = 0.0
    zero: int = 0


def real(*shape: int) -> Port:
    return Port(shape)


def int8(*shape: int, scale: float = 0.05, zero: int = 3) -> Port:
    return Port(shape, "i1", scale, zero)


def uint8(*shape: int, scale: float = 0.05, zero: int = 120) -> Port:
    return Port(shape, "u1", scale, zero)


def write_file(
    name: str, operands: Sequence[Port | Array | None], results: Sequence[Port], **options: object
) -> bytes:
    """A TFLite file of one operator; arrays are constants, None is absent, `kind` names the table of options."""
    writer = Writer.__new__(Writer)
    writer.model, writer.graph = schema.ModelT(), schema.SubGraphT()
    writer.model.version, writer.model.subgraphs = 3, [writer.graph]
    writer.model.buffers, writer.model.operatorCodes = [schema.BufferT()], []
    writer.graph.tensors, writer.graph.operators, writer.graph.inputs = [], [], []

    def add(operand: Port | Array | None) -> int:
        if operand is None:
            return -1
        if isinstance(operand, Port):
            quant = ([operand.scale], [operand.zero], 0) if operand.scale else None
            return int(writer.add(operand.kind, operand.shape, b"", quant))
        kind = next(key for key in TYPES if np.dtype(key) == operand.dtype)
        quant = ([0.02], [0], 0) if operand.dtype == np.int8 else None
        if name == "CONV_2D" and operand.dtype == np.int32:
            quant = ([0.05 * 0.02], [0], 0)
        return int(writer.add(kind, operand.shape, operand.tobytes(), quant))

    inputs = [add(operand) for operand in operands]
    writer.graph.inputs = [n for n, o in zip(inputs, operands, strict=True) if isinstance(o, Port)]
    writer.graph.outputs = [add(result) for result in results]
    kind = str(options.pop("kind", ""))
    writer.call(name, inputs, writer.graph.outputs, kind, **options)
    builder = flatbuffers.Builder(1024)
    builder.Finish(writer.model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def stub_network(network: bytes) -> bytes:
    """The network as the stub writes it, without driver and stub; mdla_network.h has the layout."""
    counts = struct.unpack_from("<6I", network, 32)
    operands, operations, words, inputs, outputs, _ = counts
    (start,) = struct.unpack_from("<Q", network, 56)
    pool = 80 + 48 * operands + 24 * operations
    out = [b"STUBNET1", struct.pack("<5I", operands, operations, inputs, outputs, 0)]

    def pick(first: int, count: int) -> bytes:
        return network[pool + 4 * first : pool + 4 * (first + count)]

    for i in range(operands):
        kind, rank, shape, scale, zero, axis, scales, count, offset, size = struct.unpack_from(
            "<iIIfiIIIQQ", network, 80 + 48 * i
        )
        out.append(struct.pack("<iI", kind, rank) + pick(shape, rank).ljust(32, b"\0"))
        out.append(struct.pack("<fiIIQ", scale, zero, axis if count else 0, count, size))
        out.append(pick(scales, count) + network[start + offset : start + offset + size])
    for i in range(operations):
        at = 80 + 48 * operands + 24 * i
        code, input_count, first, output_count, last, _ = struct.unpack_from("<iIIIII", network, at)
        out.append(struct.pack("<iII", code, input_count, output_count))
        out.append(pick(first, input_count) + pick(last, output_count))
    assert words
    return b"".join((*out, pick(0, inputs + outputs)))


RNG = np.random.default_rng(5)
FILTERS = RNG.normal(size=(4, 3, 2, 3)).astype(np.float32)
DEPTHWISE = RNG.normal(size=(1, 3, 2, 6)).astype(np.float32)
BIAS = RNG.normal(size=4).astype(np.float32)
CONV = {"strideW": 2, "strideH": 1, "dilationWFactor": 1, "dilationHFactor": 1}
WINDOW = {"padding": 0, "strideW": 2, "strideH": 1, "filterWidth": 3, "filterHeight": 2}
I32 = np.int32
FILES = {
    "conv": (
        "CONV_2D",
        [real(1, 5, 7, 3), FILTERS, BIAS],
        [real(1, 5, 4, 4)],
        "Conv2DOptions",
        {**CONV, "padding": 0, "fusedActivationFunction": 1},
    ),
    "conv valid": (
        "CONV_2D",
        [real(1, 9, 7, 3), FILTERS, BIAS],
        [real(1, 5, 6, 4)],
        "Conv2DOptions",
        {**CONV, "padding": 1, "strideW": 1, "dilationHFactor": 2},
    ),
    "conv int8": (
        "CONV_2D",
        [int8(1, 5, 7, 3), (FILTERS * 30).astype(np.int8), np.array([9, -90, 0, 400], I32)],
        [int8(1, 5, 4, 4, scale=0.3)],
        "Conv2DOptions",
        {**CONV, "padding": 0},
    ),
    "depthwise": (
        "DEPTHWISE_CONV_2D",
        [real(1, 5, 7, 3), DEPTHWISE],
        [real(1, 5, 4, 6)],
        "DepthwiseConv2DOptions",
        {**CONV, "padding": 0, "depthMultiplier": 2, "fusedActivationFunction": 3},
    ),
    "depthwise dilated": (
        "DEPTHWISE_CONV_2D",
        [real(1, 5, 7, 3), DEPTHWISE],
        [real(1, 5, 7, 6)],
        "DepthwiseConv2DOptions",
        {
            **CONV,
            "strideW": 1,
            "padding": 0,
            "depthMultiplier": 2,
            "dilationWFactor": 3,
            "dilationHFactor": 2,
        },
    ),
    "transpose conv": (
        "TRANSPOSE_CONV",
        [np.array([1, 7, 12, 4], I32), FILTERS, real(1, 5, 6, 3), BIAS],
        [real(1, 7, 12, 4)],
        "TransposeConvOptions",
        {"padding": 1, "strideW": 2, "strideH": 1},
    ),
    "fully connected": (
        "FULLY_CONNECTED",
        [real(2, 3), FILTERS.reshape(4, 18)[:, :3].copy(), None],
        [real(2, 4)],
        "FullyConnectedOptions",
        {"fusedActivationFunction": 1},
    ),
    "average pool": ("AVERAGE_POOL_2D", [real(1, 5, 7, 2)], [real(1, 5, 4, 2)], "Pool2DOptions", WINDOW),
    "max pool": ("MAX_POOL_2D", [int8(1, 5, 7, 2)], [int8(1, 5, 4, 2)], "Pool2DOptions", WINDOW),
    "l2 pool": ("L2_POOL_2D", [real(1, 5, 7, 2)], [real(1, 5, 4, 2)], "Pool2DOptions", WINDOW),
    "add": ("ADD", [real(1, 4, 3), real(3)], [real(1, 4, 3)], "AddOptions", {"fusedActivationFunction": 1}),
    "add int8": (
        "ADD",
        [int8(1, 4, 3), int8(1, 4, 3, scale=0.1)],
        [int8(1, 4, 3, scale=0.2)],
        "AddOptions",
        {},
    ),
    "sub": ("SUB", [real(2, 3), real(2, 3)], [real(2, 3)], "SubOptions", {"fusedActivationFunction": 3}),
    "mul": ("MUL", [uint8(2, 3), uint8(2, 3)], [uint8(2, 3, scale=0.2)], "MulOptions", {}),
    "div": ("DIV", [real(2, 3), real(2, 3)], [real(2, 3)], "DivOptions", {"fusedActivationFunction": 2}),
    "concatenation": (
        "CONCATENATION",
        [real(1, 2, 3), real(1, 4, 3)],
        [real(1, 6, 3)],
        "ConcatenationOptions",
        {"axis": -2},
    ),
    "reshape": (
        "RESHAPE",
        [real(2, 6), np.array([3, 4], I32)],
        [real(3, 4)],
        "ReshapeOptions",
        {"newShape": [3, 4]},
    ),
    "squeeze": ("SQUEEZE", [real(2, 1, 6)], [real(2, 6)], "SqueezeOptions", {"squeezeDims": [1]}),
    "expand dims": ("EXPAND_DIMS", [real(2, 6), np.array(1, I32)], [real(2, 1, 6)], "ExpandDimsOptions", {}),
    "bilinear": (
        "RESIZE_BILINEAR",
        [real(1, 3, 4, 2), np.array([5, 9], I32)],
        [real(1, 5, 9, 2)],
        "ResizeBilinearOptions",
        {"halfPixelCenters": True},
    ),
    "bilinear corners": (
        "RESIZE_BILINEAR",
        [real(1, 3, 4, 2), np.array([5, 9], I32)],
        [real(1, 5, 9, 2)],
        "ResizeBilinearOptions",
        {"alignCorners": True},
    ),
    "nearest": (
        "RESIZE_NEAREST_NEIGHBOR",
        [real(1, 3, 4, 2), np.array([5, 9], I32)],
        [real(1, 5, 9, 2)],
        "ResizeNearestNeighborOptions",
        {"halfPixelCenters": True},
    ),
    "softmax": ("SOFTMAX", [real(2, 5)], [real(2, 5)], "SoftmaxOptions", {"beta": 0.5}),
    "softmax int8": (
        "SOFTMAX",
        [int8(2, 5)],
        [int8(2, 5, scale=1 / 256, zero=-128)],
        "SoftmaxOptions",
        {"beta": 1.0},
    ),
    "depth to space": (
        "DEPTH_TO_SPACE",
        [real(1, 2, 3, 8)],
        [real(1, 4, 6, 2)],
        "DepthToSpaceOptions",
        {"blockSize": 2},
    ),
    "space to depth": (
        "SPACE_TO_DEPTH",
        [real(1, 4, 6, 2)],
        [real(1, 2, 3, 8)],
        "SpaceToDepthOptions",
        {"blockSize": 2},
    ),
    "batch to space": (
        "BATCH_TO_SPACE_ND",
        [real(6, 2, 3, 2), np.array([2, 3], I32), np.zeros((2, 2), I32)],
        [real(1, 4, 9, 2)],
        "",
        {},
    ),
    "space to batch": (
        "SPACE_TO_BATCH_ND",
        [real(1, 4, 8, 2), np.array([2, 3], I32), np.array([[0, 0], [0, 1]], I32)],
        [real(6, 2, 3, 2)],
        "",
        {},
    ),
    "mean": (
        "MEAN",
        [real(1, 4, 5, 2), np.array([1, 2], I32)],
        [real(1, 1, 1, 2)],
        "ReducerOptions",
        {"keepDims": True},
    ),
    "reduce max": (
        "REDUCE_MAX",
        [int8(1, 4, 5, 2), np.array([1], I32)],
        [int8(1, 5, 2)],
        "ReducerOptions",
        {},
    ),
    "reduce min": (
        "REDUCE_MIN",
        [real(1, 4, 5, 2), np.array([3], I32)],
        [real(1, 4, 5, 1)],
        "ReducerOptions",
        {"keepDims": True},
    ),
    "sum": ("SUM", [real(1, 4, 5, 2), np.array([1], I32)], [real(1, 5, 2)], "ReducerOptions", {}),
    "pad": ("PAD", [real(1, 2, 3), np.array([[0, 0], [1, 2], [3, 0]], I32)], [real(1, 5, 6)], "", {}),
    "pad with": (
        "PADV2",
        [real(1, 2, 3), np.array([[0, 0], [1, 2], [3, 0]], I32), np.array([2.5], np.float32)],
        [real(1, 5, 6)],
        "",
        {},
    ),
    "strided slice": (
        "STRIDED_SLICE",
        [real(4, 6, 5), np.array([0, 5, 1], I32), np.array([4, 0, 5], I32), np.array([1, -2, 2], I32)],
        [real(6 - 2, 3, 2)],
        "StridedSliceOptions",
        {"beginMask": 1, "endMask": 5 - 1},
    ),
    "slice": ("SLICE", [real(4, 6), np.array([1, 2], I32), np.array([2, 3], I32)], [real(2, 3)], "", {}),
    "split": (
        "SPLIT",
        [np.array(-1, I32), real(4, 6)],
        [real(4, 2), real(4, 2), real(4, 2)],
        "SplitOptions",
        {"numSplits": 3},
    ),
    "transpose": ("TRANSPOSE", [real(2, 3, 4), np.array([2, 0, 1], I32)], [real(4, 2, 3)], "", {}),
    "arg max": (
        "ARG_MAX",
        [real(3, 5), np.array(1, I32)],
        [Port((3,), "<i4")],
        "ArgMaxOptions",
        {"outputType": 2},
    ),
    "arg min": (
        "ARG_MIN",
        [real(3, 5), np.array(0, I32)],
        [Port((5,), "<i4")],
        "ArgMinOptions",
        {"outputType": 2},
    ),
    "gather": ("GATHER", [real(3, 5), np.array([4, 0], I32)], [real(3, 2)], "GatherOptions", {"axis": 1}),
    "batch matmul": (
        "BATCH_MATMUL",
        [real(2, 3, 4), real(2, 5, 4)],
        [real(2, 3, 5)],
        "BatchMatMulOptions",
        {"adjY": True},
    ),
    "leaky relu": ("LEAKY_RELU", [real(2, 3)], [real(2, 3)], "LeakyReluOptions", {"alpha": 0.3}),
    "prelu": (
        "PRELU",
        [real(1, 2, 2, 3), np.array([[[0.1, 0.2, 0.3]]], np.float32)],
        [real(1, 2, 2, 3)],
        "",
        {},
    ),
    "square": ("SQUARE", [real(2, 3)], [real(2, 3)], "", {}),
    "squared difference": ("SQUARED_DIFFERENCE", [real(2, 3), real(2, 3)], [real(2, 3)], "", {}),
    "quantize": ("QUANTIZE", [real(2, 3)], [int8(2, 3)], "", {}),
    "requantize": ("QUANTIZE", [int8(2, 60, zero=-7)], [uint8(2, 60, zero=121)], "", {}),
    "dequantize": ("DEQUANTIZE", [uint8(2, 3)], [real(2, 3)], "", {}),
    "cast": ("CAST", [real(2, 3)], [Port((2, 3), "<i4")], "", {}),
    "select": ("SELECT", [Port((2, 3), "?"), real(2, 3), real(2, 3)], [real(2, 3)], "", {}),
    "tile": ("TILE", [real(2, 3), np.array([1, 2], I32)], [real(2, 6)], "", {}),
    "pow": ("POW", [real(2, 3), np.full((2, 3), 2, np.float32)], [real(2, 3)], "", {}),
    "maximum": ("MAXIMUM", [int8(2, 3), int8(2, 3)], [int8(2, 3)], "", {}),
    "minimum": ("MINIMUM", [real(2, 3), real(2, 3)], [real(2, 3)], "", {}),
    "logical not": ("LOGICAL_NOT", [Port((2, 3), "?")], [Port((2, 3), "?")], "", {}),
    "logistic": ("LOGISTIC", [int8(2, 30)], [int8(2, 30, scale=1 / 256, zero=-128)], "", {}),
    "tanh": ("TANH", [int8(2, 30)], [int8(2, 30, scale=1 / 128, zero=0)], "", {}),
    "hard swish": ("HARD_SWISH", [real(2, 3)], [real(2, 3)], "", {}),
    "l2 normalization": ("L2_NORMALIZATION", [real(2, 3)], [real(2, 3)], "L2NormOptions", {}),
}
for _name in ("ABS", "EXP", "FLOOR", "NEG", "RSQRT", "SQRT", "RELU", "RELU6", "RELU_N1_TO_1"):
    FILES[_name.lower()] = (_name, [real(2, 3)], [real(2, 3)], "", {})
for _name in ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"):
    FILES[_name.lower()] = (_name, [real(2, 30), real(2, 30)], [Port((2, 30), "?")], "", {})
for _name in ("LOGICAL_AND", "LOGICAL_OR"):
    FILES[_name.lower()] = (_name, [Port((2, 3), "?"), Port((2, 3), "?")], [Port((2, 3), "?")], "", {})


def file_of(case: str) -> tuple[bytes, bytes]:
    """A file and the bytes of its inputs."""
    name, operands, results, kind, options = FILES[case]
    rng = np.random.default_rng(len(case))
    data = []
    for port in operands:
        if not isinstance(port, Port):
            continue
        dtype = np.dtype(port.kind)
        if dtype.kind == "f":
            data.append(
                np.abs(rng.normal(0, 2, port.shape)) if "sqrt" in case else rng.normal(0, 2, port.shape)
            )
        else:
            low, high = (0, 2) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
            data.append(rng.integers(low, high, port.shape))
        data[-1] = data[-1].astype(dtype)
    return write_file(name, operands, results, kind=kind, **options), b"".join(a.tobytes() for a in data)

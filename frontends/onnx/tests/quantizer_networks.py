"""Small networks of floats that ONNX Runtime's quantizer takes, and the forms in which it writes them."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from runtime_cases import normal

from mace_core.ir import Array

IMAGE = "float[1,4,9,10] x"
ROWS = "float[3,20] x"
CONV = {"w": normal(6, 4, 3, 3, seed=1) * np.float32(0.2), "b": normal(6, seed=2) * np.float32(0.1)}
SECOND = {"v": normal(6, 4, 3, 3, seed=3) * np.float32(0.2)}
LINEAR = {"w": normal(20, 12, seed=4) * np.float32(0.2), "b": normal(12, seed=5) * np.float32(0.1)}
PADDED = "a = Conv<pads=[1,1,1,1]>(x, w, b)"


@dataclass(frozen=True)
class Network:
    """A network in ONNX's text form, with an output y of floats.  constants: lists are integers of 64 bits."""

    body: str
    ports: str = IMAGE
    constants: Mapping[str, Array | list[int]] = field(default_factory=lambda: CONV)

    def write(self, path: Path) -> None:
        text = f'<ir_version: 8, opset_import: ["" : 17]> g ({self.ports}) => (float[N] y) {{ {self.body} }}'
        model = onnx.parser.parse_model(text)
        model.graph.output[0].ClearField("type")
        for name, value in self.constants.items():
            array = np.asarray(value, np.int64) if isinstance(value, list) else value
            model.graph.initializer.append(numpy_helper.from_array(array, name))
        for i, node in enumerate(model.graph.node):
            node.name = f"{node.op_type}_{i}"
        path.write_bytes(onnx.shape_inference.infer_shapes(model).SerializeToString())

    def draw(self, seed: int) -> dict[str, Array]:
        rng = np.random.default_rng(seed)
        ports = onnx.parser.parse_graph(f"g ({self.ports}) => () {{ }}").input
        arrays: dict[str, Array] = {}
        for port in ports:
            shape = [size.dim_value for size in port.type.tensor_type.shape.dim]
            is_float = port.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
            numbers = rng.standard_normal(shape) if is_float else rng.integers(0, 2, shape)
            arrays[port.name] = numbers.astype(np.float32 if is_float else bool)
        return arrays


def after_conv(rest: str, **constants: Array | list[int]) -> Network:
    """Return a network that begins with a convolution a of 6 x 9 x 10."""
    return Network(f"{PADDED} {rest}", constants=CONV | constants)


NETWORKS: Mapping[str, Network] = {
    "conv": Network("a = Conv(x, w, b) y = Relu(a)"),
    "strided": Network("y = Conv<strides=[2,1], pads=[1,0,1,2]>(x, w)", constants={"w": CONV["w"]}),
    "depthwise": after_conv("r = Relu(a) y = Conv<group=6>(r, d)", d=normal(6, 1, 3, 3, seed=6)),
    "signal": Network(
        "y = Conv<pads=[1,1]>(x, w)", "float[1,4,15] x", {"w": normal(5, 4, 3) * np.float32(0.3)}
    ),
    "transposed": after_conv("y = ConvTranspose<strides=[2,2]>(a, d)", d=normal(6, 3, 2, 2, seed=6)),
    "linear": Network("m = MatMul(x, w) a = Add(m, b) y = Relu(a)", ROWS, LINEAR),
    "layers": Network(
        "m = MatMul(x, w) a = Add(m, b) r = Relu(a) y = MatMul(r, v)",
        ROWS,
        LINEAR | {"v": normal(12, 7, seed=6) * np.float32(0.3)},
    ),
    "gemm": Network("y = Gemm<transB=1>(x, w, b)", ROWS, {"w": LINEAR["w"].T.copy(), "b": LINEAR["b"]}),
    "products": Network("y = MatMul(x, z)", "float[2,3,8] x, float[2,8,5] z", {}),
    "maximum": after_conv("y = MaxPool<kernel_shape=[3,2], strides=[2,2]>(a)"),
    "average": after_conv("y = AveragePool<kernel_shape=[2,2], pads=[1,0,0,1]>(a)"),
    "global": after_conv("p = GlobalAveragePool(a) f = Flatten(p) y = Gemm(f, g)", g=normal(6, 5, seed=6)),
    "concat": Network("a = Conv(x, w, b) c = Conv(x, v) y = Concat<axis=1>(a, c)", constants=CONV | SECOND),
    "nearest": after_conv('y = Resize<mode="nearest">(a, , k)', k=np.array([1, 1, 2, 2], np.float32)),
    "bilinear": after_conv(
        'y = Resize<mode="linear", coordinate_transformation_mode="half_pixel">(a, , k)',
        k=np.array([1, 1, 2, 2], np.float32),
    ),
    "add": Network("a = Conv(x, w, b) c = Conv(x, v) y = Add(a, c)", constants=CONV | SECOND),
    "mul": Network("a = Conv(x, w, b) c = Conv(x, v) y = Mul(a, c)", constants=CONV | SECOND),
    "gate": after_conv("s = Sigmoid(a) y = Mul(a, s)"),
    "sigmoid": after_conv("y = Sigmoid(a)"),
    "leaky": after_conv("y = LeakyRelu<alpha=0.2>(a)"),
    "clip": after_conv("y = Clip(a, l, h)", l=np.array(0, np.float32), h=np.array(0.6, np.float32)),
    "tanh": after_conv("y = Tanh(a)"),
    "softmax": Network("m = MatMul(x, w) y = Softmax(m)", ROWS, {"w": LINEAR["w"]}),
    "pad": after_conv("y = Pad(a, k, c)", k=[0, 0, 1, 0, 0, 0, 0, 2], c=np.array(0.3, np.float32)),
    "split": after_conv("s, t = Split<axis=1>(a) y = Add(s, t)"),
    "where": Network(
        "a = Conv(x, w, b) d = Conv(x, v) y = Where(c, a, d)",
        f"bool[1,1,7,8] c, {IMAGE}",
        CONV | SECOND,
    ),
    "moved": after_conv("t = Transpose<perm=[0,2,3,1]>(a) y = Reshape(t, k)", k=[9, 60]),
    "slice": after_conv("s = Slice(a, k, l) q = Squeeze(s) y = Unsqueeze(q, m)", k=[0, 2], l=[1, 5], m=[0]),
    "argmax": after_conv("m = ArgMax<axis=1, keepdims=0>(a) y = Cast<to=1>(m)"),
    "norm": Network(
        "m = MatMul(x, w) y = LayerNormalization(m, s)", ROWS, LINEAR | {"s": normal(12, seed=7)}
    ),
    "instance": after_conv("y = InstanceNormalization(a, s, t)", s=normal(6, seed=7), t=normal(6, seed=8)),
    "table": Network(
        "m = Gather(e, i) c = MatMul(m, w) y = Add(c, x)",
        "float[3,12] x",
        LINEAR | {"e": normal(9, 20, seed=8), "i": [4, 0, 7]},
    ),
    "table_product": Network(
        "m = Gather(e, i) y = MatMul(x, m)", "float[3,3] x", {"e": normal(9, 20), "i": [4, 0, 7]}
    ),
    "grouped": after_conv("y = Conv<group=2>(a, d)", d=normal(4, 3, 3, 3, seed=6)),
    "dilated": Network("y = Conv<dilations=[2,2]>(x, w, b)"),
    "volume": Network("y = Conv(x, w)", "float[1,2,5,6,7] x", {"w": normal(3, 2, 2, 3, 2) * np.float32(0.2)}),
    "transposed_groups": after_conv(
        "y = ConvTranspose<strides=[2,2], pads=[1,0,1,1], group=2>(a, d, g)",
        d=normal(6, 3, 3, 3, seed=6),
        g=normal(6, seed=7),
    ),
    "residual": Network(
        f"{PADDED} r = Relu(a) c = Conv<pads=[1,1,1,1]>(r, u) q = Relu(c) e = Add(r, q) "
        "p = MaxPool<kernel_shape=[2,2]>(e) y = Conv(p, g)",
        constants=CONV | {"u": normal(6, 6, 3, 3, seed=8) * np.float32(0.2), "g": normal(3, 6, 1, 1, seed=9)},
    ),
    "attention": Network(
        "q = MatMul(x, w) t = Transpose<perm=[0,2,1]>(q) s = MatMul(q, t) p = Softmax(s) y = MatMul(p, q)",
        "float[2,5,20] x",
        {"w": LINEAR["w"]},
    ),
    "sequence": Network("m = MatMul(x, w) y = Add(m, b)", "float[2,5,20] x", LINEAR),
    "left_weights": Network("y = MatMul(w, x)", "float[20,3] x", {"w": LINEAR["w"].T.copy()}),
    "scaled_gemm": Network("y = Gemm<alpha=0.5, beta=2.0>(x, w, b)", ROWS, LINEAR),
    "transposed_gemm": Network("y = Gemm<transA=1>(x, w, b)", "float[20,3] x", LINEAR),
    "batch_norm": after_conv(
        "r = Relu(a) y = BatchNormalization(r, s, t, m, n)",
        **{name: np.abs(normal(6, seed=i)) + np.float32(0.5) for i, name in enumerate("stmn")},
    ),
    "mean": after_conv("y = ReduceMean<axes=[2,3], keepdims=0>(a)"),
    "larger": Network("a = Conv(x, w, b) c = Conv(x, v) y = Max(a, c)", constants=CONV | SECOND),
    "to_space": Network(
        "a = Conv(x, w) y = DepthToSpace<blocksize=2>(a)",
        constants={"w": normal(8, 4, 3, 3) * np.float32(0.2)},
    ),
    "hard_swish": after_conv("y = HardSwish(a)"),
    "gelu": after_conv("e = Erf(a) y = Mul(e, a)"),
    "prelu": after_conv("y = PRelu(a, s)", s=np.abs(normal(6, 1, 1, seed=7))),
    "repeated": after_conv("y = Tile(a, k)", k=[1, 1, 2, 1]),
    "edge": after_conv('y = Pad<mode="edge">(a, k)', k=[0, 0, 1, 1, 0, 0, 2, 0]),
    "reflect": after_conv('y = Pad<mode="reflect">(a, k)', k=[0, 0, 1, 1, 0, 0, 2, 0]),
    "plus_constant": after_conv("y = Add(a, s)", s=normal(1, 6, 1, 1, seed=9)),
    "times_constant": after_conv("y = Mul(a, s)", s=normal(1, 6, 1, 1, seed=9)),
    "concat_constant": after_conv("y = Concat<axis=1>(a, s)", s=normal(1, 2, 9, 10, seed=9)),
    "where_constant": after_conv("c = Greater(a, z) y = Where(c, a, z)", z=np.array(0.1, np.float32)),
    "counted_average": after_conv(
        "y = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1, strides=[2,2]>(a)"
    ),
    "same_average": after_conv(
        'y = AveragePool<kernel_shape=[3,2], auto_pad="SAME_UPPER", strides=[2,2]>(a)'
    ),
    "ceil_maximum": after_conv("y = MaxPool<kernel_shape=[2,2], strides=[2,2], ceil_mode=1>(a)"),
    "global_maximum": after_conv("y = GlobalMaxPool(a)"),
    "cubic": after_conv('y = Resize<mode="cubic">(a, , k)', k=np.array([1, 1, 2, 2], np.float32)),
    "sizes": after_conv('y = Resize<mode="nearest">(a, , , k)', k=[1, 6, 13, 7]),
}
TYPES = {
    "u8i8": (QuantType.QUInt8, QuantType.QInt8),
    "u8u8": (QuantType.QUInt8, QuantType.QUInt8),
    "i8i8": (QuantType.QInt8, QuantType.QInt8),
    # Before operator set 21 these are written as the QuantizeLinear and DequantizeLinear of com.microsoft.
    "u8i4": (QuantType.QUInt8, QuantType.QInt4),
    "u8u4": (QuantType.QUInt8, QuantType.QUInt4),
}
"""Types of activations and weights; the quantizer refuses signed activations with unsigned weights."""

KINDS = {"qdq": tuple(TYPES), "qoperator": ("u8i8", "u8u8", "i8i8"), "dynamic": ("u8i8", "u8u8")}
"""Kinds of forms -> the types that each has; a dynamic one has unsigned activations by definition."""


@dataclass(frozen=True)
class Form:
    """How the quantizer writes a network.  kind: qdq, qoperator or dynamic.  types: a key of TYPES."""

    kind: str
    types: str
    per_channel: bool

    def __str__(self) -> str:
        return f"{self.kind}-{self.types}-{'channels' if self.per_channel else 'tensor'}"

    def write(self, network: Network, path: Path) -> None:
        """Write the quantized network."""
        floats = path.with_suffix(".floats.onnx")
        network.write(floats)
        activations, weights = TYPES[self.types]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            logging.disable(logging.WARNING)
            try:
                if self.kind == "dynamic":
                    quantize_dynamic(floats, path, per_channel=self.per_channel, weight_type=weights)
                    return
                quantize_static(
                    floats,
                    path,
                    Samples(network),
                    quant_format=QuantFormat.QDQ if self.kind == "qdq" else QuantFormat.QOperator,
                    per_channel=self.per_channel,
                    activation_type=activations,
                    weight_type=weights,
                )
            finally:
                logging.disable(logging.NOTSET)


class Samples(CalibrationDataReader):
    """Gives the calibration of a network random inputs."""

    def __init__(self, network: Network) -> None:
        self._inputs: Iterator[dict[str, Array]] = iter([network.draw(seed) for seed in range(4)])

    def get_next(self) -> dict[str, Array] | None:
        return next(self._inputs, None)


FORMS = tuple(
    Form(kind, types, per_channel)
    for kind, names in KINDS.items()
    for types in names
    for per_channel in (False, True)
)

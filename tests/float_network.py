"""A small network of floats as an ONNX file, with the sums and functions whose order and digits could vary."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mace_core.ir import Array

CHANNELS = 5
INPUT = (1, CHANNELS, 11, 11)
RESULTS = 13
WIDE = 1203
"""Elements of the rows of Softmax and LayerNormalization: no multiple of a register."""


def write_float_network(file: Path) -> None:
    """Write it: convolutions of all kinds, products, pools, norms and elementary functions."""
    rng = np.random.default_rng(3)
    weights = {
        "w1": (21, CHANNELS, 3, 3),
        "b1": (21,),
        "w2": (21, 1, 3, 3),
        "b2": (21,),
        "w3": (34, 21, 1, 1),
        "w4": (34, 17, 3, 3),
        "wt": (34, 6, 2, 2),
        "m": (34, WIDE),
        "scale": (WIDE,),
        "shift": (WIDE,),
        "last": (WIDE, RESULTS),
    }
    arrays = [_draw(rng, name, shape) for name, shape in weights.items()]
    arrays.append(numpy_helper.from_array(np.array([2, 3], np.int64), "axes"))
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        node("Sigmoid", ["c1"], ["gate"]),
        node("Mul", ["c1", "gate"], ["swish"]),
        node(
            "Conv",
            ["swish", "w2", "b2"],
            ["c2"],
            group=21,
            strides=[2, 2],
            pads=[1, 1, 1, 1],
            kernel_shape=[3, 3],
        ),
        node("Conv", ["c2", "w3"], ["c3"], kernel_shape=[1, 1]),
        node("Conv", ["c3", "w4"], ["c4"], group=2, pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        node("Add", ["c3", "c4"], ["added"]),
        node("Tanh", ["added"], ["bounded"]),
        node("ConvTranspose", ["bounded", "wt"], ["grown"], strides=[2, 2], kernel_shape=[2, 2]),
        node("AveragePool", ["bounded"], ["pooled"], kernel_shape=[2, 2], strides=[1, 1]),
        node("ReduceMean", ["pooled", "axes"], ["mean"], keepdims=0),
        node("MatMul", ["mean", "m"], ["wide"]),
        node("LayerNormalization", ["wide", "scale", "shift"], ["normal"], axis=-1),
        node("Softmax", ["normal"], ["parts"], axis=-1),
        node("LogSoftmax", ["normal"], ["logs"], axis=-1),
        node("Erf", ["normal"], ["error"]),
        node("Mul", ["error", "logs"], ["product"]),
        node("Add", ["product", "parts"], ["mixed"]),
        node("MatMul", ["mixed", "last"], ["y"]),
    ]
    ports = [
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, INPUT)],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, RESULTS]),
            helper.make_tensor_value_info("grown", TensorProto.FLOAT, [1, 6, 12, 12]),
        ],
    ]
    graph = helper.make_graph(nodes, "net", *ports, arrays)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), file)


def _draw(rng: np.random.Generator, name: str, shape: tuple[int, ...]) -> TensorProto:
    depth = max(1, int(np.prod(shape[1:])))
    return numpy_helper.from_array((rng.standard_normal(shape) / np.sqrt(depth)).astype(np.float32), name)


def draw_floats(count: int) -> Array:
    """Random inputs in a leading axis, some of them large and some small."""
    rng = np.random.default_rng(17)
    sizes = np.exp(rng.uniform(-6, 3, (count, 1, 1, 1, 1)))
    return (rng.standard_normal((count, *INPUT)) * sizes).astype(np.float32)

"""Makes the text network that networks.py measures: the layers of MiniLM-L6, with random weights.

Six layers of 384 numbers, 12 heads and 1536 inner ones over 30,522 words, as all-MiniLM-L6-v2 of sentence-
transformers has them: W. Wang and others, "MiniLM: Deep Self-Attention Distillation", 2020. The nodes are
those that PyTorch exports of BERT.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mace_core.ir import Array

WORDS, LAYERS, WIDTH, HEADS, INNER = 30522, 6, 384, 12, 1536
SEED = 5
OPSET = 17
EPSILON = 1e-12
MASKED = -10000.0


class TextNetwork:
    """Collects the nodes of the model; every method returns the name of its result."""

    def __init__(self, batch: int, tokens: int) -> None:
        self.batch, self.tokens = batch, tokens
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(SEED)

    def add(self, op: str, inputs: list[str], **attributes: object) -> str:
        """Add a node of one result."""
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def constant(self, array: Array) -> str:
        """Add a constant."""
        name = f"constant_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def draw(self, *shape: int) -> str:
        """Add a random matrix, which keeps the spread of what it is multiplied with."""
        spread = 1 / np.sqrt(shape[0])
        return self.constant((spread * self.random.standard_normal(shape)).astype(np.float32))

    def number(self, value: float) -> str:
        """Add a constant number."""
        return self.constant(np.array(value, np.float32))

    def integers(self, *values: int) -> str:
        """Add a list of integers, such as a shape."""
        return self.constant(np.array(values, np.int64))

    def dense(self, x: str, columns: int, rows: int = WIDTH) -> str:
        """Add a product with a matrix, and a bias."""
        bias = self.constant((0.1 * self.random.standard_normal(columns)).astype(np.float32))
        return self.add("Add", [self.add("MatMul", [x, self.draw(rows, columns)]), bias])

    def normalize(self, x: str) -> str:
        """Add a normalization of the last axis."""
        scale, shift = (self.constant(np.full(WIDTH, value, np.float32)) for value in (1, 0))
        return self.add("LayerNormalization", [x, scale, shift], axis=-1, epsilon=EPSILON)

    def split_heads(self, x: str, order: list[int]) -> str:
        """Add the division of the last axis into heads, in an order of the axes."""
        shape = self.integers(self.batch, self.tokens, HEADS, WIDTH // HEADS)
        return self.add("Transpose", [self.add("Reshape", [x, shape])], perm=order)

    def attend(self, x: str, mask: str) -> str:
        """Add the attention of a layer."""
        query = self.split_heads(self.dense(x, WIDTH), [0, 2, 1, 3])
        key = self.split_heads(self.dense(x, WIDTH), [0, 2, 3, 1])
        value = self.split_heads(self.dense(x, WIDTH), [0, 2, 1, 3])
        root = self.number(np.sqrt(WIDTH // HEADS))
        scores = self.add("Add", [self.add("Div", [self.add("MatMul", [query, key]), root]), mask])
        mixed = self.add("MatMul", [self.add("Softmax", [scores], axis=-1), value])
        rows = self.add("Transpose", [mixed], perm=[0, 2, 1, 3])
        shape = self.integers(self.batch, self.tokens, WIDTH)
        return self.dense(self.add("Reshape", [rows, shape]), WIDTH)

    def gelu(self, x: str) -> str:
        """Add x (1 + erf(x / sqrt(2))) / 2."""
        erf = self.add("Erf", [self.add("Div", [x, self.number(np.sqrt(2))])])
        doubled = self.add("Mul", [x, self.add("Add", [erf, self.number(1)])])
        return self.add("Mul", [doubled, self.number(0.5)])

    def add_layer(self, x: str, mask: str) -> str:
        """Add a layer: attention and two products, each added to its input and normalized."""
        x = self.normalize(self.add("Add", [self.attend(x, mask), x]))
        inner = self.gelu(self.dense(x, INNER))
        return self.normalize(self.add("Add", [self.dense(inner, WIDTH, INNER), x]))


def minilm(batch: int = 1, tokens: int = 128) -> onnx.ModelProto:
    """Return the network, with texts of so many tokens; inputs `input_ids` and `attention_mask` of int64."""
    net = TextNetwork(batch, tokens)
    places = net.constant(net.random.standard_normal((1, tokens, WIDTH)).astype(np.float32))
    words = net.constant(net.random.standard_normal((WORDS, WIDTH)).astype(np.float32))
    x = net.normalize(net.add("Add", [net.add("Gather", [words, "input_ids"], axis=0), places]))
    allowed = net.add("Cast", ["attention_mask"], to=TensorProto.FLOAT)
    hidden = net.add("Sub", [net.number(1), net.add("Unsqueeze", [allowed, net.integers(1, 2)])])
    mask = net.add("Mul", [hidden, net.number(MASKED)])
    for _ in range(LAYERS):
        x = net.add_layer(x, mask)
    ports = [
        helper.make_tensor_value_info(name, TensorProto.INT64, [batch, tokens])
        for name in ("input_ids", "attention_mask")
    ]
    result = helper.make_tensor_value_info(x, TensorProto.FLOAT, [batch, tokens, WIDTH])
    graph = helper.make_graph(net.nodes, "minilm", ports, [result], net.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)

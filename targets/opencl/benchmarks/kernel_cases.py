"""Products and convolutions by themselves, and the product that a node computes, for kernels.py."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Node
from mace_core.run.operators import multiply_adds


@dataclass(frozen=True)
class Matrices:
    """A product of [rows, depth] and [depth, columns]; of a convolution that of its windows and filters."""

    rows: int
    columns: int
    depth: int

    @property
    def flops(self) -> int:
        """Multiplications and additions."""
        return 2 * self.rows * self.columns * self.depth

    @classmethod
    def of_node(cls, node: Node, graph: Graph) -> Matrices | None:
        """Return the product of matrices that computes a node; None where it takes several, as groups do."""
        if not multiply_adds(node, graph):
            return None
        x, weights, result = (graph.tensors[name] for name in (*node.inputs[:2], node.outputs[0]))
        if node.op.name == "Conv":
            depth = prod(weights.shape[1:])
            is_grouped = weights.shape[-1] != x.shape[-1]
            return None if is_grouped else cls(result.elements // weights.shape[0], weights.shape[0], depth)
        if len(weights.shape) != 2:
            return None  # a batch of products
        columns = result.shape[-1]
        return cls(result.elements // columns, columns, x.shape[-1])


@dataclass(frozen=True)
class Case:
    """A convolution or a product by itself.

    rows, columns, depth: of a product; of a convolution `depth` are the channels of its images, `batch` of
    them with sides of `size`, and `columns` its filters, with windows of `window` that move by `stride`.
    """

    columns: int
    depth: int
    rows: int = 0
    batch: int = 0
    size: int = 0
    window: int = 1
    stride: int = 1

    @property
    def name(self) -> str:
        """Return its name, which is that of its model."""
        if not self.batch:
            return f"product_{self.rows}_{self.columns}_{self.depth}"
        image = f"{self.batch}x{self.size}x{self.size}x{self.depth}"
        return f"conv{self.window}x{self.window}s{self.stride}_{image}_{self.columns}"

    def build(self) -> Graph:
        """Return its graph, with random weights."""
        builder = Builder(self.name)
        rng = np.random.default_rng(1)
        if not self.batch:
            weights = rng.uniform(-1, 1, (self.depth, self.columns)).astype(np.float32)
            x = builder.input("x", DType.F32, (self.rows, self.depth))
            return builder.finish([builder.one("MatMul", [x, builder.weight("w", weights)])])
        filters = (self.columns, self.window, self.window, self.depth)
        weights = rng.uniform(-1, 1, filters).astype(np.float32)
        x = builder.input("x", DType.F32, (self.batch, self.size, self.size, self.depth))
        pad, stride = (self.window // 2,) * 2, (self.stride,) * 2
        attrs = {"pads_before": pad, "pads_after": pad, "strides": stride, "dilations": (1, 1)}
        return builder.finish([builder.one("Conv", [x, builder.weight("w", weights)], attrs)])


CASES = (
    Case(512, 512, rows=512),
    Case(1024, 1024, rows=1024),
    Case(2048, 2048, rows=2048),
    Case(4096, 4096, rows=4096),
    # A row of many: a product that reads its matrix once, bound by the bandwidth.
    Case(4096, 4096, rows=1),
    # The feed-forward products of MiniLM, 8 texts of 128 tokens.
    Case(1536, 384, rows=1024),
    Case(384, 1536, rows=1024),
    # ResNet-50's, 8 images.
    Case(64, 3, batch=8, size=224, window=7, stride=2),
    Case(64, 64, batch=8, size=56, window=3),
    Case(256, 64, batch=8, size=56),
    Case(128, 128, batch=8, size=28, window=3),
    Case(512, 256, batch=8, size=28, stride=2),
    Case(256, 256, batch=8, size=14, window=3),
    Case(1024, 256, batch=8, size=14),
    Case(512, 512, batch=8, size=7, window=3),
    Case(2048, 512, batch=8, size=7),
    # Of a detector with large images.
    Case(256, 256, batch=1, size=112, window=3),
    Case(512, 512, batch=1, size=56, window=3),
)

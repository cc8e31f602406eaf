"""Derives the fields of one layer from its nodes: window, weights, bias, shift, fused inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from mace_core.ir import Array, Graph, Node, Tensor
from mace_core.quantization import dequantize
from mace_target_max78000.legalize.refusals import RefusedError
from mace_target_max78000.legalize.tensors import find_exponent, find_producers, find_view, is_native
from mace_target_max78000.network import Activation, Eltwise, Operation, Pool, Weights

WEIGHT_RANGES: Mapping[int, tuple[int, int]] = MappingProxyType(
    {1: (-1, 0), 2: (-2, 1), 4: (-8, 7), 8: (-128, 127)}
)
"""Least and greatest weight of so many bits."""

SHIFTS = range(-15, 16)
ACCUMULATOR_SHIFT = 7
"""The accumulator counts 128ths: 2 ** 7 of its steps are one step of weight times data."""

ELTWISE_OPS: Mapping[str, Eltwise] = MappingProxyType({"Add": Eltwise.ADD, "Sub": Eltwise.SUB})
POOL_OPS = ("MaxPool", "AveragePool")
MAIN_OPS = ("Conv", "ConvTranspose", "MatMul")
OPERATIONS: Mapping[tuple[str, int], Operation] = MappingProxyType(
    {
        ("Conv", 3): Operation.CONV1D,
        ("Conv", 4): Operation.CONV2D,
        ("ConvTranspose", 4): Operation.CONV_TRANSPOSE2D,
        ("MatMul", 2): Operation.LINEAR,
    }
)


def find_operation(node: Node, rank: int) -> Operation:
    """The hardware's operation for a node; rank: of its data.  RefusedError where there is none."""
    found = OPERATIONS.get((node.op.name, rank))
    if found is None:
        raise RefusedError(
            f"its data has {rank} axes; the hardware takes images, lines and, for matrices, one row"
        )
    return found


def pack_weights(values: Array) -> Weights:
    """Weights in the fewest bits that hold them."""
    least, most = int(values.min(initial=0)), int(values.max(initial=0))
    bits = next(b for b, (low, high) in WEIGHT_RANGES.items() if low <= least and most <= high)
    return Weights(values.astype(np.int64), bits)


def spatial_size(tensor: Tensor) -> tuple[int, int]:
    """Rows and columns of a tensor with batch and channels."""
    spatial = tensor.shape[1:-1]
    return (spatial[0] if spatial else 1, spatial[1] if len(spatial) > 1 else 1)


def as_pair(values: object) -> tuple[int, int]:
    """One or two numbers as rows and columns; one-dimensional data has 1 column."""
    assert isinstance(values, tuple)
    first, *rest = values
    return int(first), int(rest[0]) if rest else 1


def read_pool(node: Node) -> Pool | None:
    """A pool as the hardware has it; None for subsampling, which is a stride."""
    size = as_pair(node.attrs["kernel"])
    if node.op.name == "MaxPool" and size == (1, 1):
        return None
    return Pool(node.op.name == "AveragePool", size, read_stride(node), as_pair(node.attrs["dilations"]))


def read_stride(node: Node) -> int:
    """The one stride of a pool."""
    strides = node.attrs["strides"]
    assert isinstance(strides, tuple)
    return int(strides[0])


@dataclass(frozen=True, eq=False)
class LayerArithmetic:
    """What follows a layer's sum."""

    bias: Array | None
    shift: int
    activation: Activation
    wide: bool
    note: str = ""


def derive_arithmetic(graph: Graph, node: Node, units: tuple[int, int]) -> LayerArithmetic:
    """Bias, shift and activation of a Conv, ConvTranspose or MatMul.

    units: the exponents of its data and its weights.  Raises RefusedError where the hardware has no such
    shift or limit.
    """
    step, out = sum(units), graph.tensors[node.outputs[0]]
    bias, note = _read_bias(graph, node, step)
    low, high = (float(str(node.attrs[key])) for key in ("low", "high"))
    if not is_native(out):
        _check_wide(out, step, (low, high))
        return LayerArithmetic(bias, 0, Activation.NONE, True, note)
    power = find_exponent(out.quant)
    assert power is not None
    shift = step - power + ACCUMULATOR_SHIFT
    if shift not in SHIFTS:
        raise RefusedError(
            f"its sums are shifted by {shift}, the hardware shifts by -15 to 15; choose closer scales for data and weights"
        )
    return LayerArithmetic(bias, shift, _find_activation((low, high), power), False, note)


def _check_wide(out: Tensor, step: int, limits: tuple[float, float]) -> None:
    if limits != (-np.inf, np.inf):
        raise RefusedError(
            "its 32-bit sums are limited, and an output of 32 bits has no activation; quantise it to 8 bits"
        )
    if out.quant is not None and find_exponent(out.quant) != step:
        raise RefusedError(
            f"its output is stored as {out.dtype.value} in other steps than those of its sums; quantise it to 8 bits"
        )


def _find_activation(limits: tuple[float, float], power: int) -> Activation:
    least, most = (limit / 2.0**power for limit in limits)
    if most < 127:
        raise RefusedError(
            f"it is limited to {limits[1]:g}, which is {most:g} of 127 steps; scale its channels so that the limit is 127 steps"
        )
    if least <= -128:
        return Activation.NONE
    if least == 0:
        return Activation.RELU
    raise RefusedError(
        f"it is limited to {limits[0]:g} and above; the hardware's least output is 0 or {-128 * 2.0**power:g}"
    )


def quantize_bias(graph: Graph, node: Node, step: int) -> tuple[Array, Array, float]:
    """A layer's bias: the bytes that the hardware takes, the real bias in their steps, and what a step stands for.

    step: the power of two that the layer's sums count.  The hardware adds 128 times the byte.
    """
    tensor = graph.tensors[node.inputs[2]]
    stored = graph.weights[node.inputs[2]]
    exact = dequantize(stored, tensor.quant) if tensor.quant else stored.astype(np.float64)
    unit = 2.0 ** (step + ACCUMULATOR_SHIFT)
    steps = exact / unit
    return np.clip(np.floor(steps + 0.5), -128, 127).astype(np.int64), steps, unit


def _read_bias(graph: Graph, node: Node, step: int) -> tuple[Array | None, str]:
    """Bytes of bias, and what is lost by their steps of 128; None for a bias of zeros."""
    if len(node.inputs) < 3 or not node.inputs[2]:
        return None, ""
    values, steps, _ = quantize_bias(graph, node, step)
    beyond = int(np.sum((steps < -128.5) | (steps >= 127.5)))
    worst = np.abs(steps - values).max()
    note = (
        f"{beyond} of its biases do not fit into 8 bits and are clamped, the worst by {worst:.0f} steps"
        if beyond
        else ""
    )
    return (values if values.any() else None), note


@dataclass(frozen=True)
class FusedInput:
    """tensors: what the layer reads.  absorbed: the nodes that it computes besides its own."""

    tensors: tuple[str, ...]
    pool: Pool | None = None
    stride: int = 1
    eltwise: Eltwise | None = None
    pool_first: bool = True
    absorbed: tuple[Node, ...] = ()


@dataclass(frozen=True, eq=False)
class InputFusion:
    """The fronts of a graph's layers."""

    graph: Graph
    producers: Mapping[str, Node]
    uses: Mapping[str, int]

    @classmethod
    def of(cls, graph: Graph) -> InputFusion:
        """Look at a graph."""
        return cls(graph, find_producers(graph), graph.uses())

    def before(self, node: Node) -> FusedInput:
        """What a convolution's layer can do on the way.

        One that flattens or doubles does nothing before, a linear one only pools.
        """
        if node.op.name == "Conv":
            return self._ending(node.inputs[0])
        if node.op.name != "MatMul":
            return FusedInput((node.inputs[0],))
        view = find_view(self.graph, node.inputs[0], self.producers)
        pool = self._sole(view.base, POOL_OPS)
        pooled = (
            pool and spatial_size(self.graph.tensors[view.base]) == (1, 1) and self.uses[node.inputs[0]] == 1
        )
        return (
            self._pooled(FusedInput((pool.inputs[0],)), pool) if pool and pooled else FusedInput((view.base,))
        )

    def alone(self, node: Node) -> FusedInput:
        """What the layer of a pool or element-wise operation does that no convolution takes along."""
        return self._ending(node.outputs[0], node)

    def same_steps(self, node: Node) -> bool:
        """Whether a node's operands and result count in the same steps."""
        return (
            len({find_exponent(self.graph.tensors[name].quant) for name in (*node.inputs, *node.outputs)})
            == 1
        )

    def _ending(self, tensor: str, own: Node | None = None) -> FusedInput:
        """own: the node whose layer it is, computed even where several read its result."""
        pool = (
            own if own and own.op.name in POOL_OPS else self._sole(tensor, POOL_OPS) if own is None else None
        )
        inner = pool.inputs[0] if pool else tensor
        eltwise = own if own and pool is None else self._sole(inner, tuple(ELTWISE_OPS))
        if eltwise is None or not self.same_steps(eltwise):
            return self._pooled(FusedInput((inner,)), pool)
        front = FusedInput(eltwise.inputs, eltwise=ELTWISE_OPS[eltwise.op.name], absorbed=(eltwise,))
        if pool:
            return replace(self._pooled(front, pool), pool_first=False)
        return self._pooled_alike(front)

    def _pooled_alike(self, front: FusedInput) -> FusedInput:
        """Pools of all operands as one that comes first, where they are the same."""
        pools = [self._sole(i, POOL_OPS) for i in front.tensors]
        known = [p for p in pools if p]
        if len(known) < len(pools) or any((p.op, p.attrs) != (known[0].op, known[0].attrs) for p in known):
            return front
        behind = tuple(p.inputs[0] for p in known)
        return self._pooled(replace(front, tensors=behind, absorbed=(*front.absorbed, *known[1:])), known[0])

    def _pooled(self, front: FusedInput, pool: Node | None) -> FusedInput:
        if pool is None:
            return front
        found = read_pool(pool)
        return replace(
            front, pool=found, stride=1 if found else read_stride(pool), absorbed=(*front.absorbed, pool)
        )

    def _sole(self, tensor: str, ops: Sequence[str]) -> Node | None:
        """The node of these ops that makes a tensor for one reader."""
        node = self.producers.get(tensor)
        return node if node and node.op.name in ops and self.uses[tensor] == 1 else None

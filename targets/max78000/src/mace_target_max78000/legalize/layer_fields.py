"""Derives the fields of one layer from its nodes: window, weights, bias, shift, fused inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from mace_core.ir import Array, Graph, Node, Tensor
from mace_core.ops.conv import ClampAttributes
from mace_core.ops.pool import PoolAttributes
from mace_core.quantization import dequantize
from mace_frontend_ai8x.network import Eltwise, LayerActivation, Operation, Pool, Weights
from mace_target_max78000.device import SHIFTS, UNIT_SHIFT, WEIGHT_BITS
from mace_target_max78000.legalize.refusals import NoEquivalentError
from mace_target_max78000.legalize.tensors import find_exponent, find_producers, find_view, is_native

WEIGHT_RANGES: Mapping[int, tuple[int, int]] = MappingProxyType(
    {bits: (-(1 << bits - 1), (1 << bits - 1) - 1) for bits in WEIGHT_BITS}
)
"""Minimum and maximum weight of so many bits."""

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
"""The hardware's operation for an op and the number of axes of its data."""


def find_operation(node: Node, rank: int) -> Operation:
    """Return the hardware's operation for a node; rank: of its data."""
    operation = OPERATIONS.get((node.op.name, rank))
    if operation is None:
        problem = f"its data has {rank} axes, and the hardware has {node.op.name} for other data only"
        raise NoEquivalentError(f"{problem}; use images, lines or, for matrices, one row")
    return operation


def pack_weights(values: Array) -> Weights:
    """Store weights in the fewest bits that hold them."""
    minimum, maximum = int(values.min(initial=0)), int(values.max(initial=0))
    fitting = (bits for bits, (low, high) in WEIGHT_RANGES.items() if low <= minimum and maximum <= high)
    return Weights(values.astype(np.int64), next(fitting))


def spatial_size(tensor: Tensor) -> tuple[int, int]:
    """Return rows and columns of a tensor with batch and channels; 1 where it has none."""
    rows, columns, *_ = (*tensor.shape[1:-1], 1, 1)
    return rows, columns


def as_pair(values: Sequence[int]) -> tuple[int, int]:
    """Return one or two numbers as rows and columns; one-dimensional data has 1 column."""
    rows, columns, *_ = (*values, 1)
    return int(rows), int(columns)


def read_pool(node: Node) -> Pool | None:
    """Return a pool as the hardware has it; None for subsampling, which is a stride."""
    size = as_pair(node.attributes(PoolAttributes).kernel)
    if node.op.name == "MaxPool" and size == (1, 1):
        return None
    dilation = as_pair(node.attributes(PoolAttributes).dilations)
    return Pool(node.op.name == "AveragePool", size, read_stride(node), dilation)


def read_stride(node: Node) -> int:
    """Return the one stride of a pool."""
    return node.attributes(PoolAttributes).strides[0]


@dataclass(frozen=True, eq=False)
class LayerArithmetic:
    """What follows a layer's sum.  wide: whether its output is the sum itself, in 32 bits."""

    bias: Array | None
    shift: int
    activation: LayerActivation
    wide: bool
    note: str = ""


def derive_arithmetic(graph: Graph, node: Node, data_power: int, weight_power: int) -> LayerArithmetic:
    """Derive bias, shift and activation of a Conv, ConvTranspose or MatMul.

    data_power, weight_power: of the steps of its data and its weights.
    NoEquivalentError: the hardware has no such shift or limit.
    """
    sum_power, output = data_power + weight_power, graph.tensors[node.outputs[0]]
    bias, note = _read_bias(graph, node, sum_power)
    clamp = node.attributes(ClampAttributes)
    low, high = clamp.low, clamp.high
    if not is_native(output):
        _check_wide(output, sum_power, (low, high))
        return LayerArithmetic(bias, 0, LayerActivation.NONE, True, note)
    power = find_exponent(output.quant)
    assert power is not None
    # The hardware computes floor(sum * 2 ** shift / 128 + 1/2): a shift of 7 keeps the steps of the sum.
    shift = sum_power - power + UNIT_SHIFT
    if shift not in SHIFTS:
        problem = f"its sums are shifted by {shift}, and the hardware shifts by {SHIFTS[0]} to {SHIFTS[-1]}"
        raise NoEquivalentError(f"{problem}; choose closer scales for data and weights")
    return LayerArithmetic(bias, shift, _find_activation(low, high, power), False, note)


def _check_wide(output: Tensor, sum_power: int, limits: tuple[float, float]) -> None:
    """Refuse an output of 32 bits that is not the sum itself."""
    if limits != (-np.inf, np.inf):
        problem = "its 32-bit sums are limited, and an output of 32 bits has no activation"
        raise NoEquivalentError(f"{problem}; quantize it to 8 bits")
    if output.quant is not None and find_exponent(output.quant) != sum_power:
        problem = f"its output is stored as {output.dtype.value} in other steps than those of its sums"
        raise NoEquivalentError(f"{problem}; quantize it to 8 bits")


def _find_activation(low: float, high: float, power: int) -> LayerActivation:
    """Return the activation for limits; saturation to -128 and 127 steps is free."""
    minimum, maximum = low / 2.0**power, high / 2.0**power
    if maximum < 127:
        problem = f"it is limited to {high:g}, which is {maximum:g} of 127 steps"
        raise NoEquivalentError(f"{problem}; scale its channels so that the limit is 127 steps")
    if minimum <= -128:
        return LayerActivation.NONE
    if minimum == 0:
        return LayerActivation.RELU
    problem = f"it is limited to {low:g} and above, and the hardware limits to 0 or {-128 * 2.0**power:g}"
    raise NoEquivalentError(f"{problem}; limit it to 0, or limit it outside")


@dataclass(frozen=True, eq=False)
class QuantizedBias:
    """A layer's bias.

    values: bytes, of which the hardware adds 128 times as much.  exact: the real bias in the same steps.
    step: what one of these is as a real number.
    """

    values: Array
    exact: Array
    step: float


def quantize_bias(graph: Graph, node: Node, sum_power: int) -> QuantizedBias:
    """Round a layer's bias to bytes.  sum_power: of the steps that the layer's sums count."""
    tensor, array = graph.tensors[node.inputs[2]], graph.weights[node.inputs[2]]
    real = dequantize(array, tensor.quant) if tensor.quant else array.astype(np.float64)
    step = 2.0 ** (sum_power + UNIT_SHIFT)
    exact = real / step
    # The quantizer puts half a step of the accumulator into a bias (see `quantize.plan`); rounding half up
    # removes it, and the hardware adds its own.
    values = np.clip(np.floor(exact + 0.5), -128, 127).astype(np.int64)
    return QuantizedBias(values, exact, step)


def _read_bias(graph: Graph, node: Node, sum_power: int) -> tuple[Array | None, str]:
    """Return bytes of bias, None if all are zero, and a note on what their range loses."""
    if len(node.inputs) < 3 or not node.inputs[2]:
        return None, ""
    bias = quantize_bias(graph, node, sum_power)
    clamped = int(np.sum((bias.exact < -128.5) | (bias.exact >= 127.5)))
    note = ""
    if clamped:
        worst = np.abs(bias.exact - bias.values).max()
        note = (
            f"{clamped} of its biases do not fit into 8 bits and are clamped, the worst by {worst:.0f} steps"
        )
    # A bias of zeros takes no bias memory.
    return (bias.values if bias.values.any() else None), note


@dataclass(frozen=True)
class FusedInput:
    """What a layer reads, and what it computes before its main operation.

    tensors: what it reads.  stride: subsampling without a pool.  absorbed: the nodes that it computes besides
    its own.
    """

    tensors: tuple[str, ...]
    pool: Pool | None = None
    stride: int = 1
    eltwise: Eltwise | None = None
    pool_first: bool = True
    absorbed: tuple[Node, ...] = ()


@dataclass(frozen=True, eq=False)
class InputFusion:
    """Finds the pools and element-wise operations that layers can compute before their main operation.

    A node joins a layer only if nothing else reads its result, because that is never in memory then.
    """

    graph: Graph
    producers: Mapping[str, Node]
    uses: Mapping[str, int]

    @classmethod
    def of(cls, graph: Graph) -> InputFusion:
        """Prepare the look-ups for a graph."""
        return cls(graph, find_producers(graph), graph.uses())

    def fuse_before(self, node: Node) -> FusedInput:
        """Return what a convolution's layer computes before it.

        A transposed convolution computes nothing before (its counters run over twice the rows), a matrix only
        pools.
        """
        if node.op.name == "Conv":
            return self._fuse_operand(node.inputs[0])
        if node.op.name != "MatMul":
            return FusedInput((node.inputs[0],))
        view = find_view(self.graph, node.inputs[0], self.producers)
        pool = self._find_sole(view.base, POOL_OPS)
        # With one position left, the layer is a 1x1 convolution over pooled data and does not flatten.
        is_one_position = spatial_size(self.graph.tensors[view.base]) == (1, 1)
        if pool and is_one_position and self.uses[node.inputs[0]] == 1:
            return self._add_pool(FusedInput((pool.inputs[0],)), pool)
        return FusedInput((view.base,))

    def fuse_separate(self, node: Node) -> FusedInput:
        """Return what the layer of a pool or an operation computes that no convolution takes along."""
        if node.op.name in POOL_OPS:
            return self._fuse(node, node.inputs[0])
        if not self.same_steps(node):
            return FusedInput((node.outputs[0],))
        return self._fuse_eltwise(node, None)

    def same_steps(self, node: Node) -> bool:
        """Whether a node's operands and result count in the same steps."""
        return (
            len({find_exponent(self.graph.tensors[name].quant) for name in (*node.inputs, *node.outputs)})
            == 1
        )

    def _fuse_operand(self, tensor: str) -> FusedInput:
        """Return what is computed before a layer that reads a tensor."""
        pool = self._find_sole(tensor, POOL_OPS)
        return self._fuse(pool, pool.inputs[0] if pool else tensor)

    def _fuse(self, pool: Node | None, tensor: str) -> FusedInput:
        """Return a pool, if there is one, and the element-wise operation before it."""
        eltwise = self._find_sole(tensor, tuple(ELTWISE_OPS))
        if eltwise is None or not self.same_steps(eltwise):
            return self._add_pool(FusedInput((tensor,)), pool)
        return self._fuse_eltwise(eltwise, pool)

    def _fuse_eltwise(self, eltwise: Node, pool: Node | None) -> FusedInput:
        """Return an element-wise operation with the pool behind it, else with the pools of its operands."""
        fused = FusedInput(eltwise.inputs, eltwise=ELTWISE_OPS[eltwise.op.name], absorbed=(eltwise,))
        if pool:
            return replace(self._add_pool(fused, pool), pool_first=False)
        return self._fuse_operand_pools(fused)

    def _fuse_operand_pools(self, fused: FusedInput) -> FusedInput:
        """Take the pools of all operands as one that comes first, if they are the same."""
        pools = [self._find_sole(name, POOL_OPS) for name in fused.tensors]
        known = [pool for pool in pools if pool]
        if len(known) < len(pools) or any((p.op, p.attrs) != (known[0].op, known[0].attrs) for p in known):
            return fused
        tensors = tuple(pool.inputs[0] for pool in known)
        absorbed = (*fused.absorbed, *known[1:])
        return self._add_pool(replace(fused, tensors=tensors, absorbed=absorbed), known[0])

    def _add_pool(self, fused: FusedInput, node: Node | None) -> FusedInput:
        """Return the same with a pool or subsampling."""
        if node is None:
            return fused
        pool = read_pool(node)
        stride = 1 if pool else read_stride(node)
        return replace(fused, pool=pool, stride=stride, absorbed=(*fused.absorbed, node))

    def _find_sole(self, tensor: str, ops: Sequence[str]) -> Node | None:
        """Return the node of these ops that computes a tensor for one reader."""
        node = self.producers.get(tensor)
        if node is None or node.op.name not in ops or self.uses[tensor] != 1:
            return None
        # A pool that changes the steps stays alone, where it is refused.
        return None if node.op.name in POOL_OPS and not self.same_steps(node) else node

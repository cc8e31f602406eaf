"""One layer from the nodes that it computes: its numbers as the hardware takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from mace_core.ir import Array, Graph, Node, Tensor
from mace_core.quantization import dequantize
from mace_target_max78000.automatic.forming.refusal import RefusedError
from mace_target_max78000.automatic.powers import exponent, is_native
from mace_target_max78000.network import Activation, Eltwise, Operation, Pool, Weights

RANGES: Mapping[int, tuple[int, int]] = MappingProxyType({1: (-1, 0), 2: (-2, 1), 4: (-8, 7), 8: (-128, 127)})
"""Least and greatest weight of so many bits."""

SHIFTS = range(-15, 16)
UNIT = 7
"""The accumulator counts 128ths: 2 ** 7 of its steps are one step of weight times data."""

ELTWISE: Mapping[str, Eltwise] = MappingProxyType({"Add": Eltwise.ADD, "Sub": Eltwise.SUB})
POOLS = ("MaxPool", "AveragePool")
MAIN = ("Conv", "ConvTranspose", "MatMul")
OPERATIONS: Mapping[tuple[str, int], Operation] = MappingProxyType(
    {
        ("Conv", 3): Operation.CONV1D,
        ("Conv", 4): Operation.CONV2D,
        ("ConvTranspose", 4): Operation.CONV_TRANSPOSE2D,
        ("MatMul", 2): Operation.LINEAR,
    }
)


def operation_of(node: Node, rank: int) -> Operation:
    """The hardware's operation for a node; rank: of its data.  RefusedError where there is none."""
    found = OPERATIONS.get((node.op.name, rank))
    if found is None:
        raise RefusedError(
            f"its data has {rank} axes; the hardware takes images, lines and, for matrices, one row"
        )
    return found


def packed(values: Array) -> Weights:
    """Weights in the fewest bits that hold them."""
    least, most = int(values.min(initial=0)), int(values.max(initial=0))
    bits = next(b for b, (low, high) in RANGES.items() if low <= least and most <= high)
    return Weights(values.astype(np.int64), bits)


def dim_of(tensor: Tensor) -> tuple[int, int]:
    """Rows and columns of a tensor with batch and channels."""
    spatial = tensor.shape[1:-1]
    return (spatial[0] if spatial else 1, spatial[1] if len(spatial) > 1 else 1)


def pair(values: object) -> tuple[int, int]:
    """One or two numbers as rows and columns; one-dimensional data has 1 column."""
    assert isinstance(values, tuple)
    first, *rest = values
    return int(first), int(rest[0]) if rest else 1


def pool_of(node: Node) -> Pool | None:
    """A pool as the hardware has it; None for subsampling, which is a stride."""
    size = pair(node.attrs["kernel"])
    if node.op.name == "MaxPool" and size == (1, 1):
        return None
    return Pool(node.op.name == "AveragePool", size, stride_of(node), pair(node.attrs["dilations"]))


def stride_of(node: Node) -> int:
    """The one stride of a pool."""
    strides = node.attrs["strides"]
    assert isinstance(strides, tuple)
    return int(strides[0])


@dataclass(frozen=True, eq=False)
class Arithmetic:
    """What follows a layer's sum."""

    bias: Array | None
    shift: int
    activation: Activation
    wide: bool
    note: str = ""


def arithmetic(graph: Graph, node: Node, units: tuple[int, int]) -> Arithmetic:
    """Bias, shift and activation of a Conv, ConvTranspose or MatMul.

    units: the exponents of its data and its weights.  Raises RefusedError where the hardware has no such
    shift or limit.
    """
    step, out = sum(units), graph.tensors[node.outputs[0]]
    bias, note = _bias(graph, node, step)
    low, high = (float(str(node.attrs[key])) for key in ("low", "high"))
    if not is_native(out):
        _check_wide(out, step, (low, high))
        return Arithmetic(bias, 0, Activation.NONE, True, note)
    power = exponent(out.quant)
    assert power is not None
    shift = step - power + UNIT
    if shift not in SHIFTS:
        raise RefusedError(
            f"its sums are shifted by {shift}, the hardware shifts by -15 to 15; choose closer scales for data and weights"
        )
    return Arithmetic(bias, shift, _activation((low, high), power), False, note)


def _check_wide(out: Tensor, step: int, limits: tuple[float, float]) -> None:
    if limits != (-np.inf, np.inf):
        raise RefusedError(
            "its 32-bit sums are limited, and an output of 32 bits has no activation; quantise it to 8 bits"
        )
    if out.quant is not None and exponent(out.quant) != step:
        raise RefusedError(
            f"its output is stored as {out.dtype.value} in other steps than those of its sums; quantise it to 8 bits"
        )


def _activation(limits: tuple[float, float], power: int) -> Activation:
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


def bias_of(graph: Graph, node: Node, step: int) -> tuple[Array, Array, float]:
    """A layer's bias: the bytes that the hardware takes, the real bias in their steps, and what a step stands for.

    step: the power of two that the layer's sums count.  The hardware adds 128 times the byte.
    """
    tensor = graph.tensors[node.inputs[2]]
    stored = graph.weights[node.inputs[2]]
    exact = dequantize(stored, tensor.quant) if tensor.quant else stored.astype(np.float64)
    unit = 2.0 ** (step + UNIT)
    steps = exact / unit
    return np.clip(np.floor(steps + 0.5), -128, 127).astype(np.int64), steps, unit


def _bias(graph: Graph, node: Node, step: int) -> tuple[Array | None, str]:
    """Bytes of bias, and what is lost by their steps of 128; None for a bias of zeros."""
    if len(node.inputs) < 3 or not node.inputs[2]:
        return None, ""
    values, steps, _ = bias_of(graph, node, step)
    beyond = int(np.sum((steps < -128.5) | (steps >= 127.5)))
    worst = np.abs(steps - values).max()
    note = (
        f"{beyond} of its biases do not fit into 8 bits and are clamped, the worst by {worst:.0f} steps"
        if beyond
        else ""
    )
    return (values if values.any() else None), note

"""Random numbers, which dropout alone may draw: it makes of a tensor, in the mean, the tensor itself.

N. Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting", 2014. TensorFlow
draws uniform numbers, compares them to the rate, or adds the share to keep and rounds down, and multiplies by
the resulting mask. Both ways are followed operator by operator: a mask stands for the share that it keeps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from mace_core.importer import RefusedError
from mace_core.ir import DType
from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops import Handler
from mace_frontend_tensorflow.values import RANDOM_REFUSAL, Mask, Noise, OptionalValue


def _uniform(node: TensorFlowNode) -> Sequence[OptionalValue]:
    return [Noise(0.0, 1.0)]


def _refuse(node: TensorFlowNode) -> Sequence[OptionalValue]:
    raise RefusedError(RANDOM_REFUSAL)


def carry_randomness(node: TensorFlowNode, operands: Sequence[OptionalValue]) -> Sequence[OptionalValue]:
    """Return the outputs of a node that reads random numbers or a mask made of them.

    RefusedError for anything but dropout.
    """
    index = next(i for i, value in enumerate(operands) if isinstance(value, Noise | Mask))
    random = operands[index]
    if node.op in ("Identity", "Cast", "StopGradient"):
        return [random]
    if isinstance(random, Noise):
        return [_carry_noise(node, random, index)]
    assert isinstance(random, Mask)
    if len(operands) == 2 and node.op == "Mul":
        other = node.input(1 - index)
    elif len(operands) == 3 and node.op in ("Select", "SelectV2") and index == 0 and _is_zero(node, 2):
        other = node.input(1)
    else:
        raise RefusedError(RANDOM_REFUSAL)
    # TensorFlow has divided by the share to keep, or will: in the mean both cancel out.
    return node.done("Mul", [other, node.add_constant(random.keep, DType.F32, "keep")])


def _is_zero(node: TensorFlowNode, index: int) -> bool:
    array = node.array(index)
    return array is not None and not array.any()


def _carry_noise(node: TensorFlowNode, noise: Noise, index: int) -> Noise | Mask:
    """Return what an operator makes of uniform numbers between two bounds."""
    low, high = noise.low, noise.high
    # tf.nn.dropout of version 1 adds the share to keep to numbers of 0 to 1, and rounds down to 0 or 1.
    if node.op == "Floor" and 0 <= low < 1 <= high <= 2:
        return Mask((high - 1) / (high - low))
    value = node.array(1 - index) if node.operand_count == 2 else None
    if value is None or value.size != 1:
        raise RefusedError(RANDOM_REFUSAL)
    number = float(value.reshape(()))
    if node.op in ("Add", "AddV2"):
        return Noise(low + number, high + number)
    if node.op == "Mul" and number > 0:
        return Noise(low * number, high * number)
    # Version 2 keeps what is at least the rate.
    if node.op == "GreaterEqual" and index == 0 and low <= number < high:
        return Mask((high - number) / (high - low))
    raise RefusedError(RANDOM_REFUSAL)


DRAWN = (
    *("Multinomial", "ParameterizedTruncatedNormal", "RandomGamma", "RandomPoissonV2", "RandomShuffle"),
    *("RandomStandardNormal", "RandomUniformInt", "StatelessRandomNormal", "StatelessRandomNormalV2"),
    *("StatelessRandomUniformIntV2", "TruncatedNormal"),
)
"""Operators of random numbers that dropout does not use: a deployed library has no source of them."""

HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(("RandomUniform", "StatelessRandomUniform", "StatelessRandomUniformV2"), _uniform),
        **dict.fromkeys(DRAWN, _refuse),
    }
)

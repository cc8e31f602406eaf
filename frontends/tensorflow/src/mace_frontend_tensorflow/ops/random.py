"""Random numbers, which only dropout may draw: what it makes of a tensor is, in the mean, the tensor itself.

N. Srivastava et al., "Dropout: a simple way to prevent neural networks from overfitting", 2014. TensorFlow
draws uniform numbers, compares them to the rate, or adds the share to keep and rounds down, and multiplies by
the resulting mask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from mace_core.importer import RefusedError
from mace_core.ir import DType
from mace_frontend_tensorflow.held import REFUSAL, Held, Mask, Noise
from mace_frontend_tensorflow.node import TensorFlowNode
from mace_frontend_tensorflow.ops import Handler


def _uniform(node: TensorFlowNode) -> Sequence[Held]:
    return [Noise(0.0, 1.0)]


def _refused(node: TensorFlowNode) -> Sequence[Held]:
    raise RefusedError(REFUSAL)


def through(node: TensorFlowNode, operands: Sequence[Held]) -> Sequence[Held]:
    """The outputs of a node that reads random numbers or a mask made of them.

    RefusedError for anything but dropout.
    """
    random = next(i for i, held in enumerate(operands) if isinstance(held, Noise | Mask))
    held = operands[random]
    if node.op in ("Identity", "Cast", "StopGradient"):
        return [held]
    if isinstance(held, Noise):
        return [_noise(node, held, random)]
    assert isinstance(held, Mask)
    if len(operands) == 2 and node.op == "Mul":
        other = node.input(1 - random)
    elif len(operands) == 3 and node.op in ("Select", "SelectV2") and random == 0 and _is_zero(node, 2):
        other = node.input(1)
    else:
        raise RefusedError(REFUSAL)
    return node.done("Mul", [other, node.add_constant(held.keep, DType.F32, "keep")])


def _is_zero(node: TensorFlowNode, index: int) -> bool:
    array = node.array(index)
    return array is not None and not array.any()


def _noise(node: TensorFlowNode, noise: Noise, index: int) -> Noise | Mask:
    low, high = noise.low, noise.high
    if node.op == "Floor" and 0 <= low < 1 <= high <= 2:
        return Mask((high - 1) / (high - low))
    value = node.array(1 - index) if node.count == 2 else None
    if value is None or value.size != 1:
        raise RefusedError(REFUSAL)
    number = float(value.reshape(()))
    if node.op in ("Add", "AddV2"):
        return Noise(low + number, high + number)
    if node.op == "Mul" and number > 0:
        return Noise(low * number, high * number)
    if node.op == "GreaterEqual" and index == 0 and low <= number < high:
        return Mask((high - number) / (high - low))
    raise RefusedError(REFUSAL)


DRAWN = (
    *(
        "Multinomial",
        "ParameterizedTruncatedNormal",
        "RandomGamma",
        "RandomPoissonV2",
        "RandomShuffle",
        "RandomStandardNormal",
    ),
    *(
        "RandomUniformInt",
        "StatelessRandomNormal",
        "StatelessRandomNormalV2",
        "StatelessRandomUniformIntV2",
        "TruncatedNormal",
    ),
)

HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {
        **dict.fromkeys(("RandomUniform", "StatelessRandomUniform", "StatelessRandomUniformV2"), _uniform),
        **dict.fromkeys(DRAWN, _refused),
    }
)

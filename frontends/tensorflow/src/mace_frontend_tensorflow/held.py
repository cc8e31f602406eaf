"""What an output of an operation may stand for besides a tensor of the graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from mace_core.ir import Array, DType, Quant, Shape


@dataclass(frozen=True, eq=False)
class Constant:
    """A constant that the graph does not hold yet; a variable is one, for it keeps its trained value.

    fill: the one element that all have, if the file tells it so.  stored: integers that stand for its real
    numbers, if it is stored so.
    """

    name: str
    dtype: DType
    shape: Shape
    read: Callable[[], Array]
    fill: Array | None = None
    stored: tuple[Array, Quant] | None = None

    @property
    def bytes(self) -> int:
        """Bytes of all elements."""
        return prod(self.shape) * self.dtype.size


@dataclass(frozen=True)
class TensorList:
    """A list of tensors, each known by its place; one that nothing was put in is None.

    whole: the tensor whose parts they are, if there is one.
    """

    items: tuple[str | None, ...]
    shape: Shape | None
    dtype: DType
    whole: str | None = None


@dataclass(frozen=True)
class Noise:
    """Random numbers, uniform between two ends."""

    low: float
    high: float


@dataclass(frozen=True)
class Mask:
    """Truth values of which this share is true, at random."""

    keep: float


class Dead:
    """What the side of a branch gives that is not taken."""


DEAD = Dead()

REFUSAL = "it draws random numbers for another purpose than dropout; export the model for inference"

Known: TypeAlias = "Constant | TensorList | Noise | Mask | Dead | str"
"""What an output stands for: a constant, a list, random numbers, nothing (of a branch not taken), a tensor of the graph ("": none)."""

Held: TypeAlias = "Known | None"
"""The same, or None because its node failed."""

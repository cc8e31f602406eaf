"""Defines what an output of an operation may stand for besides a tensor of the graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from mace_core.ir import Array, DType, Quant, Shape


@dataclass(frozen=True, eq=False)
class Constant:
    """A constant that is not in the graph yet; a variable is one too, because it keeps its trained value.

    read: returns its elements.
    fill: the one element that all elements equal, if the file says so.
    quantized: integers that stand for its real numbers, if the model quantizes it.
    """

    name: str
    dtype: DType
    shape: Shape
    read: Callable[[], Array]
    fill: Array | None = None
    quantized: tuple[Array, Quant] | None = None

    @property
    def bytes(self) -> int:
        """Bytes of all elements."""
        return prod(self.shape) * self.dtype.size


@dataclass(frozen=True)
class TensorList:
    """A list of tensors whose length and items are known while the model is read.

    items: None where nothing was written yet.
    shape: of every item, if it is known.
    stacked: the tensor whose rows the items are, if there is one: it saves taking it apart and stacking it
    again.
    """

    items: tuple[str | None, ...]
    shape: Shape | None
    dtype: DType
    stacked: str | None = None


@dataclass(frozen=True)
class Noise:
    """Random numbers, uniform between two bounds."""

    low: float
    high: float


@dataclass(frozen=True)
class Mask:
    """Random booleans, of which this share is true."""

    keep: float


class Dead:
    """The value of everything in the branch that is not taken."""


DEAD = Dead()

RANDOM_REFUSAL = "it draws random numbers for another purpose than dropout; export the model for inference"

Value: TypeAlias = "Constant | TensorList | Noise | Mask | Dead | str"
"""What an output stands for; a string is a tensor of the graph, or "" for an output that is not computed."""

OptionalValue: TypeAlias = "Value | None"
"""The same, or None because its node failed."""

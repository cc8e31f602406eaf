"""What an op is: schema, shape inference, numpy reference, and how it stands to a change of layout."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, cast

import numpy as np

from mace_core.attributes import Attributes, AttributesError, AttributeValues, complete
from mace_core.ir import Array, DType, Node, Shape, Tensor

if TYPE_CHECKING:
    # The default lets `Op` alone stand for an op of any attributes; Python's own has it from 3.13 on.
    from typing_extensions import TypeVar

    from mace_core.lowering import Lowering

    A = TypeVar("A", bound=Attributes, default=Any)
else:
    from typing import TypeVar

    A = TypeVar("A")

Spec = tuple[DType, Shape]
"""What an inferred output is: its element type and shape."""

Perm = tuple[int, ...]
"""A permutation of axes as numpy.transpose takes it."""


class OpError(ValueError):
    """The op cannot take these inputs or attributes; the text says which and why, without naming the node."""


NO_ATTRIBUTES = cast("type[Any]", Attributes)
"""The default of `Op.attrs`; the cast is what a default of a generic field needs."""


@dataclass(frozen=True)
class Op(Generic[A]):
    """An operator of the IR.

    name: "Conv", or "acme::Swish" for a plugin's own.
    inputs, outputs: names; a trailing "?" marks an optional one, a trailing "*" on the last one that it may
    repeat.
    attrs: the dataclass of its attributes; `Attributes` itself for an op that has none.
    infer: (input tensors, attrs) -> (dtype, shape) of each output; raises OpError.
    reference: (*input arrays, attrs=attributes) -> array or tuple of arrays, in numpy; None for an absent input.
        That of an op without attributes gets the arrays only.
    lower: for a plugin's op, the portable kernel that serves every kernel target without one of its own.
    move: for an op whose inputs are all permuted alike, x = transpose(x', perm), where x is the op's own
        operand: (attrs, perm) -> (attrs', perm') such that op(x, attrs) = transpose(op(x', attrs'), perm');
        or None if there are none. An op without `move` keeps the order of axes that its framework gave it.
    moves: whether it computes nothing: its outputs hold elements of its data inputs, however they are stored.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    infer: Callable[[Sequence[Tensor | None], A], Sequence[Spec]]
    reference: Callable[..., Any]
    attrs: type[A] = NO_ATTRIBUTES
    lower: Callable[[Node, Lowering], None] | None = None
    move: Callable[[A, Perm], tuple[A, Perm] | None] | None = None
    moves: bool = False

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def complete(self, given: AttributeValues) -> A:
        """The attributes with defaults filled in; OpError names every unknown, missing or mistyped one."""
        try:
            return complete(self.attrs, given)
        except AttributesError as error:
            raise OpError(str(error)) from None

    def check_arity(self, inputs: int, outputs: int) -> None:
        """OpError unless so many inputs and outputs are possible."""
        for what, names, count in (("inputs", self.inputs, inputs), ("outputs", self.outputs, outputs)):
            least = sum(name[-1] not in "?*" for name in names)
            most = math.inf if names and names[-1].endswith("*") else len(names)
            if not least <= count <= most:
                raise OpError(f"{count} {what}, expected {least if least == most else f'{least} to {most}'}")

    def check_present(self, inputs: Iterable[str]) -> None:
        """Raise OpError if an operand is absent ("") that is not optional: shape rules and targets rely on the others."""
        for i, name in enumerate(inputs):
            declared = self.inputs[min(i, len(self.inputs) - 1)]
            if not name and not declared.endswith("?"):
                raise OpError(f"operand {declared.rstrip('*')!r} (input {i}) is absent")

    def compute(self, inputs: Iterable[Array | None], attrs: A) -> tuple[Array, ...]:
        """The reference's outputs as a tuple."""
        with np.errstate(all="ignore"):
            has_attributes = self.attrs is not Attributes
            result = self.reference(*inputs, attrs=attrs) if has_attributes else self.reference(*inputs)
        return tuple(np.asarray(r) for r in (result if isinstance(result, tuple) else (result,)))

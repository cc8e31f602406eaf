"""The type of an operator: its schema, shape inference, numpy reference and layout rule."""

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
    """The op cannot take these inputs or attributes.

    The text says which and why; whoever knows the node adds its name.
    """


NO_ATTRIBUTES = cast("type[Any]", Attributes)
"""The default of `Op.attrs`; the cast is what a default of a generic field needs."""


@dataclass(frozen=True)
class Op(Generic[A]):
    """An operator of the IR.

    name: "Conv", or "acme::Swish" for a plugin's own.
    inputs, outputs: names; "?" after one marks it as optional, "*" after the last one means that it repeats.
    attrs: the dataclass of its attributes; `Attributes` itself for an op that has none.
    infer: (input tensors, attrs) -> (dtype, shape) of each output; raises OpError.
    reference: (*input arrays, attrs=attributes) -> array or tuple of arrays, in numpy; it is the definition
        of the op. An absent input is None; an op without attributes gets the arrays only.
    lower: for a plugin's op, a portable kernel for every kernel target that has none of its own.
    move: the layout rule, (attrs, perm) -> (attrs', perm'). Where every input x is transpose(x', perm), it
        returns what makes op(x, attrs) = transpose(op(x', attrs'), perm'), or None if nothing does. An op
        without `move` keeps the order of axes that its framework gave it.
    moves: whether the op only moves data: each element of an output is an element of a data input, unchanged.
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

    def complete(self, values: AttributeValues) -> A:
        """Return the attributes with defaults filled in.

        Raises OpError that names every unknown, missing or mistyped attribute.
        """
        try:
            return complete(self.attrs, values)
        except AttributesError as error:
            raise OpError(str(error)) from None

    def check_arity(self, inputs: int, outputs: int) -> None:
        """Raise OpError unless the op can have this many inputs and outputs."""
        for kind, names, count in (("inputs", self.inputs, inputs), ("outputs", self.outputs, outputs)):
            min_count = sum(name[-1] not in "?*" for name in names)
            max_count = math.inf if names and names[-1].endswith("*") else len(names)
            if not min_count <= count <= max_count:
                expected = str(min_count) if min_count == max_count else f"{min_count} to {max_count}"
                raise OpError(f"{count} {kind}, expected {expected}")

    def check_present(self, inputs: Iterable[str]) -> None:
        """Raise OpError if an operand that is not optional is absent, that is "".

        Shape rules and targets rely on this check, and index required operands without one of their own.
        """
        for i, name in enumerate(inputs):
            declared = self.inputs[min(i, len(self.inputs) - 1)]
            if not name and not declared.endswith("?"):
                raise OpError(f"operand {declared.rstrip('*')!r} (input {i}) is absent")

    def compute(self, inputs: Iterable[Array | None], attrs: A) -> tuple[Array, ...]:
        """Return the outputs of the reference as a tuple."""
        # Infinities and NaN are results like others here; numpy's warnings about them would only alarm users.
        with np.errstate(all="ignore"):
            has_attributes = self.attrs is not Attributes
            result = self.reference(*inputs, attrs=attrs) if has_attributes else self.reference(*inputs)
        outputs = result if isinstance(result, tuple) else (result,)
        # numpy returns scalars, not arrays, for results of rank 0.
        return tuple(np.asarray(output) for output in outputs)

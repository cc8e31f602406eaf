"""What an op is: schema, shape inference, numpy reference, and how it stands to a change of layout."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from mace_core.ir import Array, Attr, Attrs, DType, Node, Shape, Tensor

if TYPE_CHECKING:
    from mace_core.lowering import Lowering

Spec = tuple[DType, Shape]
"""What an inferred output is: its element type and shape."""

Perm = tuple[int, ...]
"""A permutation of axes as numpy.transpose takes it."""

REQUIRED: Any = object()
"""The default of an attribute that has none."""


class OpError(ValueError):
    """The op cannot take these inputs or attributes; the text says which and why, without naming the node."""


@dataclass(frozen=True)
class Op:
    """An operator of the IR.

    name: "Conv", or "acme::Swish" for a plugin's own.
    inputs, outputs: names; a trailing "?" marks an optional one, a trailing "*" on the last one that it may
    repeat.
    attrs: default of each attribute, REQUIRED where there is none; a value's type must be its default's.
    infer: (input tensors, attrs) -> (dtype, shape) of each output; raises OpError.
    reference: (*input arrays, **attrs) -> array or tuple of arrays, in numpy; None for an absent input.
    lower: for a plugin's op, the portable kernel that serves every kernel target without one of its own.
    move: for an op whose inputs are all permuted alike, x = transpose(x', perm), where x is the op's own
        operand: (attrs, perm) -> (attrs', perm') such that op(x, attrs) = transpose(op(x', attrs'), perm');
        or None if there are none. An op without `move` keeps the order of axes that its framework gave it.
    moves: whether it computes nothing: its outputs hold elements of its data inputs, however they are stored.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    infer: Callable[[Sequence[Tensor | None], Attrs], Sequence[Spec]]
    reference: Callable[..., Any]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    lower: Callable[[Node, Lowering], None] | None = None
    move: Callable[[Attrs, Perm], tuple[Mapping[str, Any], Perm] | None] | None = None
    moves: bool = False

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def complete(self, given: Mapping[str, Any]) -> Attrs:
        """The attributes with defaults filled in; OpError names every unknown, missing or mistyped one."""
        faults = [f"no attribute {key!r}" for key in sorted(set(given) - set(self.attrs))]
        values: dict[str, Attr] = {}
        for key, default in self.attrs.items():
            value = _plain(given.get(key, default))
            if value is REQUIRED:
                faults.append(f"attribute {key!r} is required")
            elif default is not REQUIRED and not _same_type(value, default):
                faults.append(f"attribute {key!r} is {value!r}, expected {type(default).__name__}")
            else:
                values[key] = value
        if faults:
            raise OpError(", ".join(faults))
        return MappingProxyType(values)

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

    def compute(self, inputs: Iterable[Array | None], attrs: Attrs) -> tuple[Array, ...]:
        """The reference's outputs as a tuple."""
        with np.errstate(all="ignore"):
            result = self.reference(*inputs, **attrs)
        return tuple(np.asarray(r) for r in (result if isinstance(result, tuple) else (result,)))


def _plain(value: Any) -> Any:
    """Lists as tuples and numpy scalars as Python's, so that attributes can be compared and printed."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple | np.ndarray):
        return tuple(_plain(v) for v in value)
    return value


def _same_type(value: Any, default: Any) -> bool:
    if isinstance(default, float):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is type(default)

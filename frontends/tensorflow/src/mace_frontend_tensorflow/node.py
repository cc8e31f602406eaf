"""One operation of a TensorFlow graph as its handler sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from mace_core.attributes import Attributes, AttributeValues
from mace_core.decompositions import Steps
from mace_core.graph_builder import Builder
from mace_core.importer import OperandNode, RefusedError, SkippedError
from mace_core.ir import Array, DType, Node, Shape, Storage
from mace_core.ops.op import Op
from mace_core.ops.pad import PadAttributes
from mace_core.ops.reshape import ReshapeAttributes
from mace_core.ops.slice import SliceAttributes
from mace_core.ops.transpose import TransposeAttributes
from mace_frontend_tensorflow.flat import Flat, Operation
from mace_frontend_tensorflow.held import Constant, Dead, Held, Mask, Noise, TensorList
from mace_frontend_tensorflow.importer import FlatScope, TensorFlowImporter
from mace_frontend_tensorflow.messages import AttrValue
from mace_frontend_tensorflow.tensors import element_type

T = TypeVar("T", bool, int, float, str, "tuple[int, ...]", "tuple[float, ...]", "tuple[str, ...]")


MOST_PLACES = 1 << 24
"""Elements of a constant that is made to say where something goes."""


@dataclass(frozen=True)
class TensorFlowNode(OperandNode):
    """An operation in its scope."""

    remake: ClassVar[str] = "freeze"

    operation: Operation
    scope: FlatScope
    importer: TensorFlowImporter

    @property
    def op(self) -> str:
        """Its operator."""
        return self.operation.op

    @property
    def name(self) -> str:
        """Its name, with that of what it is inside of."""
        return self.scope.prefix + self.operation.name

    @property
    def builder(self) -> Builder:
        """The graph that is being made."""
        return self.importer.builder

    @property
    def source(self) -> str:
        """The node of the main graph that it is, or is inside of."""
        return self.scope.source or self.name

    def has_attr(self, name: str) -> bool:
        """Whether it states an attribute."""
        return name in self.operation.attrs

    def attr(self, name: str, default: T) -> T:
        """An attribute's value, else the default, of which it must have the type.

        RefusedError if it has another.
        """
        if name not in self.operation.attrs:
            return default
        value: T = plain(self.operation.attrs[name])
        if type(value) is not type(default):
            raise RefusedError(f"attribute {name!r} is {value!r}; export the model again")
        return value

    def kind(self, name: str, default: DType | None = None) -> DType:
        """An attribute that is an element type; RefusedError if it is none that the IR holds."""
        if name not in self.operation.attrs and default:
            return default
        value = self.operation.attrs.get(name)
        try:
            return element_type(value.type if value is not None else 0)
        except ValueError as error:
            raise RefusedError(str(error)) from None

    @property
    def count(self) -> int:
        """How many operands it has."""
        return len(self.operation.inputs)

    def held(self, index: int) -> Constant | TensorList | Noise | Mask | str:
        """What operand `index` stands for; RefusedError if it is missing."""
        self.refuse_unless(index < self.count, f"it lacks input {index}; export the model again")
        found = self.scope.find(self.operation.inputs[index])
        if isinstance(found, Dead):
            raise SkippedError
        return found

    def input(self, index: int) -> str:
        """The tensor at operand `index`."""
        return self.importer.tensor(self.held(index))

    def inputs(self) -> list[str]:
        """All its tensors."""
        return [self.input(i) for i in range(self.count)]

    def array(self, index: int) -> Array | None:
        """The data of operand `index` if it is a constant."""
        return self.importer.array(self.held(index))

    def integer(self, index: int, what: str) -> int:
        """Operand `index` as one number; RefusedError if it is not constant."""
        values = self.ints(index, what)
        self.refuse_unless(len(values) == 1, f"its {what} has {len(values)} elements, expected one")
        return values[0]

    def array_is_constant(self, index: int) -> bool:
        """Whether operand `index` is a constant, without reading it."""
        held = self.held(index)
        return isinstance(held, Constant) or (
            isinstance(held, str) and self.builder.constant(held) is not None
        )

    def shape(self, index: int) -> Shape:
        """Shape of operand `index`."""
        held = self.held(index)
        return held.shape if isinstance(held, Constant) else self.builder.shape(self.input(index))

    def rank(self, index: int) -> int:
        """How many axes operand `index` has."""
        return len(self.shape(index))

    def dtype(self, index: int) -> DType:
        """Element type of operand `index`."""
        held = self.held(index)
        return held.dtype if isinstance(held, Constant) else self.builder.tensors[self.input(index)].dtype

    def axes(self, index: int, rank: int) -> tuple[int, ...]:
        """Operand `index` as axes counted from the front."""
        return tuple(sorted({self.axis(a, rank) for a in self.ints(index, "axes")}))

    def inner(self, flat: Flat, tag: str) -> FlatScope:
        """A scope inside of it, for a body that is written out."""
        return FlatScope(flat=flat, prefix=f"{self.name}/{tag}/", source=self.source)

    def output_name(self, index: int = 0) -> str:
        """What the IR calls output `index`."""
        return f"{self.name}:{index}" if index else self.name

    def result(self, array: Array, index: int = 0) -> str:
        """Add the constant that output `index` is."""
        return self.builder.weight(self.output_name(index), array)

    def derived(self, index: int, key: object, make: Callable[[Array], Array]) -> str:
        """A constant made from constant operand `index` by moving its elements; made once for every key."""
        return self.importer.derived(self.held(index), key, make)

    def counted(self, count: int) -> Array:
        """The numbers from 0 to `count`; RefusedError for too many."""
        self.refuse_unless(0 <= count <= MOST_PLACES, f"{count} places are too many to be listed")
        return np.arange(count, dtype=np.int64)

    def done_steps_of(self, index: int, steps: Steps) -> Sequence[Held]:
        """The node's output: operand `index` after these steps, those left out that do nothing."""
        shape, found = self.shape(index), []
        for op, attrs in steps:
            new, idle = _after(attrs, shape)
            if not idle:
                found.append((op, attrs))
            shape = new
        if not found:
            return [self.held(index)]
        tensor = self.input(index)
        for op, attrs in found[:-1]:
            tensor = self.emit(op, [tensor], attrs, tag="step")
        return self.done(found[-1][0], [tensor], found[-1][1])

    def permuted(self, index: int, perm: Sequence[int]) -> str:
        """Operand `index` with its axes reordered: at once if it is constant."""
        if isinstance(self.held(index), Constant):
            return self.derived(index, tuple(perm), lambda a: np.transpose(a, perm))
        return self.emit("Transpose", [self.input(index)], {"perm": tuple(perm)}, tag="permute")

    def inner_origin(self, tag: str) -> Node:
        """`tag` tells a node inside from the one that bears the name."""
        return self.origin_of(self.inner_name(tag or "inner"))

    def inner_names(self, tag: str, count: int) -> Sequence[str]:
        """One result bears the name of its node, several are numbered as TensorFlow does."""
        stem = self.inner_name(tag or "inner")
        stems = [stem] if count == 1 else [f"{stem}:{i}" for i in range(count)]
        return [self.builder.fresh(stem) for stem in stems]

    def output_names(self, op: Op, count: int | None) -> Sequence[str]:
        """Names for its outputs: one, unless the handler asks for more."""
        return [self.builder.fresh(self.output_name(i)) for i in range(count or 1)]

    def add(
        self,
        op: str | Op,
        inputs: Sequence[str],
        attrs: AttributeValues | None,
        outputs: Sequence[str] | int,
        origin: Node,
    ) -> tuple[str, ...]:
        """Add an IR node; what it makes of constants is made once for all turns of a loop."""
        assert not isinstance(outputs, int)
        return self.importer.add(op, inputs, attrs, outputs=outputs, like=origin)

    def stored(self, op: str, inputs: Sequence[str], storage: Storage, tag: str) -> str:
        """Add an IR node whose result stays inside and is stored so."""
        name = self.builder.reserve_output(f"{self.name}/{tag}", storage)
        return self.builder.add(op, inputs, None, outputs=[name], like=self.origin)[0]

    def cast(self, tensor: str, dtype: DType, *, last: bool = False) -> str:
        """A tensor in another element type. last: whether it is the node's output."""
        if self.builder.tensors[tensor].dtype is dtype:
            return tensor
        attrs = {"to": dtype.value}
        return (
            self.done("Cast", [tensor], attrs)[0] if last else self.emit("Cast", [tensor], attrs, tag="cast")
        )

    def reshape(self, tensor: str, shape: Sequence[int], tag: str = "shaped") -> str:
        """A tensor in another shape."""
        return (
            tensor
            if self.builder.shape(tensor) == tuple(shape)
            else self.emit("Reshape", [tensor], {"shape": tuple(shape)}, tag=tag)
        )


def _after(attrs: Attributes, shape: Shape) -> tuple[Shape, bool]:
    """The shape that a step of a decomposition makes, and whether it leaves everything as it was."""
    match attrs:
        case PadAttributes():
            ends = zip(shape, attrs.before, attrs.after, strict=True)
            wider = tuple(n + before + after for n, before, after in ends)
            return wider, not any((*attrs.before, *attrs.after))
        case SliceAttributes():
            return attrs.sizes, attrs.sizes == shape and all(step == 1 for step in attrs.steps)
        case ReshapeAttributes():
            return attrs.shape, attrs.shape == shape
        case TransposeAttributes():
            return tuple(shape[i] for i in attrs.perm), attrs.perm == tuple(range(len(attrs.perm)))
    raise AssertionError(f"decompositions have no step with {type(attrs).__name__}")


def plain(value: AttrValue) -> Any:
    """An attribute's value as Python has it: bytes as text, lists as tuples.

    None for what has no such form.
    """
    which = value.WhichOneof("value")
    if which == "s":
        return value.s.decode(errors="replace")
    if which in ("i", "f", "b", "type"):
        return getattr(value, which)
    if which != "list":
        return None
    for name in ("i", "f", "b", "type"):
        if items := getattr(value.list, name):
            return tuple(items)
    return tuple(s.decode(errors="replace") for s in value.list.s)

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
from mace_frontend_tensorflow.flat import Flat, GraphOperation
from mace_frontend_tensorflow.importer import FlatScope, TensorFlowImporter
from mace_frontend_tensorflow.messages import AttrValue
from mace_frontend_tensorflow.tensors import element_type
from mace_frontend_tensorflow.values import Constant, Dead, Mask, Noise, OptionalValue, TensorList

T = TypeVar("T", bool, int, float, str, "tuple[int, ...]", "tuple[float, ...]", "tuple[str, ...]")


MAX_INDICES = 1 << 24
"""Elements of a constant of indices: a damaged file must not make a huge one."""

EXPORT_AGAIN = "export the model again"
"""The remedy for what TensorFlow does not accept either: the file is damaged, or was written by hand."""

CUT_BEFORE = "cut the graph before it with output_tensors"
"""The remedy for what TensorFlow accepts and the IR cannot represent."""


@dataclass(frozen=True)
class TensorFlowNode(OperandNode):
    """An operation in its scope.

    operation: the node of the flat graph.
    scope: what its operands stand for.
    importer: the model that it belongs to.
    """

    remake: ClassVar[str] = "freeze"

    operation: GraphOperation
    scope: FlatScope
    importer: TensorFlowImporter

    @property
    def op(self) -> str:
        """The operator, such as Conv2D."""
        return self.operation.op

    @property
    def name(self) -> str:
        """Its name, behind that of the branch or loop iteration that it is in."""
        return self.scope.prefix + self.operation.name

    @property
    def builder(self) -> Builder:
        """The graph that is being built."""
        return self.importer.builder

    @property
    def source(self) -> str:
        """The node of the main graph that it is, or that holds it in a branch or loop."""
        return self.scope.source or self.name

    def refuse_unless(self, condition: bool, text: str, remedy: str = EXPORT_AGAIN) -> None:
        """Raise RefusedError with the text and the remedy unless the condition holds."""
        super().refuse_unless(condition, f"{text}; {remedy}")

    def has_attr(self, name: str) -> bool:
        """Tell whether it states an attribute."""
        return name in self.operation.attrs

    def attr(self, name: str, default: T) -> T:
        """Return an attribute's value, or else the default; RefusedError if their types differ.

        TensorFlow leaves attributes out that have their default value.
        """
        if name not in self.operation.attrs:
            return default
        value: T = plain_value(self.operation.attrs[name])
        if type(value) is not type(default):
            raise RefusedError(f"attribute {name!r} is {value!r}; export the model again")
        return value

    def dtype_attr(self, name: str, default: DType | None = None) -> DType:
        """Return an attribute that is an element type; RefusedError if the IR has no such type."""
        if name not in self.operation.attrs and default:
            return default
        value = self.operation.attrs.get(name)
        try:
            return element_type(value.type if value is not None else 0)
        except ValueError as error:
            raise RefusedError(str(error)) from None

    @property
    def operand_count(self) -> int:
        """How many operands it has."""
        return len(self.operation.inputs)

    def value(self, index: int) -> Constant | TensorList | Noise | Mask | str:
        """Return what operand `index` stands for.

        Raises RefusedError if it is missing, SkippedError if its node failed or is not run.
        """
        self.refuse_unless(index < self.operand_count, f"it lacks input {index}")
        value = self.scope.find(self.operation.inputs[index])
        if isinstance(value, Dead):
            raise SkippedError
        return value

    def input(self, index: int) -> str:
        """Return the tensor of operand `index`."""
        return self.importer.tensor(self.value(index))

    def inputs(self) -> list[str]:
        """Return the tensors of all operands."""
        return [self.input(i) for i in range(self.operand_count)]

    def array(self, index: int) -> Array | None:
        """Return the elements of operand `index`; None if it is computed at run time."""
        return self.importer.array(self.value(index))

    def integer(self, index: int, role: str) -> int:
        """Return operand `index` as one integer; RefusedError if it is not constant."""
        values = self.ints(index, role)
        self.refuse_unless(len(values) == 1, f"its {role} has {len(values)} elements, expected one")
        return values[0]

    def array_is_constant(self, index: int) -> bool:
        """Tell whether operand `index` is a constant, without reading it."""
        value = self.value(index)
        if isinstance(value, str):
            return self.builder.constant(value) is not None
        return isinstance(value, Constant)

    def shape(self, index: int) -> Shape:
        """Return the shape of operand `index`."""
        value = self.value(index)
        return value.shape if isinstance(value, Constant) else self.builder.shape(self.input(index))

    def rank(self, index: int) -> int:
        """Return the number of axes of operand `index`."""
        return len(self.shape(index))

    def dtype(self, index: int) -> DType:
        """Return the element type of operand `index`."""
        value = self.value(index)
        return value.dtype if isinstance(value, Constant) else self.builder.tensors[self.input(index)].dtype

    def axes(self, index: int, rank: int) -> tuple[int, ...]:
        """Return operand `index` as sorted axes, counted from the front."""
        return tuple(sorted({self.axis(a, rank) for a in self.ints(index, "axes")}))

    def inner(self, flat: Flat, tag: str) -> FlatScope:
        """Return a scope for a body that stands in place of this node."""
        return FlatScope(flat=flat, prefix=f"{self.name}/{tag}/", source=self.source)

    def output_name(self, index: int = 0) -> str:
        """Return the IR's name of output `index`: as in TensorFlow, ":0" is left out."""
        return f"{self.name}:{index}" if index else self.name

    def result(self, array: Array, index: int = 0) -> str:
        """Add a constant that is output `index`; return its tensor."""
        return self.builder.weight(self.output_name(index), array)

    def derive(self, index: int, key: object, make: Callable[[Array], Array]) -> str:
        """Return constant operand `index` with its elements moved by `make`; made once for every key."""
        return self.importer.derive(self.value(index), key, make)

    def indices_to(self, count: int) -> Array:
        """Return the integers from 0 to `count` - 1; RefusedError for too many."""
        self.refuse_unless(
            0 <= count <= MAX_INDICES, f"it needs {count} indices; the maximum is {MAX_INDICES}", CUT_BEFORE
        )
        return np.arange(count, dtype=np.int64)

    def done_steps_of(self, index: int, steps: Steps) -> Sequence[OptionalValue]:
        """Add the steps of a decomposition, applied to operand `index`, as the node's output.

        Steps that change nothing are left out, so that a constant stays one and lists of tensors pass
        through.
        """
        shape, needed = self.shape(index), []
        for op, attrs in steps:
            shape_after, is_idle = _apply_to_shape(attrs, shape)
            if not is_idle:
                needed.append((op, attrs))
            shape = shape_after
        if not needed:
            return [self.value(index)]
        tensor = self.input(index)
        *first, (last_op, last_attrs) = needed
        for op, attrs in first:
            tensor = self.emit(op, [tensor], attrs, tag="step")
        return self.done(last_op, [tensor], last_attrs)

    def permute(self, index: int, perm: Sequence[int]) -> str:
        """Return operand `index` with its axes reordered: a constant is reordered here, not at run time."""
        if isinstance(self.value(index), Constant):
            return self.derive(index, tuple(perm), lambda a: np.transpose(a, perm))
        return self.emit("Transpose", [self.input(index)], {"perm": tuple(perm)}, tag="permute")

    def inner_origin(self, tag: str) -> Node:
        """Return the origin of a node inside: the tag tells it from the one that has the node's name."""
        return self.origin_of(self.inner_name(tag or "inner"))

    def inner_names(self, tag: str, count: int) -> Sequence[str]:
        """Return names for results inside: that of their node, with a number behind if there are several."""
        stem = self.inner_name(tag or "inner")
        stems = [stem] if count == 1 else [f"{stem}:{i}" for i in range(count)]
        return [self.builder.fresh(stem) for stem in stems]

    def output_names(self, op: Op, count: int | None) -> Sequence[str]:
        """Return names for its outputs: one, unless the handler asks for more."""
        return [self.builder.fresh(self.output_name(i)) for i in range(count or 1)]

    def add(
        self,
        op: str | Op,
        inputs: Sequence[str],
        attrs: AttributeValues | None,
        outputs: Sequence[str] | int,
        origin: Node,
    ) -> tuple[str, ...]:
        """Add a node of the IR; one that reads constants alone is shared by all iterations of a loop."""
        assert not isinstance(outputs, int)
        return self.importer.add(op, inputs, attrs, outputs=outputs, like=origin)

    def emit_stored(self, op: str, inputs: Sequence[str], storage: Storage, tag: str) -> str:
        """Add a node of the IR whose result stays inside, in this type and quantization."""
        name = self.builder.reserve_output(f"{self.name}/{tag}", storage)
        return self.builder.add(op, inputs, None, outputs=[name], like=self.origin)[0]

    def cast(self, tensor: str, dtype: DType) -> str:
        """Return a tensor in another element type."""
        if self.builder.tensors[tensor].dtype is dtype:
            return tensor
        return self.emit("Cast", [tensor], {"to": dtype.value}, tag="cast")

    def reshape(self, tensor: str, shape: Sequence[int], tag: str = "shaped") -> str:
        """Return a tensor in another shape."""
        if self.builder.shape(tensor) == tuple(shape):
            return tensor
        return self.emit("Reshape", [tensor], {"shape": tuple(shape)}, tag=tag)


def _apply_to_shape(attrs: Attributes, shape: Shape) -> tuple[Shape, bool]:
    """Return the shape after a step of a decomposition, and whether the step changes nothing."""
    match attrs:
        case PadAttributes():
            sizes = zip(shape, attrs.before, attrs.after, strict=True)
            padded = tuple(n + before + after for n, before, after in sizes)
            return padded, not any((*attrs.before, *attrs.after))
        case SliceAttributes():
            return attrs.sizes, attrs.sizes == shape and all(step == 1 for step in attrs.steps)
        case ReshapeAttributes():
            return attrs.shape, attrs.shape == shape
        case TransposeAttributes():
            return tuple(shape[i] for i in attrs.perm), attrs.perm == tuple(range(len(attrs.perm)))
    raise AssertionError(f"decompositions have no step with {type(attrs).__name__}")


def plain_value(value: AttrValue) -> Any:
    """Return an attribute's value as Python has it: bytes as a string, lists as tuples.

    None for what has no such form: tensors, shapes and functions.
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

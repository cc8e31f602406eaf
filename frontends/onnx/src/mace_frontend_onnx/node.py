"""One node of an ONNX graph as its handler sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import onnx
from onnx import AttributeProto, NodeProto, TensorProto

from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Quant, Shape, Storage
from mace_core.ops.op import Op
from mace_core.translation import OperandNode, RefusedError, SkippedError
from mace_frontend_onnx.source import element_type

if TYPE_CHECKING:
    from mace_frontend_onnx.translate import Translation


Held: TypeAlias = TensorProto | str | None
"""What a name stands for: a constant that the graph does not hold yet, a tensor of the graph ("": absent), or nothing
because its node failed."""


CARRIERS = frozenset(
    (
        *("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Split", "Slice", "Concat"),
        *("MaxPool", "Gather", "Expand", "Tile", "DepthToSpace", "SpaceToDepth"),
    )
)
"""Operators that move elements and compute nothing."""


TEXT_OPERATORS = ("ArrayFeatureExtractor", "LabelEncoder", "OneHotEncoder")
"""Operators of ai.onnx.ml that take labels as text."""


@dataclass
class Scope:
    """The tensors of one graph, function body or branch by their ONNX names.

    opsets: version of each operator set by domain.
    prefix: put before the names of everything made inside.
    public: names for some of its tensors outside.
    read: the names that its nodes and outputs read.
    """

    opsets: Mapping[str, int]
    prefix: str = ""
    parent: Scope | None = None
    source: str | None = None
    held: dict[str, Held] = field(default_factory=dict)
    public: Mapping[str, str] = field(default_factory=dict)
    read: frozenset[str] = frozenset()

    def owner(self, name: str) -> Scope:
        """The scope that knows the name: this one or one around it."""
        scope: Scope | None = self
        while scope is not None and name not in scope.held:
            scope = scope.parent
        return scope or self

    def find(self, name: str) -> Held:
        """What a name stands for; RefusedError for an unknown one."""
        held = self.owner(name).held
        if name not in held:
            raise RefusedError(f"it reads {name!r}, which nothing before it computes; export the model again")
        return held[name]


@dataclass(frozen=True)
class Derivation:
    """How a constant is made from another: equal keys make equal constants.

    quant: how the new one stores real numbers.
    """

    key: object
    make: Callable[[Array], Array]
    quant: Quant | None = None


@dataclass(frozen=True)
class Node(OperandNode):
    """A node, its inputs and attributes; `label` is its own name, or its op and place."""

    proto: NodeProto
    label: str
    scope: Scope
    work: Translation

    @property
    def name(self) -> str:
        """What the user finds it by in the file."""
        return self.label

    @property
    def op(self) -> str:
        """Its operator."""
        return str(self.proto.op_type)

    @property
    def opset(self) -> int:
        """Version of the operator set that defines it."""
        return self.scope.opsets.get("", 1)

    @property
    def build(self) -> Builder:
        """The graph that is being made."""
        return self.work.builder

    @property
    def source(self) -> str:
        """The node of the main graph that it is, or is inside of."""
        return self.scope.source or self.name

    def attr(self, name: str) -> Any:
        """An attribute's value, else its default in this version, else None; texts as str."""
        for given in self.proto.attribute:
            if given.name == name:
                return plain(given)
        schema = self.work.schema(self)
        default = schema.attributes.get(name) if schema else None
        return plain(default.default_value) if default and default.default_value.type else None

    @property
    def count(self) -> int:
        """How many inputs it lists."""
        return len(self.proto.input)

    def has(self, index: int) -> bool:
        """Whether input `index` is there."""
        return index < self.count and bool(self.proto.input[index]) and self._held(index) != ""

    def _held(self, index: int) -> TensorProto | str:
        held = self.scope.find(self.proto.input[index])
        if held is None:
            raise SkippedError
        return held

    def stored_input(self, index: int) -> str:
        """The tensor at input `index` as it is stored; "" if it is absent."""
        if not self.has(index):
            return ""
        return self.work.tensor(self.scope, self.proto.input[index])

    def input(self, index: int) -> str:
        """The tensor at input `index`; "" if it is absent.

        Integers that store real numbers are those integers to every operator that does more than move them.
        """
        tensor = self.stored_input(index)
        if tensor in self.work.texts and not self._takes_text():
            raise RefusedError(
                "it computes with text; cut the graph before it with output_tensors, and work on text in the application"
            )
        quant = self.build.tensors[tensor].quant if tensor else None
        return self._integers(tensor) if quant and not self._carries() else tensor

    def texts_of_constant(self, index: int) -> tuple[str, ...]:
        """The texts that a constant input holds; none if it holds numbers or is computed at run time."""
        held = self._held(index)
        if isinstance(held, str) or held.data_type != TensorProto.STRING:
            return ()
        return tuple(
            v.decode(errors="replace") if isinstance(v, bytes) else str(v)
            for v in self.work.source.array(held).reshape(-1)
        )

    def _takes_text(self) -> bool:
        """Whether it works on the indices of texts as on texts: it moves one tensor, or knows what the indices stand for."""
        if self.proto.domain == "ai.onnx.ml":
            return self.op in TEXT_OPERATORS
        return self.op in CARRIERS - {"Concat", "MaxPool", "Split"} and self.proto.domain in ("", "ai.onnx")

    def _carries(self) -> bool:
        """Whether it only moves elements that are all stored alike."""
        if self.op not in CARRIERS or self.proto.domain not in ("", "ai.onnx"):
            return False
        held = [self.build.tensors[t].storage for i in range(self.count) if (t := self.stored_input(i))]
        return self.op != "Concat" or len(set(held)) == 1

    def _integers(self, tensor: str) -> str:
        """The integers that store a tensor's real numbers, as plain numbers."""
        held = self.build.tensors[tensor]
        assert held.quant is not None
        steps = self.emit(
            "Div",
            [self.emit("Dequantize", [tensor], tag="real"), self.weight(held.quant.scale[0], DType.F32)],
            tag="steps",
        )
        shifted = self.emit("Add", [steps, self.weight(held.quant.zero_point[0], DType.F32)], tag="shift")
        return self.emit(
            "Cast", [self.emit("Round", [shifted], tag="round")], {"to": held.dtype.value}, tag="integers"
        )

    def inputs(self) -> list[str]:
        """All its tensors, as far as it lists them."""
        return [self.input(i) for i in range(self.count)]

    def array(self, index: int) -> Array | None:
        """The data of input `index` if it is a constant."""
        if not self.has(index):
            return None
        held = self._held(index)
        return self.build.constant(held) if isinstance(held, str) else self.work.source.array(held)

    def ints_of(self, attr: str, index: int, since: int) -> tuple[int, ...] | None:
        """Numbers that are an attribute before operator set `since`, an input from then on.

        None if absent.
        """
        if self.opset >= since:
            return self.ints(index, attr) if self.has(index) else None
        value = self.attr(attr)
        return None if value is None else tuple(value)

    def shape(self, index: int) -> Shape:
        """Shape of input `index`."""
        held = self._held(index)
        return self.build.shape(held) if isinstance(held, str) else tuple(held.dims)

    def dtype(self, index: int) -> DType:
        """Element type of input `index`."""
        held = self._held(index)
        return self.build.tensors[held].dtype if isinstance(held, str) else element_type(held.data_type)

    def wants(self, index: int) -> bool:
        """Whether anything reads output `index`."""
        return index < len(self.proto.output) and self.proto.output[index] in self.scope.read

    def weight(self, array: Array | Sequence[Any] | float, dtype: DType | None = None, tag: str = "") -> str:
        """Add a constant of this node's own."""
        made = np.asarray(array, dtype.numpy if dtype else None)
        return self.build.weight(f"{self.name}/{tag or 'constant'}", made)

    def derived(
        self, index: int, key: object, make: Callable[[Array], Array], quant: Quant | None = None
    ) -> str:
        """A constant made from constant input `index`, under its name; made once for every key."""
        return self.work.derived(self.scope, self.proto.input[index], Derivation(key, make, quant))

    def permuted(self, index: int, perm: Sequence[int]) -> str:
        """Input `index` with its axes reordered: at once if it is constant."""
        if self.array_is_constant(index):
            return self.derived(index, tuple(perm), lambda a: np.transpose(a, perm))
        return self.emit("Transpose", [self.input(index)], {"perm": tuple(perm)}, tag="permute")

    def array_is_constant(self, index: int) -> bool:
        """Whether input `index` is a constant, without reading it."""
        if not self.has(index):
            return False
        held = self._held(index)
        return not isinstance(held, str) or self.build.constant(held) is not None

    def emit(
        self, op: str | Op, inputs: Sequence[str], attrs: Mapping[str, Any] | None = None, *, tag: str = ""
    ) -> str:
        """Add an IR node whose result stays inside; `tag` tells it from the node that bears the name."""
        return self.emit_all(op, inputs, attrs, tag=tag)[0]

    def emit_all(
        self,
        op: str | Op,
        inputs: Sequence[str],
        attrs: Mapping[str, Any] | None = None,
        *,
        tag: str = "",
        outputs: int = 1,
    ) -> tuple[str, ...]:
        """Add an IR node with several results that stay inside."""
        like = self.origin
        if tag:
            like = replace(like, name=f"{self.name}/{tag}")
        return self.build.add(
            op, inputs, attrs, outputs=[self.free(like.name)] if outputs == 1 else outputs, like=like
        )

    def free(self, name: str) -> str:
        """A tensor name that is not taken; long loops make many, and most are free."""
        return self.build.fresh(name) if name in self.build.tensors else name

    def emit_stored(
        self,
        op: str,
        inputs: Sequence[str],
        storage: Storage,
        attrs: Mapping[str, Any] | None = None,
        tag: str = "",
    ) -> str:
        """Add an IR node whose result stays inside and is stored so."""
        name = self.build.stored(f"{self.name}/{tag or op}", storage)
        return self.build.add(op, inputs, attrs, outputs=[name], like=self.origin)[0]

    def done_stored(
        self, op: str, inputs: Sequence[str], storage: Storage, attrs: Mapping[str, Any] | None = None
    ) -> tuple[str, ...]:
        """Add the IR node that computes this node's output, stored so, under its name."""
        name = self.build.stored(self.work.outside(self.scope, self.proto.output[0]), storage)
        return self.build.add(op, inputs, attrs, outputs=[name], like=self.origin)

    def done(
        self, op: str | Op, inputs: Sequence[str], attrs: Mapping[str, Any] | None = None
    ) -> tuple[str, ...]:
        """Add the IR node that computes this node's outputs, under their names."""
        op = self.build.ops[op] if isinstance(op, str) else op
        listed = list(self.proto.output)
        count = len(listed) if op.outputs and op.outputs[-1].endswith("*") else len(op.outputs)
        listed += [""] * (count - len(listed))
        names = [
            self.work.outside(self.scope, name) if name else f"{self.name}/unused{i}"
            for i, name in enumerate(listed[:count])
        ]
        return self.build.add(op, inputs, attrs, outputs=[self.free(n) for n in names], like=self.origin)

    def channels_last(self, tensor: str) -> str:
        """A tensor [N, C, *spatial] as [N, *spatial, C]."""
        rank = len(self.build.shape(tensor))
        self.refuse_unless(
            rank >= 3, f"its input has rank {rank}; it needs a batch, channels and spatial axes"
        )
        return self.emit("Transpose", [tensor], {"perm": to_last(rank)}, tag="channels-last")

    def channels_first(self, tensor: str) -> tuple[str, ...]:
        """The node's output [N, C, *spatial] from [N, *spatial, C]."""
        perm = to_first(len(self.build.shape(tensor)))
        names = [self.build.fresh(self.work.outside(self.scope, self.proto.output[0]))]
        like = replace(self.origin, name=f"{self.name}/channels-first")
        return self.build.add("Transpose", [tensor], {"perm": perm}, outputs=names, like=like)


def to_last(rank: int) -> tuple[int, ...]:
    """The permutation from [N, C, *spatial] to [N, *spatial, C]."""
    return (0, *range(2, rank), 1)


def to_first(rank: int) -> tuple[int, ...]:
    """The permutation from [N, *spatial, C] to [N, C, *spatial]."""
    return (0, rank - 1, *range(1, rank - 1))


def plain(attribute: AttributeProto) -> Any:
    """An attribute's value as Python has it: bytes as text, lists as tuples."""
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if attribute.type == AttributeProto.STRINGS:
        return tuple(v.decode(errors="replace") for v in value)
    return tuple(value) if attribute.type in (AttributeProto.INTS, AttributeProto.FLOATS) else value

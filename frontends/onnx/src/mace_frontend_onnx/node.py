"""One node of an ONNX graph as its handler sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, NodeProto, TensorProto

from mace_core.graph_builder import Builder
from mace_core.importer import OperandNode, RefusedError, to_first
from mace_core.ir import Array, DType, Node, Quant, Shape, Storage
from mace_core.ops.op import Op
from mace_frontend_onnx.importer import Derivation, Known, OnnxImporter, OnnxScope
from mace_frontend_onnx.source import element_type, plain_domain

CARRIERS = frozenset(
    (
        *("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Split", "Slice", "Concat"),
        *("MaxPool", "Gather", "Expand", "Tile", "DepthToSpace", "SpaceToDepth"),
    )
)
"""Operators that move elements and compute nothing."""


TEXT_OPERATORS = ("ArrayFeatureExtractor", "LabelEncoder", "OneHotEncoder")
"""Operators of ai.onnx.ml that take labels as text."""


@dataclass(frozen=True)
class OnnxNode(OperandNode):
    """A node, its inputs and attributes; `label` is its own name, or its op and place."""

    proto: NodeProto
    label: str
    scope: OnnxScope
    importer: OnnxImporter

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
    def builder(self) -> Builder:
        """The graph that is being made."""
        return self.importer.builder

    @property
    def source(self) -> str:
        """The node of the main graph that it is, or is inside of."""
        return self.scope.source or self.name

    def attr(self, name: str) -> Any:
        """An attribute's value, else its default in this version, else None; texts as str."""
        for given in self.proto.attribute:
            if given.name == name:
                return plain(given)
        schema = self.schema()
        default = schema.attributes.get(name) if schema else None
        return plain(default.default_value) if default and default.default_value.type else None

    def schema(self) -> onnx.defs.OpSchema | None:
        """Return the definition of its operator in its version; None for an operator that is not ONNX's."""
        domain = plain_domain(self.proto.domain)
        try:
            return onnx.defs.get_schema(self.op, self.scope.opsets.get(domain, 1), domain)
        except onnx.defs.SchemaError:
            return None

    @property
    def count(self) -> int:
        """How many inputs it lists."""
        return len(self.proto.input)

    def has(self, index: int) -> bool:
        """Whether input `index` is there."""
        return index < self.count and bool(self.proto.input[index]) and self._held(index) != ""

    def _held(self, index: int) -> Known:
        return self.scope.find(self.proto.input[index])

    def stored_input(self, index: int) -> str:
        """The tensor at input `index` as it is stored; "" if it is absent."""
        if not self.has(index):
            return ""
        return self.importer.tensor(self.scope, self.proto.input[index])

    def input(self, index: int) -> str:
        """The tensor at input `index`; "" if it is absent.

        Integers that store real numbers are those integers to every operator that does more than move them.
        """
        tensor = self.stored_input(index)
        if tensor in self.importer.texts and not self._takes_text():
            raise RefusedError(
                "it computes with text; cut the graph before it with output_tensors, and work on text in the application"
            )
        quant = self.builder.tensors[tensor].quant if tensor else None
        return self._integers(tensor) if quant and not self._carries() else tensor

    def texts_of_constant(self, index: int) -> tuple[str, ...]:
        """The texts that a constant input holds; none if it holds numbers or is computed at run time."""
        held = self._held(index)
        if isinstance(held, str) or held.data_type != TensorProto.STRING:
            return ()
        return tuple(
            v.decode(errors="replace") if isinstance(v, bytes) else str(v)
            for v in self.importer.source.array(held).reshape(-1)
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
        held = [self.builder.tensors[t].storage for i in range(self.count) if (t := self.stored_input(i))]
        return self.op != "Concat" or len(set(held)) == 1

    def _integers(self, tensor: str) -> str:
        """The integers that store a tensor's real numbers, as plain numbers."""
        held = self.builder.tensors[tensor]
        assert held.quant is not None
        steps = self.emit(
            "Div",
            [
                self.emit("Dequantize", [tensor], tag="real"),
                self.add_constant(held.quant.scale[0], DType.F32),
            ],
            tag="steps",
        )
        shifted = self.emit(
            "Add", [steps, self.add_constant(held.quant.zero_point[0], DType.F32)], tag="shift"
        )
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
        return self.builder.constant(held) if isinstance(held, str) else self.importer.source.array(held)

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
        return self.builder.shape(held) if isinstance(held, str) else tuple(held.dims)

    def dtype(self, index: int) -> DType:
        """Element type of input `index`."""
        held = self._held(index)
        return self.builder.tensors[held].dtype if isinstance(held, str) else element_type(held.data_type)

    def wants(self, index: int) -> bool:
        """Whether anything reads output `index`."""
        return index < len(self.proto.output) and self.proto.output[index] in self.scope.read

    def derived(
        self, index: int, key: object, make: Callable[[Array], Array], quant: Quant | None = None
    ) -> str:
        """A constant made from constant input `index`, under its name; made once for every key."""
        return self.importer.derived(self.scope, self.proto.input[index], Derivation(key, make, quant))

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
        return not isinstance(held, str) or self.builder.constant(held) is not None

    def inner_origin(self, tag: str) -> Node:
        """`tag` tells a node inside from the one that bears the name."""
        return self.origin_of(f"{self.name}/{tag}") if tag else self.origin

    def inner_names(self, tag: str, count: int) -> Sequence[str] | int:
        """One result bears the name of its node, several are numbered."""
        return [self.free(self.inner_origin(tag).name)] if count == 1 else count

    def output_name(self, index: int = 0) -> str:
        """Return what the IR calls output `index`."""
        return self.importer.outside(self.scope, self.proto.output[index])

    def free(self, name: str) -> str:
        """A tensor name that is not taken; long loops make many, and most are free."""
        return self.builder.fresh(name) if name in self.builder.tensors else name

    def emit_stored(
        self,
        op: str,
        inputs: Sequence[str],
        storage: Storage,
        attrs: Mapping[str, Any] | None = None,
        tag: str = "",
    ) -> str:
        """Add an IR node whose result stays inside and is stored so."""
        name = self.builder.stored(f"{self.name}/{tag or op}", storage)
        return self.add(op, inputs, attrs, [name], self.origin)[0]

    def done_stored(
        self, op: str, inputs: Sequence[str], storage: Storage, attrs: Mapping[str, Any] | None = None
    ) -> tuple[str, ...]:
        """Add the IR node that computes this node's output, stored so, under its name."""
        name = self.builder.stored(self.output_name(), storage)
        return self.add(op, inputs, attrs, [name], self.origin)

    def output_names(self, op: Op, count: int | None) -> Sequence[str]:
        """Names for its outputs; what the op computes besides gets a name as well."""
        listed = list(self.proto.output)
        count = len(listed) if op.outputs and op.outputs[-1].endswith("*") else len(op.outputs)
        listed += [""] * (count - len(listed))
        names = [
            self.importer.outside(self.scope, name) if name else f"{self.name}/unused{i}"
            for i, name in enumerate(listed[:count])
        ]
        return [self.free(name) for name in names]

    def channels_first(self, tensor: str) -> tuple[str, ...]:
        """Add the node's output [N, C, *spatial], computed of [N, *spatial, C]."""
        perm = to_first(len(self.builder.shape(tensor)))
        names = [self.builder.fresh(self.output_name())]
        return self.add("Transpose", [tensor], {"perm": perm}, names, self.inner_origin("channels-first"))


def plain(attribute: AttributeProto) -> Any:
    """An attribute's value as Python has it: bytes as text, lists as tuples."""
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if attribute.type == AttributeProto.STRINGS:
        return tuple(v.decode(errors="replace") for v in value)
    return tuple(value) if attribute.type in (AttributeProto.INTS, AttributeProto.FLOATS) else value

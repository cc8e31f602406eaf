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
from mace_core.quantization import dequantize
from mace_frontend_onnx.importer import Derivation, OnnxImporter, OnnxScope, OnnxValue
from mace_frontend_onnx.model_file import element_type, plain_domain

CARRIERS = frozenset(
    (
        *("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Split", "Slice", "Concat"),
        *("MaxPool", "Gather", "Expand", "Tile", "DepthToSpace", "SpaceToDepth"),
    )
)
"""Operators whose results are elements of their input, so that they need not know what the elements mean."""

STRING_CARRIERS = CARRIERS - {"Concat", "MaxPool", "Split"}
"""Carriers that keep indices of strings valid: no two lists are mixed, and no order of the indices counts."""

STRING_OPERATORS = ("ArrayFeatureExtractor", "LabelEncoder", "OneHotEncoder")
"""Operators of ai.onnx.ml whose handlers take labels that are strings."""


@dataclass(frozen=True)
class OnnxNode(OperandNode):
    """A node with its inputs and attributes.

    label: its name in the file, or its operator and position if it has none.
    """

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
        """Its operator, without the domain."""
        return str(self.proto.op_type)

    @property
    def opset(self) -> int:
        """Version of ONNX's own operator set in the node's scope."""
        return self.scope.opsets.get("", 1)

    @property
    def builder(self) -> Builder:
        """The graph that is being made."""
        return self.importer.builder

    @property
    def source(self) -> str:
        """The node of the main graph that it is, or is inside of."""
        return self.scope.source or self.name

    @property
    def input_count(self) -> int:
        """How many inputs it lists; some of them may be absent."""
        return len(self.proto.input)

    def attr(self, name: str) -> Any:
        """Return an attribute's value, else its default in this operator set, else None; strings as str."""
        for attribute in self.proto.attribute:
            if attribute.name == name:
                return attribute_value(attribute)
        schema = self.schema()
        default = schema.attributes.get(name) if schema else None
        return attribute_value(default.default_value) if default and default.default_value.type else None

    def attr_or(self, name: str, default: Any) -> Any:
        """Return an attribute's value, else `default`; for operators that ONNX does not define."""
        value = self.attr(name)
        return default if value is None else value

    def schema(self) -> onnx.defs.OpSchema | None:
        """Return ONNX's definition of its operator in its operator set; None for an operator of others."""
        domain = plain_domain(self.proto.domain)
        try:
            return onnx.defs.get_schema(self.op, self.scope.opsets.get(domain, 1), domain)
        except onnx.defs.SchemaError:
            return None

    def has(self, index: int) -> bool:
        """Tell whether input `index` is present."""
        return index < self.input_count and bool(self.proto.input[index]) and self._value(index) != ""

    def _value(self, index: int) -> OnnxValue:
        return self.scope.find(self.proto.input[index])

    def raw_input(self, index: int) -> str:
        """Return the tensor at input `index`, which may be quantized; "" if it is absent."""
        if not self.has(index):
            return ""
        return self.importer.tensor(self.scope, self.proto.input[index])

    def input(self, index: int) -> str:
        """Return the tensor at input `index`; "" if it is absent.

        In the file, a quantized tensor is plain integers. So operators that compute get those integers, and
        only operators that move elements get the quantized tensor.
        """
        tensor = self.raw_input(index)
        if tensor in self.importer.strings and not self._takes_strings():
            remedy = "cut the graph before it with output_tensors, and work on text in the application"
            raise RefusedError(f"it computes with text; {remedy}")
        quant = self.builder.tensors[tensor].quant if tensor else None
        return self._as_integers(tensor) if quant and not self._carries() else tensor

    def constant_strings(self, index: int) -> tuple[str, ...]:
        """Return the strings of a constant input; none if it holds numbers or is computed at run time."""
        value = self._value(index)
        if isinstance(value, str) or value.data_type != TensorProto.STRING:
            return ()
        return tuple(map(to_text, self.importer.file.array(value).reshape(-1)))

    def _takes_strings(self) -> bool:
        """Tell whether it may read indices of strings: it moves them, or its handler knows the strings."""
        if self.proto.domain == "ai.onnx.ml":
            return self.op in STRING_OPERATORS
        return self.op in STRING_CARRIERS and plain_domain(self.proto.domain) == ""

    def _carries(self) -> bool:
        """Tell whether it only moves elements, which all have the same scale and zero point."""
        if self.op not in CARRIERS or plain_domain(self.proto.domain):
            return False
        tensors = filter(None, map(self.raw_input, range(self.input_count)))
        storages = {self.builder.tensors[tensor].storage for tensor in tensors}
        return self.op != "Concat" or len(storages) == 1

    def _as_integers(self, tensor: str) -> str:
        """Return a quantized tensor as an integer tensor: round(real / scale + zero point)."""
        description = self.builder.tensors[tensor]
        assert description.quant is not None
        scale, zero_point = description.quant.scale[0], description.quant.zero_point[0]
        real = self.emit("Dequantize", [tensor], tag="real")
        steps = self.emit("Div", [real, self.add_float(scale)], tag="steps")
        shifted = self.emit("Add", [steps, self.add_float(zero_point)], tag="shift")
        # Without rounding, the inexact quotient of a float would be cut to the integer below.
        rounded = self.emit("Round", [shifted], tag="round")
        return self.emit("Cast", [rounded], {"to": description.dtype.value}, tag="integers")

    def inputs(self) -> list[str]:
        """Return all tensors that it lists, "" for absent ones."""
        return [self.input(i) for i in range(self.input_count)]

    def array(self, index: int) -> Array | None:
        """Return the elements of input `index` if `is_constant`; else None."""
        if not self.has(index):
            return None
        value = self._value(index)
        return self.builder.constant(value) if isinstance(value, str) else self.importer.file.array(value)

    def real_constant(self, index: int, subject: str) -> Array:
        """Return the numbers of input `index`: of a constant, or what a DequantizeLinear makes of one.

        RefusedError if it is neither. Such a result is not `is_constant`: the graph has a node for it.
        """
        # A quantizer of QDQ files puts a DequantizeLinear before every operand of floats, the value of a Pad
        # as well.
        value = self._value(index)
        node = self.builder.producer(value) if isinstance(value, str) else None
        if node is None or node.op.name != "Dequantize":
            return self.constant(index, subject)
        integers, quant = self.builder.weights.get(node.inputs[0]), self.builder.tensors[node.inputs[0]].quant
        if integers is None or quant is None:
            return self.constant(index, subject)
        return dequantize(integers, quant).astype(np.float32)

    def is_constant(self, index: int) -> bool:
        """Tell whether input `index` is a constant of the file or of the graph, without reading it."""
        if not self.has(index):
            return False
        value = self._value(index)
        return not isinstance(value, str) or self.builder.constant(value) is not None

    def ints_since(self, attr: str, index: int, since: int) -> tuple[int, ...] | None:
        """Return integers that are an attribute before operator set `since` and input `index` from then on.

        None if they are absent.
        """
        if self.opset >= since:
            return self.ints(index, attr) if self.has(index) else None
        value = self.attr(attr)
        return None if value is None else tuple(value)

    def shape(self, index: int) -> Shape:
        """Return the shape of input `index`."""
        value = self._value(index)
        return self.builder.shape(value) if isinstance(value, str) else tuple(value.dims)

    def dtype(self, index: int) -> DType:
        """Return the element type of input `index`."""
        value = self._value(index)
        return self.builder.tensors[value].dtype if isinstance(value, str) else element_type(value.data_type)

    def is_output_read(self, index: int) -> bool:
        """Tell whether a node or the user reads output `index`."""
        return index < len(self.proto.output) and self.proto.output[index] in self.scope.read

    def derive_constant(
        self, index: int, key: object, make: Callable[[Array], Array], quant: Quant | None = None
    ) -> str:
        """Return a constant made from constant input `index` and named after it; made once for every key."""
        return self.importer.derive_constant(
            self.scope, self.proto.input[index], Derivation(key, make, quant)
        )

    def permute(self, index: int, perm: Sequence[int]) -> str:
        """Return input `index` with its axes reordered; a constant is reordered here, not at run time."""
        if self.is_constant(index):
            return self.derive_constant(index, tuple(perm), lambda a: np.transpose(a, perm))
        return self.emit("Transpose", [self.input(index)], {"perm": tuple(perm)}, tag="permute")

    def inner_origin(self, tag: str) -> Node:
        """Return what a node inside is named after; `tag` tells it from the node that has the name itself."""
        return self.origin_of(f"{self.name}/{tag}") if tag else self.origin

    def inner_names(self, tag: str, count: int) -> Sequence[str] | int:
        """Return names for results that stay inside: one has the name of its node, several are numbered."""
        return [self.builder.fresh(self.inner_origin(tag).name)] if count == 1 else count

    def output_name(self, index: int = 0) -> str:
        """Return the name in the IR for output `index`."""
        return self.importer.public_name(self.scope, self.proto.output[index])

    def own_name(self, name: str) -> str:
        """Return the name of a tensor of the model, for which it is reserved; a second one gets a number."""
        # An unrolled loop computes a tensor of the model many times.
        return self.builder.fresh(name) if name in self.builder.tensors else name

    def emit_quantized(
        self,
        op: str,
        inputs: Sequence[str],
        storage: Storage,
        attrs: Mapping[str, Any] | None = None,
        tag: str = "",
    ) -> str:
        """Add an IR node whose result stays inside, its real numbers quantized as `storage` says."""
        name = self.builder.reserve_output(f"{self.name}/{tag or op}", storage)
        return self.add(op, inputs, attrs, [name], self.origin)[0]

    def done_quantized(
        self, op: str, inputs: Sequence[str], storage: Storage, attrs: Mapping[str, Any] | None = None
    ) -> tuple[str, ...]:
        """Add the IR node that computes this node's output, its real numbers quantized as `storage` says."""
        name = self.own_name(self.output_name())
        self.builder.storages[name] = storage
        return self.add(op, inputs, attrs, [name], self.origin)

    def output_names(self, op: Op, count: int | None) -> Sequence[str]:
        """Return names for the outputs of the IR's op, also for those that the node does not list."""
        listed = list(self.proto.output)
        count = len(listed) if op.outputs and op.outputs[-1].endswith("*") else len(op.outputs)
        listed += [""] * (count - len(listed))
        names = [
            self.importer.public_name(self.scope, name) if name else f"{self.name}/unused{i}"
            for i, name in enumerate(listed[:count])
        ]
        return [self.own_name(name) for name in names]

    def channels_first(self, tensor: str) -> tuple[str, ...]:
        """Add the node's output [N, C, *spatial], computed from [N, *spatial, C]."""
        perm = to_first(len(self.builder.shape(tensor)))
        names = [self.own_name(self.output_name())]
        return self.add("Transpose", [tensor], {"perm": perm}, names, self.inner_origin("channels-first"))


def attribute_value(attribute: AttributeProto) -> Any:
    """Return an attribute's value as Python has it: bytes as str, lists as tuples."""
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return to_text(value)
    if attribute.type == AttributeProto.STRINGS:
        return tuple(map(to_text, value))
    return tuple(value) if attribute.type in (AttributeProto.INTS, AttributeProto.FLOATS) else value


def to_text(value: object) -> str:
    """Return a string of a model, which may be bytes, as str."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

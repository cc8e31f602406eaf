"""What a node becomes: an operator of the format with its operands and options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias, TypeVar

from mace_core.attributes import Attributes
from mace_core.ir import Array, DType, Graph, Node, Quant, Storage, Tensor
from mace_core.lowering import Refused
from mace_tflite_writer.schema import SCALE_TOLERANCE
from mace_tflite_writer.types import TYPES_TAKEN
from mace_tflite_writer.versions import version_of

A = TypeVar("A", bound=Attributes)
OptionValue: TypeAlias = "bool | int | float | Array"


# Compared by identity: the writer looks an operand up in a tuple, and arrays do not compare to one boolean.
@dataclass(frozen=True, eq=False)
class ConstantOperand:
    """An operand whose elements the graph does not hold in this form: axes, or reordered weights."""

    array: Array
    quant: Quant | None = None


Operand: TypeAlias = "str | ConstantOperand"
"""The name of a tensor of the graph, "" for an absent one, or a constant of the operator's own."""


@dataclass(frozen=True)
class OperatorOptions:
    """The options of an operator: the name of their table, and fields as `tflite`'s functions name them."""

    table: str
    fields: Mapping[str, OptionValue] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True)
class BuiltinOperator:
    """One operator of a file; code is the name of a builtin operator."""

    code: str
    inputs: tuple[Operand, ...]
    outputs: tuple[str, ...]
    options: OperatorOptions | None
    version: int


@dataclass(frozen=True)
class NodeView:
    """A node with its tensors, as the function that states it sees it."""

    node: Node
    graph: Graph

    @property
    def x(self) -> Tensor:
        """The first input."""
        return self.graph.tensors[self.node.inputs[0]]

    @property
    def y(self) -> Tensor:
        """The first output."""
        return self.graph.tensors[self.node.outputs[0]]

    def input(self, index: int) -> Tensor | None:
        """Return an input; None if it is absent."""
        inputs = self.node.inputs
        return self.graph.tensors[inputs[index]] if index < len(inputs) and inputs[index] else None

    def inputs(self) -> list[Tensor]:
        """Return all inputs that are there."""
        return [self.graph.tensors[name] for name in self.node.inputs if name]

    def constant(self, index: int) -> Array | None:
        """Return the stored elements of an input; None if it is absent or computed."""
        tensor = self.input(index)
        return None if tensor is None else self.graph.weights.get(tensor.name)

    def attributes(self, kind: type[A]) -> A:
        """Return the node's attributes as those of a family of ops."""
        return self.node.attributes(kind)

    def operator(
        self, code: str, inputs: Sequence[Operand] | None = None, options: OperatorOptions | None = None
    ) -> BuiltinOperator:
        """Return the operator for this node; Refused if its kernels do not take the node's types.

        inputs: the node's own where None.
        """
        self._check_types(code)
        operands = self.node.inputs if inputs is None else tuple(inputs)
        fields = options.fields if options else {}
        version = version_of(code, self.graph.inputs_of(self.node), self.graph.outputs_of(self.node), fields)
        return BuiltinOperator(code, operands, self.node.outputs, options, version)

    def _check_types(self, code: str) -> None:
        tensors = self.inputs()[:1] or list(self.graph.outputs_of(self.node))[:1]
        for tensor in tensors:
            kinds = TYPES_TAKEN[code]
            allowed = kinds.quantized if tensor.quant else kinds.plain
            # Half precision is a type of every operator of floats: accelerators compute in it, though the
            # kernels of the CPU widen it first.
            allowed = (*allowed, DType.F16) if DType.F32 in allowed else allowed
            if tensor.dtype not in allowed:
                kind = "quantized " if tensor.quant else ""
                names = ", ".join(dtype.value for dtype in allowed) or "none"
                raise Refused(
                    f"{code} takes no {kind}{tensor.dtype.value} ({tensor.name!r}); it takes {names}",
                    code="quantization" if tensor.quant else "dtype",
                    remedy="convert the model to one of these types",
                )


def need(condition: bool, reason: str, code: str = "attribute", remedy: str = "") -> None:
    """Raise Refused unless the condition holds."""
    if not condition:
        raise Refused(reason, code=code, remedy=remedy)


def need_same_storage(view: NodeView) -> None:
    """Raise Refused unless all tensors of a node store numbers alike: the operator moves them as they are."""
    storages = [t.storage for t in (*view.inputs(), *view.graph.outputs_of(view.node))]
    need(
        all(is_same_storage(storage, storages[0]) for storage in storages),
        "the format's operator copies stored integers, and its tensors have different scales or zero points",
        "quantization",
        "put a Quantize before it (rewrite `requantize_inputs`)",
    )


def is_same_storage(a: Storage | None, b: Storage | None) -> bool:
    """Tell whether integers mean the same real numbers in both, to the precision of a file's scales."""
    if a is None or b is None:
        return a is b
    if (a.dtype, a.quant.zero_point, a.quant.axis) != (b.dtype, b.quant.zero_point, b.quant.axis):
        return False
    return all(abs(s - t) <= SCALE_TOLERANCE * t for s, t in zip(a.quant.scale, b.quant.scale, strict=True))

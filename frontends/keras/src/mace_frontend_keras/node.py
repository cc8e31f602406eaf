"""One call of a layer as its handler sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.importer import ImportedNode, RefusedError, to_first, to_last
from mace_core.ir import Array, DType, Shape
from mace_core.ops.op import Op
from mace_frontend_keras.importer import KerasImporter
from mace_frontend_keras.layer import Layer
from mace_frontend_keras.network import Call, Expansion, Ref, refs


@dataclass(frozen=True)
class KerasNode(ImportedNode):
    """A layer that is called, its settings, and what it is given."""

    noun: ClassVar[str] = "layer"

    call: Call
    importer: KerasImporter

    @property
    def name(self) -> str:
        """The call's name."""
        return self.call.name

    @property
    def op(self) -> str:
        """The class of the layer, or "ops.NAME" for an operation."""
        return self.layer.kind

    @property
    def layer(self) -> Layer:
        """The layer that is called."""
        return self.call.layer

    @property
    def builder(self) -> Builder:
        """The graph that is being made."""
        return self.importer.builder

    def get(self, key: str, default: Any = None) -> Any:
        """A setting of the layer; the default if it is absent or null."""
        value = self.layer.config.get(key)
        return default if value is None else value

    def integer(self, key: str, default: int | None = None) -> int:
        """A setting that is one whole number."""
        value = self.get(key, default)
        self.refuse_unless(type(value) is int, f"{key} is {value!r}, a whole number was expected")
        return int(value)

    def real(self, key: str, default: float) -> float:
        """A setting that is one number; Keras writes those that it holds as arrays in a dictionary."""
        value = self.get(key, default)
        if isinstance(value, dict):
            held = value.get("config")
            value = value.get("value", held.get("value") if isinstance(held, dict) else None)
        self.refuse_unless(isinstance(value, int | float), f"{key} is {value!r}, a number was expected")
        return float(value)

    def integers(self, key: str, count: int, default: int | None = None) -> Shape:
        """A setting that is a whole number for each of `count` axes, or one for all."""
        value = self.get(key, default)
        values = tuple(value) if isinstance(value, list) else (value,) * count
        self.refuse_unless(
            len(values) == count and all(type(v) is int for v in values),
            f"{key} is {value!r}, for {count} axes",
        )
        return values

    def argument(self, position: int, *keys: str, default: Any = None) -> Any:
        """What an operation is given: as an argument, by one of these names, or by its settings."""
        if position < len(self.call.args):
            return self.call.args[position]
        for key in keys:
            if key in self.call.kwargs:
                return self.call.kwargs[key]
        return next((self.get(key) for key in keys if self.get(key) is not None), default)

    def setting(self, *keys: str, default: Any = None) -> Any:
        """What an operation is given by one of these names, or by its settings, never as an argument."""
        return self.argument(len(self.call.args), *keys, default=default)

    def flag(self, key: str) -> bool:
        """Whether the call is given a keyword argument that is true."""
        return bool(self.call.kwargs.get(key))

    def inputs(self) -> list[str]:
        """The tensors of its first argument."""
        given = self.call.args[0] if self.call.args else next(iter(self.call.kwargs.values()), ())
        return [self.importer.tensor(ref) for ref in refs(given)]

    def input(self) -> str:
        """Its one input tensor."""
        found = self.inputs()
        self.refuse_unless(len(found) == 1, f"it is given {len(found)} tensors, one was expected")
        return found[0]

    def float_input(self) -> str:
        """Its one input tensor as floats."""
        return self.to_float(self.input())

    def float_inputs(self) -> list[str]:
        """The tensors of its first argument, as floats if one of them is."""
        found = self.inputs()
        kinds = [self.builder.tensors[t].dtype for t in found]
        return [self.to_float(t) for t in found] if any(k.is_float for k in kinds) else found

    def to_float(self, tensor: str) -> str:
        """A tensor as floats."""
        return (
            tensor
            if self.builder.tensors[tensor].dtype.is_float
            else self.emit("Cast", [tensor], {"to": "f32"}, tag="floats")
        )

    def operand(self, value: Any, like: DType = DType.F32) -> str:
        """The tensor that an argument means; numbers become constants of the type `like`."""
        if isinstance(value, Ref):
            return self.importer.tensor(value)
        array = np.asarray(value)
        self.refuse_unless(array.dtype.kind in "fiub", f"it is given {value!r}")
        if array.dtype.kind == "f" and not like.is_float:
            like = DType.F32
        return self.builder.weight(f"{self.name}/constant", array.astype(like.numpy))

    def shape(self, tensor: str) -> Shape:
        """A tensor's shape."""
        return self.builder.shape(tensor)

    def axis(self, axis: Any, rank: int) -> int:
        """An axis counted from the front; RefusedError if there is none such."""
        if isinstance(axis, list) and len(axis) == 1:
            axis = axis[0]
        self.refuse_unless(
            type(axis) is int and -rank <= axis < rank, f"axis {axis!r} of a tensor of rank {rank}"
        )
        return int(axis) % rank

    def axes(self, axes: Any, rank: int) -> Shape:
        """Axes counted from the front, in order; None means all."""
        if axes is None:
            return tuple(range(rank))
        listed = axes if isinstance(axes, list | tuple) else [axes]
        return tuple(sorted({self.axis(a, rank) for a in listed}))

    def array(self, name: str) -> Array:
        """A weight of the layer; RefusedError if the file does not hold it."""
        array = self.importer.weights.array(self.layer, name)
        if array is None:
            raise RefusedError(
                f"its {name} is not among the weights; save the whole model again with model.save()"
            )
        self.refuse_unless(
            array.dtype.kind == "f",
            f"its {name} is of type {array.dtype}; save the model before it is quantized",
        )
        return array

    def has(self, name: str) -> bool:
        """Whether the layer has such a weight."""
        return name in self.layer.variables

    def weight(self, name: str) -> str:
        """Add a weight of the layer as it is, once for all its calls."""
        return self.importer.shared((self.layer.name, name), lambda: self.array(name))

    def output_names(self, op: Op, count: int | None) -> Sequence[str]:
        """Names for the results of the call: one, unless the handler asks for more."""
        return [self.builder.fresh(Ref(self.name, i).name) for i in range(count or 1)]

    def named(self, tensors: Sequence[str]) -> tuple[str, ...]:
        """The call's results where several nodes compute them."""
        names = self.output_names(self.builder.ops["Identity"], len(tensors))
        return tuple(
            self.add("Identity", [tensor], None, [name], self.origin)[0]
            for tensor, name in zip(tensors, names, strict=True)
        )

    def inner(self, key: str, tensors: Sequence[str], layer: Layer | None = None) -> list[str]:
        """What a layer that this one is made of computes of these tensors, under its own name behind this one's."""
        child = layer or self.layer.children[key]
        return apply_layer(self.importer, f"{self.name}/{key}", child, tensors)

    def part(self, name: str, layer: Layer) -> KerasNode:
        """Return a layer that this one is made of, as a call that is given nothing: for its settings and weights."""
        return KerasNode(Call(name, layer, ()), self.importer)

    @property
    def is_channels_first(self) -> bool:
        """Whether the layer's images have their channels before their spatial axes."""
        return bool(self.get("data_format", "channels_last") == "channels_first")

    def to_channels_last(self, tensor: str) -> str:
        """A tensor of the layer's order of axes as [N, *spatial, C]."""
        rank = len(self.shape(tensor))
        self.refuse_unless(
            rank >= 3, f"it is given a tensor of rank {rank}; it needs a batch, channels and spatial axes"
        )
        return (
            self.emit("Transpose", [tensor], {"perm": to_last(rank)}, tag="channels-last")
            if self.is_channels_first
            else tensor
        )

    def done_in_own_order(self, op: str, inputs: Sequence[str], attrs: Mapping[str, Any]) -> tuple[str, ...]:
        """The call's result by an op that works channels-last, in the layer's order of axes."""
        if not self.is_channels_first:
            return self.done(op, inputs, attrs)
        made = self.emit(op, inputs, attrs)
        return self.done("Transpose", [made], {"perm": to_first(len(self.shape(made)))})

    def called(self, name: str) -> KerasNode:
        """The same call under another name."""
        return replace(self, call=replace(self.call, name=name))


def translate_call(importer: KerasImporter, call: Call) -> None:
    """Translate one call; what reads a result of one that failed is skipped."""
    results = importer.translate(KerasNode(call, importer)) or ()
    importer.results.values[call.name] = None
    importer.results.bind((Ref(call.name, i).name for i in range(len(results))), results)


def apply_layer(importer: KerasImporter, name: str, layer: Layer, tensors: Sequence[str]) -> list[str]:
    """Translate a layer or a model that another one is made of; return its results.

    RefusedError if they are nested too deep, SkippedError if one of its calls failed.
    """
    given = [Ref(f"{name}/given", i) for i in range(len(tensors))]
    importer.results.bind((ref.name for ref in given), tensors)
    expansion = Expansion()
    if layer.is_model:
        results = expansion.model(name, layer, given)
    else:
        expansion.call(name, layer, [given[0] if len(given) == 1 else given], {})
        results = []
    with importer.enter_subgraph():
        for call in expansion.calls:
            translate_call(importer, call)
    if layer.is_model:
        return [importer.tensor(ref) for ref in results]
    known = importer.results.values
    count = next(i for i in range(len(known) + 1) if Ref(name, i).name not in known)
    return [importer.tensor(Ref(name, i)) for i in range(count)]

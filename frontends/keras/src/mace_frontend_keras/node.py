"""The call of a layer as its handler sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.importer import ImportedNode, RefusedError, to_first, to_last
from mace_core.ir import Array, DType, Shape
from mace_core.ops.op import Op
from mace_frontend_keras.importer import KerasImporter
from mace_frontend_keras.layer import KerasLayer
from mace_frontend_keras.network import Expansion, LayerCall, Ref, operands
from mace_frontend_keras.settings import depends_on_training, find_unread, has_unread_positions, is_stated


@dataclass(frozen=True)
class KerasNode(ImportedNode):
    """A call of a layer, with the settings and weights of the layer and the arguments of the call.

    requested: names of the settings and arguments that its handler has read.
    """

    noun: ClassVar[str] = "layer"

    call: LayerCall
    importer: KerasImporter
    requested: set[str] = field(default_factory=set, compare=False)

    @property
    def name(self) -> str:
        """The call's name."""
        return self.call.name

    @property
    def op(self) -> str:
        """The class of the layer, or "ops.NAME" for an operation."""
        return self.layer.kind

    @property
    def layer(self) -> KerasLayer:
        """The layer that is called."""
        return self.call.layer

    @property
    def builder(self) -> Builder:
        """The builder of the IR's graph."""
        return self.importer.builder

    def require_consistent(self, condition: bool, text: str) -> None:
        """Raise RefusedError unless the numbers of the node agree, as they do in undamaged files."""
        self.refuse_unless(condition, f"{text}; save the model again")

    def require_supported(self, condition: bool, text: str) -> None:
        """Raise RefusedError unless the IR can express this form of the node."""
        remedy = "cut the graph before it with output_tensors"
        self.refuse_unless(condition, f"{text}, which is not supported; {remedy}")

    def get(self, key: str, default: Any = None) -> Any:
        """Return a setting of the layer; the default if it is absent or null."""
        self.requested.add(key)
        value = self.layer.config.get(key)
        return default if value is None else value

    def integer(self, key: str, default: int | None = None) -> int:
        """Return a setting that is one integer."""
        value = self.get(key, default)
        self.require_consistent(type(value) is int, f"its {key} is {value!r}, an integer was expected")
        return int(value)

    def real(self, key: str, default: float) -> float:
        """Return a setting that is one number."""
        value = self.get(key, default)
        # Keras writes a number that it holds as an array as a dictionary, whose form depends on the version.
        if isinstance(value, dict):
            config = value.get("config")
            value = value.get("value", config.get("value") if isinstance(config, dict) else None)
        self.require_consistent(
            isinstance(value, int | float), f"its {key} is {value!r}, a number was expected"
        )
        return float(value)

    def integers(self, key: str, count: int, default: int | None = None) -> Shape:
        """Return a setting that is an integer for each of `count` axes, or one for all."""
        value = self.get(key, default)
        values = tuple(value) if isinstance(value, list) else (value,) * count
        known = len(values) == count and all(type(item) is int for item in values)
        self.require_consistent(known, f"its {key} is {value!r}, for {count} axes")
        return values

    def argument(self, position: int, *keys: str, default: Any = None) -> Any:
        """Return an argument of an operation: by position, by one of these names, or by a setting."""
        self.requested.update(keys)
        if position < len(self.call.args):
            return self.call.args[position]
        for key in keys:
            if key in self.call.kwargs:
                return self.call.kwargs[key]
        return next((self.get(key) for key in keys if self.get(key) is not None), default)

    def setting(self, *keys: str, default: Any = None) -> Any:
        """Return an argument of an operation that never stands by position."""
        return self.argument(len(self.call.args), *keys, default=default)

    def keyword(self, key: str) -> Any:
        """Return an argument that the call names; None if it names none such."""
        self.requested.add(key)
        return self.call.kwargs.get(key)

    def flag(self, key: str) -> bool:
        """Tell whether the call has a keyword argument that is true."""
        return bool(self.keyword(key))

    def first_argument(self, default: Any = None) -> Any:
        """Return the first argument by position, or the first one by name if none is given by position."""
        if self.call.args:
            return self.call.args[0]
        for key, value in self.call.kwargs.items():
            self.requested.add(key)
            return value
        return default

    def refuse_unread(self) -> None:
        """Raise RefusedError for a setting or an argument that changes the result and that was not read."""
        unread = find_unread(self.layer, self.call.kwargs, self.requested)
        self.require_supported(not unread, f"it is given {', '.join(unread)}")
        has_unread = has_unread_positions(self.layer, self.call.args)
        self.require_supported(not has_unread, "it is given further arguments by position")
        # A model of Keras 2 trains such a layer in any case. In one of Keras 3 the model's own `training`,
        # False in predict(), replaces that of the call (operation_fn of keras/src/models/functional.py).
        has_training = self.importer.source.version == 2 and is_stated(self.call.kwargs.get("training"))
        is_trained = has_training and depends_on_training(self.layer)
        self.refuse_unless(
            not is_trained, "it is called with training=True; make the model that you deploy without it"
        )

    def inputs(self) -> list[str]:
        """Return the tensors of its first argument."""
        return self.tensors(self.first_argument(()))

    def tensors(self, argument: Any) -> list[str]:
        """Return the tensors in an argument; constant arrays among them are added to the graph."""
        return [
            self.importer.tensor(item) if isinstance(item, Ref) else self._add_array(item)
            for item in operands(argument)
        ]

    def _add_array(self, array: Array) -> str:
        self.refuse_unless(array.dtype.kind in "fiub", f"it is given constants of type {array.dtype}")
        # Keras computes with floats of single precision, whatever numpy made of the numbers.
        kind = np.dtype(np.float32) if array.dtype.kind == "f" else array.dtype
        return self.builder.weight(self.builder.fresh(f"{self.name}/constant"), array.astype(kind))

    def input(self) -> str:
        """Return its one input tensor."""
        tensors = self.inputs()
        self.refuse_unless(len(tensors) == 1, f"it is given {len(tensors)} tensors, one was expected")
        return tensors[0]

    def float_input(self) -> str:
        """Return its one input tensor as floats."""
        return self.to_float(self.input())

    def float_inputs(self) -> list[str]:
        """Return the tensors of its first argument, as floats if one of them is."""
        tensors = self.inputs()
        # Keras promotes integers to floats where both meet.
        has_float = any(self.builder.tensors[tensor].dtype.is_float for tensor in tensors)
        return [self.to_float(tensor) for tensor in tensors] if has_float else tensors

    def to_float(self, tensor: str) -> str:
        """Return a tensor as floats."""
        if self.builder.tensors[tensor].dtype.is_float:
            return tensor
        return self.emit("Cast", [tensor], {"to": "f32"}, tag="floats")

    def operand(self, value: Any, like: DType = DType.F32) -> str:
        """Return the tensor that an argument means.

        Numbers become constants of the type `like`, floats those of single precision at least.
        """
        if isinstance(value, Ref):
            return self.importer.tensor(value)
        array = np.asarray(value)
        self.refuse_unless(array.dtype.kind in "fiub", f"it is given {value!r}")
        if array.dtype.kind == "f" and not like.is_float:
            like = DType.F32
        return self.builder.weight(f"{self.name}/constant", array.astype(like.numpy))

    def shape(self, tensor: str) -> Shape:
        """Return a tensor's shape."""
        return self.builder.shape(tensor)

    def axis(self, axis: Any, rank: int) -> int:
        """Return an axis counted from the front; RefusedError if there is none such."""
        # Keras writes the axis of a BatchNormalization as a list in some versions.
        if isinstance(axis, list) and len(axis) == 1:
            axis = axis[0]
        known = type(axis) is int and -rank <= axis < rank
        self.require_consistent(known, f"it names axis {axis!r} of a tensor of rank {rank}")
        return int(axis) % rank

    def axes(self, axes: Any, rank: int) -> Shape:
        """Return axes counted from the front, in order; None means all."""
        if axes is None:
            return tuple(range(rank))
        listed = axes if isinstance(axes, list | tuple) else [axes]
        return tuple(sorted({self.axis(a, rank) for a in listed}))

    def array(self, name: str) -> Array:
        """Return a weight of the layer; RefusedError if the file does not hold it."""
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
        """Tell whether the layer has such a weight."""
        return name in self.layer.variables

    def weight(self, name: str) -> str:
        """Add a weight of the layer as it is, once for all its calls; return its tensor."""
        return self.importer.add_shared((self.layer.name, name), lambda: self.array(name))

    def output_names(self, op: Op, count: int | None) -> Sequence[str]:
        """Return names for the results of the call: one, unless the handler asks for more."""
        return [self.builder.fresh(Ref(self.name, i).name) for i in range(count or 1)]

    def done_all(self, tensors: Sequence[str]) -> tuple[str, ...]:
        """Add the call's results, which several nodes compute, under their names."""
        names = self.output_names(self.builder.ops["Identity"], len(tensors))
        return tuple(
            self.add("Identity", [tensor], None, [name], self.origin)[0]
            for tensor, name in zip(tensors, names, strict=True)
        )

    def apply_child(self, key: str, tensors: Sequence[str], layer: KerasLayer | None = None) -> list[str]:
        """Return what a layer inside of this one computes from tensors; its name stands behind this one's."""
        child = layer or self.layer.children[key]
        return apply_layer(self.importer, f"{self.name}/{key}", child, tensors)

    def child_node(self, name: str, layer: KerasLayer) -> KerasNode:
        """Return a layer inside of this one as a call without arguments: for its settings and weights."""
        return KerasNode(LayerCall(name, layer, ()), self.importer, self.requested)

    @property
    def is_channels_first(self) -> bool:
        """Whether the layer's images have their channels before their spatial axes."""
        return bool(self.get("data_format", "channels_last") == "channels_first")

    def to_channels_last(self, tensor: str) -> str:
        """Return a tensor in the layer's order of axes as [N, *spatial, C]."""
        rank = len(self.shape(tensor))
        self.refuse_unless(
            rank >= 3, f"it is given a tensor of rank {rank}; it needs a batch, channels and spatial axes"
        )
        if not self.is_channels_first:
            return tensor
        return self.emit("Transpose", [tensor], {"perm": to_last(rank)}, tag="channels-last")

    def done_in_layer_order(
        self, op: str, inputs: Sequence[str], attrs: Mapping[str, Any]
    ) -> tuple[str, ...]:
        """Add the call's result by an op that works channels-last, in the layer's order of axes."""
        if not self.is_channels_first:
            return self.done(op, inputs, attrs)
        result = self.emit(op, inputs, attrs)
        return self.done("Transpose", [result], {"perm": to_first(len(self.shape(result)))})

    def with_name(self, name: str) -> KerasNode:
        """Return the same call under another name."""
        return replace(self, call=replace(self.call, name=name))


def translate_call(importer: KerasImporter, call: LayerCall) -> None:
    """Translate one call; a call that reads a result of a failed one is skipped."""
    results = importer.translate(KerasNode(call, importer)) or ()
    importer.results.values[call.name] = None
    importer.results.bind((Ref(call.name, i).name for i in range(len(results))), results)


def apply_layer(importer: KerasImporter, name: str, layer: KerasLayer, tensors: Sequence[str]) -> list[str]:
    """Translate a layer or a model that another one is made of; return its results.

    RefusedError if they are nested too deep, SkippedError if one of its calls failed.
    """
    inputs = [Ref(f"{name}/given", i) for i in range(len(tensors))]
    importer.results.bind((ref.name for ref in inputs), tensors)
    expansion = Expansion()
    if layer.is_model:
        results = expansion.model(name, layer, inputs)
    else:
        expansion.call(name, layer, [inputs[0] if len(inputs) == 1 else inputs], {})
        results = []
    with importer.enter_subgraph():
        for call in expansion.calls:
            translate_call(importer, call)
    if layer.is_model:
        return [importer.tensor(ref) for ref in results]
    # Only its handler knows how many results a layer has: as many as it has bound.
    known = importer.results.values
    count = next(i for i in range(len(known) + 1) if Ref(name, i).name not in known)
    return [importer.tensor(Ref(name, i)) for i in range(count)]

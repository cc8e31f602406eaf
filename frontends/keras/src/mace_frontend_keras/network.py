"""Expands a model to one list of calls.

Calls of nested models are put in place of the call of the model, and a layer stands there once for each call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from mace_core.ir import Array
from mace_frontend_keras.layer import KerasLayer, layer_name, list_layers
from mace_frontend_keras.settings import is_operation

Key = tuple[str, int]
"""A layer's name, and which of its calls."""

MAX_CALLS = 20_000
"""Limit of the calls: the largest models have a few thousand, but nesting multiplies them."""


class NetworkError(ValueError):
    """A configuration that describes no network; the message says why."""


@dataclass(frozen=True)
class Ref:
    """Result `index` of a call."""

    call: str
    index: int = 0

    @property
    def name(self) -> str:
        """The name of the tensor: that of the call, with the index behind it for all but the first result."""
        return f"{self.call}:{self.index}" if self.index else self.call


@dataclass(frozen=True)
class LayerCall:
    """One application of a layer; tensors in its arguments are Refs."""

    name: str
    layer: KerasLayer
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def refs(self) -> Iterator[Ref]:
        """Yield the tensors that it reads."""
        yield from refs([*self.args, self.kwargs])


@dataclass
class Expansion:
    """Calls in an order in which they can run.

    known: name of a nested model's result -> the result of the call that computes it.
    """

    calls: list[LayerCall] = field(default_factory=list)
    known: dict[str, Ref] = field(default_factory=dict)

    def call(
        self, name: str, layer: KerasLayer, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Callable[[int], Ref]:
        """Append a call, or those of a nested model; return what gives a result by its number."""
        if not layer.is_model:
            if len(self.calls) >= MAX_CALLS:
                raise NetworkError(f"it calls more than {MAX_CALLS} layers")
            self.calls.append(LayerCall(name, layer, args, kwargs))
            return lambda index: Ref(name, index)
        _refuse_arguments(LayerCall(name, layer, args[1:], kwargs))
        inputs = args[0] if args else next(iter(kwargs.values()), [])
        results = self.model(name, layer, inputs, is_trained=bool(kwargs.get("training")))
        self.known.update((Ref(name, i).name, ref) for i, ref in enumerate(results))
        return lambda index: _select_result(results, index, name)

    def model(self, name: str, layer: KerasLayer, inputs: Any, *, is_trained: bool = False) -> list[Ref]:
        """Append the calls of a model, named `name`, on these inputs; return its results.

        is_trained: whether it is called with training=True. It hands this on to the calls in it that state
        nothing else; which layers compute something else by it, their handlers know.
        """
        if layer.kind == "Sequential":
            return self._sequential(name, layer, inputs, is_trained=is_trained)
        return Functional(self, name, layer, is_trained=is_trained).run(inputs)

    def _sequential(self, name: str, layer: KerasLayer, inputs: Any, *, is_trained: bool) -> list[Ref]:
        tensors, kwargs = list(refs(inputs)), {"training": True} if is_trained else {}
        for child in layer.children.values():
            if child.kind != "InputLayer":
                argument = tensors[0] if len(tensors) == 1 else tensors
                results = self.call(_join_names(name, child.short_name), child, [argument], kwargs)
                tensors = [results(0)]
        return tensors


class Functional:
    """A functional model whose calls are appended to an Expansion.

    The calls of a layer are numbered in the order of the file. Keras counts the call by which a nested
    functional model was made as number 0, without writing it: where the model is among another one's
    outputs, and everywhere in files of Keras 2. There the numbers are reduced by one.
    """

    def __init__(self, expansion: Expansion, name: str, layer: KerasLayer, *, is_trained: bool) -> None:
        self.expansion, self.name, self.config, self.is_trained = expansion, name, layer.config, is_trained
        configs = list_layers(layer.config)
        self.layers = dict(zip(map(layer_name, configs), layer.children.values(), strict=True))
        if len(self.layers) != len(configs):
            raise NetworkError("two of its layers have one name")
        self.nodes: dict[str, list[Any]] = {layer_name(c): _as_list(c.get("inbound_nodes")) for c in configs}
        # Keras 2 writes a call as a list, Keras 3 as a dictionary.
        calls = chain.from_iterable(self.nodes.values())
        self.is_keras2 = any(isinstance(call, list) and call for call in calls)
        self.results: dict[Key, Callable[[int], Ref]] = {}

    def run(self, inputs: Any) -> list[Ref]:
        """Append its calls on these inputs; return its results."""
        names = [leaf[0] for leaf in leaves(self.config.get("input_layers"))]
        by_name = isinstance(inputs, dict) and set(names) <= set(inputs)
        tensors = [inputs[name] for name in names] if by_name else list(refs(inputs))
        if len(tensors) != len(names):
            raise NetworkError(
                f"model {self.name!r} has {len(names)} inputs and is given {len(tensors)} tensors"
            )
        for name, tensor in zip(names, tensors, strict=True):
            self.results[str(name), 0] = _always(tensor)
        outputs = [self._node(*leaf, output=True) for leaf in leaves(self.config.get("output_layers"))]
        for key in self._order_calls([key for key, _ in outputs]):
            self.results[key] = self._call(*key)
        return [self.results[key](index) for key, index in outputs]

    def _node(self, name: object, number: object, index: object, *, output: bool = False) -> tuple[Key, int]:
        """Return the call that a [layer, call, result] of the file means, and the index of the result."""
        if not isinstance(name, str) or name not in self.layers:
            raise NetworkError(f"layer {name!r} is read, which is not there")
        if type(number) is not int or type(index) is not int:
            raise NetworkError(f"result {index!r} of call {number!r} of layer {name!r} is read")
        layer, count = self.layers[name], len(self.nodes[name])
        counts_making = layer.is_model and (self.is_keras2 or (output and layer.kind != "Sequential"))
        call = number - 1 if counts_making and number else number
        if not 0 <= call < max(count, 1) or index < 0:
            result = f"result {index} of call {number} of layer {name!r}"
            raise NetworkError(f"{result} is read, which is called {count} times")
        return (name, call), index

    def _order_calls(self, needed: Sequence[Key]) -> list[Key]:
        """Return the calls that the needed ones read, each behind those that it reads itself.

        The walk keeps its own stack, since a chain of layers may be longer than Python's.
        """
        order: list[Key] = []
        begun: set[Key] = set()
        done = set(self.results)
        stack = list(reversed(needed))
        while stack:
            key = stack[-1]
            missing = [] if key in done else [read for read in self._read_calls(key) if read not in done]
            if missing and key in begun:
                raise NetworkError(f"layer {key[0]!r} reads, in the end, its own result")
            if missing:
                begun.add(key)
                stack += missing
                continue
            stack.pop()
            if key not in done:
                done.add(key)
                order.append(key)
        return order

    def _read_calls(self, key: Key) -> list[Key]:
        calls: list[Key] = []

        def note(*leaf: object) -> None:
            calls.append(self._node(*leaf[:3])[0])

        self._arguments(key, note)
        return calls

    def _arguments(self, key: Key, tensor: Callable[..., Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of a call.

        tensor: makes what stands for a tensor, from its layer, call and result.
        """
        name, number = key
        nodes = self.nodes[name]
        if number >= len(nodes):
            # Mostly an InputLayer that is missing among the model's inputs.
            raise NetworkError(
                f"layer {name!r} is read and never called; an input that the model does not list"
            )
        node = nodes[number]
        if isinstance(node, dict):
            args, kwargs = (decode_argument(node.get(part), tensor) for part in ("args", "kwargs"))
            return _as_list(args), kwargs if isinstance(kwargs, dict) else {}
        return self._keras2_arguments(node, tensor)

    def _keras2_arguments(self, node: Any, tensor: Callable[..., Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of a call of Keras 2: a list of [layer, call, result, keyword arguments].

        The keyword arguments of all items belong to the one call.
        """
        if isinstance(node, dict) or (isinstance(node, list) and node and isinstance(node[0], str)):
            node = [node]
        inputs: list[Any] = []
        kwargs: dict[str, Any] = {}
        for item in _as_list(node):
            if not isinstance(item, list) or len(item) < 3:
                raise NetworkError("a call is given what is no tensor")
            inputs.append(item[2] if item[0] == "_CONSTANT_VALUE" else tensor(*item[:3]))
            values = item[3] if len(item) > 3 and isinstance(item[3], dict) else {}
            kwargs.update(self._keras2_value(values, tensor))
        return [inputs[0] if len(inputs) == 1 else inputs], kwargs

    def _keras2_value(self, value: Any, tensor: Callable[..., Any]) -> Any:
        """Return a keyword argument of Keras 2.

        A list that begins with a layer's name and a number is a tensor.
        """
        if isinstance(value, dict):
            return {key: self._keras2_value(item, tensor) for key, item in value.items()}
        if not isinstance(value, list):
            return value
        names_layer = len(value) in (3, 4) and isinstance(value[0], str) and value[0] in self.layers
        if names_layer and type(value[1]) is int:
            return tensor(*value[:3])
        return [self._keras2_value(item, tensor) for item in value]

    def _call(self, name: str, number: int) -> Callable[[int], Ref]:
        def resolve(*leaf: object) -> Ref:
            key, index = self._node(*leaf[:3])
            return self.results[key](index)

        args, kwargs = self._arguments((name, number), resolve)
        public = _join_names(self.name, name)
        call_name = f"{public}/{number}" if number else public
        layer = self.layers[name]
        # Operations have no training. Null in a call stands for the argument of the model, as in
        # Functional.call of Keras.
        if self.is_trained and not is_operation(layer) and kwargs.get("training") is None:
            kwargs = {**kwargs, "training": True}
        return self.expansion.call(call_name, layer, args, kwargs)


def _refuse_arguments(call: LayerCall) -> None:
    """Raise NetworkError for arguments of a nested model, behind its inputs, that no layer would be given."""
    mask, training = (call.kwargs.get(key) for key in ("mask", "training"))
    if is_given([*call.args, mask]) or not (training is None or isinstance(training, bool | int)):
        raise NetworkError(
            f"model {call.name!r} is given a mask or an argument by position, which is not supported; call "
            "it with its inputs alone"
        )


def refs(value: Any) -> Iterator[Ref]:
    """Yield the tensors in an argument in the order of Keras: dictionaries by their sorted keys."""
    yield from (operand for operand in operands(value) if isinstance(operand, Ref))


def operands(value: Any) -> Iterator[Ref | Array]:
    """Yield the tensors and the constant arrays in an argument, dictionaries by their sorted keys."""
    if isinstance(value, Ref | np.ndarray):
        yield value
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            yield from operands(value[key])
    elif isinstance(value, list | tuple):
        for item in value:
            yield from operands(item)


def is_given(value: Any) -> bool:
    """Tell whether an argument is more than null, or lists and dictionaries of nulls."""
    if isinstance(value, dict):
        return any(map(is_given, value.values()))
    if isinstance(value, list | tuple):
        return any(map(is_given, value))
    return value is not None


def leaves(value: Any) -> list[tuple[object, object, object]]:
    """Return the [layer, call, result] in a structure of lists and dictionaries.

    NetworkError if there is none.
    """
    if isinstance(value, dict):
        return list(chain.from_iterable(leaves(value[key]) for key in sorted(value)))
    if not isinstance(value, list):
        raise NetworkError("its inputs or outputs are not listed")
    if len(value) >= 3 and isinstance(value[0], str) and not isinstance(value[1], list | str):
        return [(value[0], value[1], value[2])]
    return list(chain.from_iterable(map(leaves, value)))


def decode_argument(value: Any, tensor: Callable[..., Any]) -> Any:
    """Return an argument as Keras 3 writes it.

    tensor: makes what stands for a tensor, from its layer, call and result.
    """
    if isinstance(value, list):
        return [decode_argument(item, tensor) for item in value]
    if not isinstance(value, dict):
        return value
    kind, config = value.get("class_name"), value.get("config")
    if not isinstance(config, dict):
        return {key: decode_argument(item, tensor) for key, item in value.items()}
    result: Any = value
    match kind:
        case "__keras_tensor__":
            result = tensor(*_history(config))
        case "__slice__":
            result = slice(config.get("start"), config.get("stop"), config.get("step"))
        case "__tensor__" | "__numpy__":
            # numpy has no bfloat16; the numbers stand in the file as text, so nothing is lost.
            dtype = str(config.get("dtype") or "float32").replace("bfloat16", "float32")
            result = np.asarray(config.get("value"), np.dtype(dtype))
        case "__ellipsis__":
            result = ...
    return result


def _history(config: Mapping[str, Any]) -> list[Any]:
    history = config.get("keras_history")
    if not isinstance(history, list) or len(history) != 3:
        raise NetworkError("a tensor of unknown origin is read")
    return history


def _select_result(results: Sequence[Ref], index: int, name: str) -> Ref:
    if index >= len(results):
        raise NetworkError(f"result {index} of model {name!r} is read, which has {len(results)}")
    return results[index]


def _always(tensor: Ref) -> Callable[[int], Ref]:
    """Return what gives an input, whichever of its results is read."""
    return lambda _: tensor


def _join_names(prefix: str, name: str) -> str:
    return f"{prefix}/{name}" if prefix else name


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []

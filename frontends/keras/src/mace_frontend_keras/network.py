"""A model as one list of calls: nested models written out, every layer once for each time that it is applied."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mace_frontend_keras.layer import Layer, name_of, own_layers

Key = tuple[str, int]
"""A layer's name, and which of its calls."""

MOST_CALLS = 20_000
"""Calls of layers; the largest models have a few thousand."""


class NetworkError(ValueError):
    """A configuration that describes no network; the text says why."""


@dataclass(frozen=True)
class Ref:
    """Result `index` of a call."""

    call: str
    index: int = 0

    @property
    def name(self) -> str:
        """What the tensor is called."""
        return f"{self.call}:{self.index}" if self.index else self.call


@dataclass(frozen=True)
class Call:
    """One application of a layer; tensors in its arguments are Refs."""

    name: str
    layer: Layer
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def refs(self) -> Iterator[Ref]:
        """The tensors that it reads."""
        yield from refs([*self.args, self.kwargs])


@dataclass
class Expansion:
    """Calls in an order in which they can run. known: what names of nested models' results stand for."""

    calls: list[Call] = field(default_factory=list)
    known: dict[str, Ref] = field(default_factory=dict)

    def call(
        self, name: str, layer: Layer, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Callable[[int], Ref]:
        """Append a call, or those of a nested model; the results by number."""
        if not layer.is_model:
            if len(self.calls) >= MOST_CALLS:
                raise NetworkError(f"it calls more than {MOST_CALLS} layers")
            self.calls.append(Call(name, layer, args, kwargs))
            return lambda index: Ref(name, index)
        results = self.model(name, layer, args[0] if args else next(iter(kwargs.values()), []))
        self.known.update((Ref(name, i).name, ref) for i, ref in enumerate(results))
        return lambda index: _at(results, index, name)

    def model(self, name: str, layer: Layer, given: Any) -> list[Ref]:
        """Append the calls of a model, named `name`, on these tensors; its results."""
        if layer.kind == "Sequential":
            return self._sequential(name, layer, given)
        return Functional(self, name, layer).run(given)

    def _sequential(self, name: str, layer: Layer, given: Any) -> list[Ref]:
        now = list(refs(given))
        for child in layer.children.values():
            if child.kind != "InputLayer":
                made = self.call(_joined(name, child.own_name), child, [now[0] if len(now) == 1 else now], {})
                now = [made(0)]
        return now


class Functional:
    """A functional model on its way into an Expansion.

    Calls are numbered per layer in the order of the file. A nested functional model counts from 1 where Keras
    counts the call that made
    it: among a model's outputs, and everywhere in files of Keras 2.
    """

    def __init__(self, to: Expansion, name: str, layer: Layer) -> None:
        self.to, self.name, self.config = to, name, layer.config
        described = own_layers(layer.config)
        self.layers = dict(zip(map(name_of, described), layer.children.values(), strict=True))
        if len(self.layers) != len(described):
            raise NetworkError("two of its layers have one name")
        self.nodes: dict[str, list[Any]] = {name_of(d): _list(d.get("inbound_nodes")) for d in described}
        self.old = any(isinstance(node, list) and node for nodes in self.nodes.values() for node in nodes)
        self.made: dict[Key, Callable[[int], Ref]] = {}

    def run(self, given: Any) -> list[Ref]:
        """Append its calls on these tensors; its results."""
        inputs = leaves(self.config.get("input_layers"))
        names = [leaf[0] for leaf in inputs]
        by_name = isinstance(given, dict) and set(names) <= set(given)
        tensors = [given[n] for n in names] if by_name else list(refs(given))
        if len(tensors) != len(names):
            raise NetworkError(
                f"model {self.name!r} has {len(names)} inputs and is given {len(tensors)} tensors"
            )
        for name, tensor in zip(names, tensors, strict=True):
            self.made[str(name), 0] = _always(tensor)
        outputs = [self._node(*leaf, output=True) for leaf in leaves(self.config.get("output_layers"))]
        for key in self._ordered([key for key, _ in outputs]):
            self.made[key] = self._call(*key)
        return [self.made[key](index) for key, index in outputs]

    def _node(self, name: object, number: object, index: object, *, output: bool = False) -> tuple[Key, int]:
        """The call that a place in the file means, and which of its results."""
        if not isinstance(name, str) or name not in self.layers:
            raise NetworkError(f"layer {name!r} is read, which is not there")
        if type(number) is not int or type(index) is not int:
            raise NetworkError(f"result {index!r} of call {number!r} of layer {name!r} is read")
        layer, count = self.layers[name], len(self.nodes[name])
        counted = layer.is_model and (self.old or (output and layer.kind != "Sequential"))
        call = number - 1 if counted and number else number
        if not 0 <= call < max(count, 1) or index < 0:
            raise NetworkError(
                f"result {index} of call {number} of layer {name!r} is read, which is called {count} times"
            )
        return (name, call), index

    def _ordered(self, wanted: Sequence[Key]) -> list[Key]:
        """The calls that the wanted ones need, each after those that it needs itself."""
        order: list[Key] = []
        begun: set[Key] = set()
        done = set(self.made)
        stack = list(reversed(wanted))
        while stack:
            key = stack[-1]
            needs = [n for n in self._needs(key) if n not in done] if key not in done else []
            if needs and key in begun:
                raise NetworkError(f"layer {key[0]!r} reads, in the end, its own result")
            if needs:
                begun.add(key)
                stack += needs
                continue
            stack.pop()
            if key not in done:
                done.add(key)
                order.append(key)
        return order

    def _needs(self, key: Key) -> list[Key]:
        found: list[Key] = []

        def note(*place: object) -> None:
            found.append(self._node(*place[:3])[0])

        self._arguments(key, note)
        return found

    def _arguments(self, key: Key, tensor: Callable[..., Any]) -> tuple[list[Any], dict[str, Any]]:
        """What a call is given, tensors as `tensor` makes them of layer, call and result."""
        name, number = key
        nodes = self.nodes[name]
        if number >= len(nodes):
            raise NetworkError(
                f"layer {name!r} is read and never called; an input that the model does not list"
            )
        node = nodes[number]
        if isinstance(node, dict):
            args, kwargs = (decoded(node.get(part), tensor) for part in ("args", "kwargs"))
            return _list(args), kwargs if isinstance(kwargs, dict) else {}
        return self._old_arguments(node, tensor)

    def _old_arguments(self, node: Any, tensor: Callable[..., Any]) -> tuple[list[Any], dict[str, Any]]:
        """Of a call as Keras 2 writes it: a list of [layer, call, result, keyword arguments], the last of which hold for all."""
        if isinstance(node, dict) or (isinstance(node, list) and node and isinstance(node[0], str)):
            node = [node]
        given: list[Any] = []
        kwargs: dict[str, Any] = {}
        for item in _list(node):
            if not isinstance(item, list) or len(item) < 3:
                raise NetworkError("a call is given what is no tensor")
            given.append(item[2] if item[0] == "_CONSTANT_VALUE" else tensor(*item[:3]))
            kwargs.update(
                self._old_values(item[3] if len(item) > 3 and isinstance(item[3], dict) else {}, tensor)
            )
        return [given[0] if len(given) == 1 else given], kwargs

    def _old_values(self, value: Any, tensor: Callable[..., Any]) -> Any:
        if isinstance(value, dict):
            return {k: self._old_values(v, tensor) for k, v in value.items()}
        if isinstance(value, list):
            is_tensor = (
                len(value) in (3, 4)
                and isinstance(value[0], str)
                and value[0] in self.layers
                and type(value[1]) is int
            )
            return tensor(*value[:3]) if is_tensor else [self._old_values(v, tensor) for v in value]
        return value

    def _call(self, name: str, number: int) -> Callable[[int], Ref]:
        def resolve(*place: object) -> Ref:
            key, index = self._node(*place[:3])
            return self.made[key](index)

        args, kwargs = self._arguments((name, number), resolve)
        public = _joined(self.name, name)
        return self.to.call(f"{public}/{number}" if number else public, self.layers[name], args, kwargs)


def refs(value: Any) -> Iterator[Ref]:
    """The tensors in an argument, in the order of Keras: dictionaries by their sorted keys."""
    if isinstance(value, Ref):
        yield value
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            yield from refs(value[key])
    elif isinstance(value, list | tuple):
        for item in value:
            yield from refs(item)


def leaves(value: Any) -> list[tuple[object, object, object]]:
    """Places [layer, call, result] in a structure of lists and dictionaries."""
    if isinstance(value, dict):
        return [leaf for key in sorted(value) for leaf in leaves(value[key])]
    if (
        isinstance(value, list)
        and len(value) >= 3
        and isinstance(value[0], str)
        and not isinstance(value[1], list | str)
    ):
        return [(value[0], value[1], value[2])]
    if isinstance(value, list):
        return [leaf for item in value for leaf in leaves(item)]
    raise NetworkError("its inputs or outputs are not listed")


def decoded(value: Any, tensor: Callable[..., Any]) -> Any:
    """An argument as Keras 3 writes it, tensors as `tensor` makes them."""
    if isinstance(value, list):
        return [decoded(v, tensor) for v in value]
    if not isinstance(value, dict):
        return value
    kind, config = value.get("class_name"), value.get("config")
    if not isinstance(config, dict):
        return {k: decoded(v, tensor) for k, v in value.items()}
    match kind:
        case "__keras_tensor__":
            made = tensor(*_history(config))
        case "__slice__":
            made = slice(config.get("start"), config.get("stop"), config.get("step"))
        case "__tensor__" | "__numpy__":
            made = np.asarray(
                config.get("value"),
                np.dtype(str(config.get("dtype") or "float32").replace("bfloat16", "float32")),
            )
        case "__ellipsis__":
            made = ...
        case _:
            made = value
    return made


def _history(config: Mapping[str, Any]) -> list[Any]:
    history = config.get("keras_history")
    if not isinstance(history, list) or len(history) != 3:
        raise NetworkError("a tensor of unknown origin is read")
    return history


def _at(results: Sequence[Ref], index: int, name: str) -> Ref:
    if index >= len(results):
        raise NetworkError(f"result {index} of model {name!r} is read, which has {len(results)}")
    return results[index]


def _always(tensor: Ref) -> Callable[[int], Ref]:
    """What an input gives, whichever result is asked for."""
    return lambda _: tensor


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}/{name}" if prefix else name


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []

"""Keeps what is known of one Keras model while its calls are translated."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import ClassVar

from mace_core.graph_builder import Builder
from mace_core.importer import Convert, Damage, Importer, Limits, Scope
from mace_core.ir import Array
from mace_frontend_keras.network import Ref
from mace_frontend_keras.source import KerasFile
from mace_frontend_keras.weights import LayerWeights


class CallResults(Scope[str, str]):
    """The tensors of the IR by the names of calls' results."""

    unknown: ClassVar[str] = "it reads {name!r}, which nothing computes; save the model again"


class KerasImporter(Importer[str]):
    """Reads the calls of a model.

    weights: of all its layers.
    results: name of a call's result -> its tensor.
    masked: tensors that have a mask.
    stateful: names of the layers whose states last from run to run.
    """

    damage = Damage(
        "its settings or weights",
        "save the model again",
        (ArithmeticError, LookupError, ValueError, TypeError, AttributeError, RecursionError, MemoryError),
    )
    limits = Limits(depth=32, nesting="layers are made of each other")

    def __init__(
        self, source: KerasFile, builder: Builder, weights: LayerWeights, convert: Convert[str]
    ) -> None:
        super().__init__(source.file.name, builder, convert)
        self.source = source
        self.weights = weights
        self.results = CallResults()
        self.masked: set[str] = set()
        self.stateful: set[str] = set()
        self._lists: dict[Hashable, list[str]] = {}

    def tensor(self, ref: Ref) -> str:
        """Return the IR's tensor for a result of a call."""
        return self.results.find(ref.name)

    def add_shared(self, key: tuple[str, ...], make: Callable[[], Array]) -> str:
        """Return a constant that all calls of a layer read; `key` is its name as well."""
        return self.constant(key, lambda: self.builder.weight("/".join(key), make()))

    def add_shared_list(self, key: Hashable, make: Callable[[], list[str]]) -> list[str]:
        """Return constants that are made together, the first time by `make`."""
        if key not in self._lists:
            self._lists[key] = make()
        return self._lists[key]

"""A Keras model on its way into the IR."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import ClassVar

from mace_core.graph_builder import Builder
from mace_core.importer import Convert, Damage, Importer, Limits, Scope
from mace_core.ir import Array
from mace_frontend_keras.network import Ref
from mace_frontend_keras.source import Source
from mace_frontend_keras.weights import Weights


class Results(Scope[str, str]):
    """By name the tensors that calls made."""

    unknown: ClassVar[str] = "it reads {name!r}, which nothing makes"


class KerasImporter(Importer[str]):
    """Reads the calls of a model.

    weights: of all its layers.
    results: what calls made, by name.
    masked: tensors that carry a mask.
    stateful: names of the layers whose states last from run to run.
    """

    damage = Damage(
        "its settings or weights",
        "save the model again",
        (ArithmeticError, LookupError, ValueError, TypeError, AttributeError, RecursionError, MemoryError),
    )
    limits = Limits(depth=32, nesting="layers are made of each other")

    def __init__(self, source: Source, builder: Builder, weights: Weights, convert: Convert[str]) -> None:
        super().__init__(source.file.name, builder, convert)
        self.source = source
        self.weights = weights
        self.results = Results()
        self.masked: set[str] = set()
        self.stateful: set[str] = set()
        self._lists: dict[Hashable, list[str]] = {}

    def tensor(self, ref: Ref) -> str:
        """Return the graph's tensor for a result of a call."""
        return self.results.find(ref.name)

    def shared(self, key: tuple[str, ...], make: Callable[[], Array]) -> str:
        """Return a constant that all calls of a layer read; `key` is its name as well."""
        return self.constant(key, lambda: self.builder.weight("/".join(key), make()))

    def shared_list(self, key: Hashable, make: Callable[[], list[str]]) -> list[str]:
        """Return constants that are made together, once."""
        if key not in self._lists:
            self._lists[key] = make()
        return self._lists[key]

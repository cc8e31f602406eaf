"""The values of a graph of a model file by the framework's names."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import ClassVar, Generic, Self, TypeVar

from mace_core.importer.diagnostics import RefusedError, SkippedError

Name = TypeVar("Name", bound=Hashable)
Value = TypeVar("Value")


@dataclass
class Scope(Generic[Name, Value]):
    """Values by name in one graph, function body, branch or iteration of a loop.

    values: the value of each name, mostly the name of a tensor of the IR; None if its node failed.
    prefix: precedes the names of everything that is added inside.
    parent: the scope around this one, whose values it may read; None if it reads only its own.
    source: the node of the file's main graph that contains this scope; None in the main graph.
    """

    unknown: ClassVar[str] = "it reads {name!r}, which nothing before it computes; export the model again"
    """The refusal of a name without a value."""

    values: dict[Name, Value | None] = field(default_factory=dict)
    prefix: str = ""
    parent: Self | None = None
    source: str | None = None

    def owner(self, name: Name) -> Self:
        """Return the scope that has a value for the name: this one or one around it; this one if none has."""
        scope: Self | None = self
        while scope is not None and name not in scope.values:
            scope = scope.parent
        return scope or self

    def get(self, name: Name) -> Value | None:
        """Return the value of a name, None if its node failed; raises RefusedError if it has no value."""
        values = self.owner(name).values
        if name not in values:
            raise RefusedError(self.unknown.format(name=name))
        return values[name]

    def find(self, name: Name) -> Value:
        """Return the value of a name.

        Raises RefusedError for a name without a value, and SkippedError if its node failed.
        """
        value = self.get(name)
        if value is None:
            raise SkippedError
        return value

    def bind(self, names: Iterable[Name], values: Iterable[Value | None] | None) -> None:
        """Give the names of a node's outputs their values.

        values: one for each output; None if the node failed. Outputs after the last value get none, because
        frameworks list optional outputs that nothing reads.
        """
        names = list(names)
        bound = [None] * len(names) if values is None else values
        self.values.update(zip(names, bound, strict=False))

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
    """Values by name in one graph, function body, branch or turn of a loop.

    values: what each name stands for: mostly the name of a tensor of the IR; None where its node failed.
    prefix: put before the names of everything made inside.
    parent: the scope around this one, whose values it may read; None if it reads its own alone.
    source: the node of the file's main graph that this scope belongs to; None in the main graph.
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
        """Return the value of a name, None where its node failed; RefusedError for a name without a value."""
        values = self.owner(name).values
        if name not in values:
            raise RefusedError(self.unknown.format(name=name))
        return values[name]

    def find(self, name: Name) -> Value:
        """Return the value of a name.

        Raises RefusedError for a name without a value, SkippedError where its node failed.
        """
        value = self.get(name)
        if value is None:
            raise SkippedError
        return value

    def bind(self, names: Iterable[Name], values: Iterable[Value | None] | None) -> None:
        """Let the names of a node's outputs stand for its results; for nothing if the node failed (None).

        Outputs behind the last result get no value.
        """
        names = list(names)
        found = [None] * len(names) if values is None else values
        self.values.update(zip(names, found, strict=False))

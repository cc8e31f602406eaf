"""An ONNX model on its way into the IR."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import onnx
from onnx import GraphProto, TensorProto

from mace_core.graph_builder import Builder
from mace_core.importer import Convert, Importer, Limits, RefusedError, Scope
from mace_core.ir import Array, Quant
from mace_frontend_onnx.source import Source, plain_domain

Known: TypeAlias = TensorProto | str
"""What a name stands for: a constant that the graph does not hold yet, or a tensor of the graph ("": absent)."""

Held: TypeAlias = Known | None
"""What an output of a node stands for; nothing because the node failed."""


@dataclass(kw_only=True)
class OnnxScope(Scope[str, Known]):
    """The tensors of one graph, function body or branch by their ONNX names.

    opsets: version of each operator set by domain.
    public: names for some of its tensors outside.
    read: the names that its nodes and outputs read.
    """

    opsets: Mapping[str, int]
    public: Mapping[str, str] = field(default_factory=dict)
    read: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Derivation:
    """How a constant is made from another: equal keys make equal constants.

    quant: how the new one stores real numbers.
    """

    key: object
    make: Callable[[Array], Array]
    quant: Quant | None = None


class OnnxImporter(Importer[Known]):
    """Reads the nodes of a model.

    texts: tensors of the graph that are text in the model, which has no text: they hold indices into these
    lists.
    taken: by the identity of an If, the attribute that holds the branch which is always taken.
    functions: of the model, by domain and name.
    """

    limits = Limits(
        depth=64, nodes=10_000, nesting="functions call each other", remedy="; export the model again"
    )

    def __init__(self, source: Source, builder: Builder, convert: Convert[Known]) -> None:
        super().__init__(source.file.name, builder, convert)
        self.source = source
        self.texts: dict[str, tuple[str, ...]] = {}
        self.taken: dict[int, str] = {}
        self.functions = {(plain_domain(f.domain), f.name): f for f in source.model.functions}
        # With what it is made from, whose id must stay taken.
        self._derived: dict[Hashable, tuple[Known, str]] = {}

    def tensor(self, scope: OnnxScope, name: str) -> str:
        """Return the graph's tensor for an ONNX name; a constant enters the graph when it is first asked for."""
        known = scope.find(name)
        if isinstance(known, str):
            return known
        if known.data_type == TensorProto.STRING:
            raise RefusedError(f"it reads text, {name!r}; cut the graph before it with output_tensors")
        return self.derived(scope, name, Derivation("itself", lambda array: array))

    def derived(self, scope: OnnxScope, name: str, derivation: Derivation) -> str:
        """Return a constant made from another, which itself does not enter the graph for that."""
        known = scope.find(name)
        mark = (known if isinstance(known, str) else id(known), derivation.key)
        if mark not in self._derived:
            array = self.builder.weights[known] if isinstance(known, str) else self.source.array(known)
            stem = scope.owner(name).prefix + name
            made = self.builder.weight(stem, derivation.make(array), derivation.quant)
            self._derived[mark] = (known, made)
        return self._derived[mark][1]

    def outside(self, scope: OnnxScope, name: str) -> str:
        """Return the name in the IR's graph for a tensor made in the scope."""
        return scope.public.get(name) or scope.prefix + name

    def constants(self, graph: GraphProto) -> dict[str, Known]:
        """Return the initializers of a graph by name."""
        known: dict[str, Known] = {tensor.name: tensor for tensor in graph.initializer}
        for sparse in graph.sparse_initializer:
            known[sparse.values.name] = self.builder.weight(sparse.values.name, _dense(self.source, sparse))
        return known


def _dense(source: Source, sparse: onnx.SparseTensorProto) -> Array:
    """A sparse constant, written out; its indices are flat positions or one row of coordinates each."""
    values, indices = source.array(sparse.values), source.array(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    flat = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), dense.shape)
    dense.reshape(-1)[flat] = values
    return dense

"""Holds what is known while an ONNX model is read into the IR."""

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
from mace_frontend_onnx.model_file import OnnxFile, plain_domain

OnnxValue: TypeAlias = TensorProto | str
"""What a name stands for: a constant that is not in the graph yet, or a tensor of the graph ("": absent)."""

Result: TypeAlias = OnnxValue | None
"""What an output of a node stands for; None if the node failed."""


@dataclass(kw_only=True)
class OnnxScope(Scope[str, OnnxValue]):
    """The tensors of one graph, function body or branch by their ONNX names.

    opsets: version of each operator set by domain.
    public: the names in the IR of those of its tensors that are outputs of the node that holds it.
    read: the names that its nodes and outputs read.
    """

    opsets: Mapping[str, int]
    public: Mapping[str, str] = field(default_factory=dict)
    read: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Derivation:
    """How a constant is made from another: equal keys make equal constants.

    quant: how the new constant stores real numbers.
    """

    key: object
    make: Callable[[Array], Array]
    quant: Quant | None = None


class OnnxImporter(Importer[OnnxValue]):
    """Reads the nodes of a model.

    strings: tensors of the graph -> the strings that their integers are indices of. The IR has no strings, so
    a tensor of strings is represented by indices.
    taken_branches: id() of an If -> the attribute that holds the branch which is always taken.
    functions: the model's own functions by domain and name.
    """

    limits = Limits(
        depth=64, nodes=10_000, nesting="functions call each other", remedy="; export the model again"
    )

    def __init__(self, file: OnnxFile, builder: Builder, convert: Convert[OnnxValue]) -> None:
        super().__init__(file.name, builder, convert)
        self.file = file
        self.strings: dict[str, tuple[str, ...]] = {}
        self.taken_branches: dict[int, str] = {}
        self.functions = {(plain_domain(f.domain), f.name): f for f in file.model.functions}
        # The value lies beside the tensor so that it stays alive: its id() is in the key.
        self._derived: dict[Hashable, tuple[OnnxValue, str]] = {}

    def tensor(self, scope: OnnxScope, name: str) -> str:
        """Return the graph's tensor for an ONNX name; a constant enters the graph when it is first read."""
        value = scope.find(name)
        if isinstance(value, str):
            return value
        if value.data_type == TensorProto.STRING:
            raise RefusedError(f"it reads text, {name!r}; cut the graph before it with output_tensors")
        return self.derive_constant(scope, name, Derivation("unchanged", lambda array: array))

    def derive_constant(self, scope: OnnxScope, name: str, derivation: Derivation) -> str:
        """Return a constant made from another one, which does not enter the graph for that."""
        value = scope.find(name)
        key = (value if isinstance(value, str) else id(value), derivation.key)
        if key not in self._derived:
            array = self.builder.weights[value] if isinstance(value, str) else self.file.array(value)
            stem = scope.owner(name).prefix + name
            tensor = self.builder.weight(stem, derivation.make(array), derivation.quant)
            self._derived[key] = (value, tensor)
        return self._derived[key][1]

    def public_name(self, scope: OnnxScope, name: str) -> str:
        """Return the name in the IR for a tensor that is computed in the scope."""
        return scope.public.get(name) or scope.prefix + name

    def constants(self, graph: GraphProto) -> dict[str, OnnxValue]:
        """Return the initializers of a graph by name."""
        values: dict[str, OnnxValue] = {tensor.name: tensor for tensor in graph.initializer}
        for sparse in graph.sparse_initializer:
            values[sparse.values.name] = self.builder.weight(
                sparse.values.name, _read_sparse(self.file, sparse)
            )
        return values


def _read_sparse(file: OnnxFile, sparse: onnx.SparseTensorProto) -> Array:
    """Return a sparse constant as a dense array."""
    values, indices = file.array(sparse.values), file.array(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    # onnx.proto, SparseTensorProto: indices are flat positions [n], or coordinates [n, rank].
    flat = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), dense.shape)
    dense.reshape(-1)[flat] = values
    return dense

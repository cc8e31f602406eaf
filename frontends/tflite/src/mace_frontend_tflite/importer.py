"""A TensorFlow Lite model on its way into the IR."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import ClassVar

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.importer import Convert, Damage, Importer, RefusedError, Scope
from mace_core.ir import Array, Quant, Shape
from mace_frontend_tflite.schema import DAMAGE
from mace_frontend_tflite.source import Source, Subgraph, TensorInfo
from mace_frontend_tflite.variables import ANY, READ, lasting, reader_name, variable_name

MOST_ZEROS = 1 << 26
"""Elements of a state."""


@dataclass(kw_only=True)
class GraphScope(Scope[int, str]):
    """The IR's tensors by their numbers in one graph of the file."""

    unknown: ClassVar[str] = "it reads {name!r}, which nothing before it computes; convert the model again"

    graph: Subgraph


class TfliteImporter(Importer[str]):
    """Reads the operators of a model.

    variables: by name, what they hold at this place of the run.
    states: by graph and tensor, what a state is after the run, as far as it is translated.
    cut: names of variables that the deployment file makes inputs.
    begun: the graph's states, by graph and tensor, or by the name of the variable.
    """

    damage = Damage("its inputs or options", "convert the model again", (*DAMAGE, ArithmeticError))

    def __init__(self, source: Source, builder: Builder, convert: Convert[str]) -> None:
        super().__init__(source.file.name, builder, convert)
        self.source = source
        self.variables: dict[str, str] = {}
        self.cut: set[str] = set()
        self.begun: dict[tuple[int, int] | str, str] = {}
        self.states: dict[tuple[int, int], str] = {}
        self._stems: dict[str, int] = {}

    def begin_state(self, scope: GraphScope, info: TensorInfo, shape: Shape) -> None:
        """Let an input that is a state of the file begin with its first value."""
        self.builder.begin(info.name, first_value(info, shape))
        self.begun[scope.graph.index, info.index] = info.name

    def end_states(self) -> None:
        """State what every state is after the run, once all nodes are translated."""
        for key, name in self.begun.items():
            after = self.variables[key] if isinstance(key, str) else self.states.get(key, name)
            self.builder.set_next(name, after)

    def cut_variable(self, graph: Subgraph, index: int, tensor: str) -> None:
        """Let an input that stands for what a variable holds be the variable's value for all who read it."""
        maker = graph.makers.get(index)
        if maker is not None and maker.code == READ and maker.inputs:
            name = variable_name(graph, maker.inputs[0])
            self.variables[name] = tensor
            self.cut.add(name)

    def begin_variables(self, starts: Mapping[str, str]) -> None:
        """Let variables hold what an initializer gives them: before the first run those that last, else before every run.

        starts: the tensors that hold the values, by the name of the variable.
        """
        for name, tensor in starts.items():
            if not self.lasts(name):
                self.variables[name] = tensor
                continue
            array = self.builder.weights.get(tensor)
            if array is None:
                raise RefusedError(
                    f"variable {name!r} begins with a value that is computed at run time; convert the model again"
                )
            if name in self.cut:
                self.builder.begin(self.variables[name], array)
                self.begun[name] = self.variables[name]
            else:
                stem = reader_name(self.source, name)
                self.begun[name] = self.variables[name] = self.builder.state(
                    stem, array, self.builder.tensors[tensor].quant
                )

    def lasts(self, name: str) -> bool:
        """Tell whether what a variable holds lasts from run to run."""
        return bool(self._lasting & {name, ANY})

    @cached_property
    def _lasting(self) -> set[str]:
        return lasting(self.source)

    def marks(self) -> tuple[object, object]:
        """Return what states and variables are at this place of the run, to tell whether something changes them."""
        return dict(self.states), dict(self.variables)

    def tensor(self, scope: GraphScope, index: int) -> str:
        """Return the IR's tensor for one of the file's; a constant enters the graph when it is first asked for."""
        if index in scope.values:
            return scope.find(index)
        graph = scope.graph
        # An operator that ran before has left it, as in a loop's iteration before this one.
        if (graph.index, index) in self.states:
            return self.states[graph.index, index]
        info = graph.tensors[index]
        if index in graph.makers or index in graph.inputs:
            raise RefusedError(scope.unknown.format(name=info.name))
        key = (graph.index, index) if info.buffer == 0 else (info.buffer, info.shape, info.kind, info.quant)
        return self.constant(key, lambda: self._declare(graph, info))

    def _declare(self, graph: Subgraph, info: TensorInfo) -> str:
        array, quant = self._constant(info)
        if not info.variable:
            return self.builder.weight(info.name, array, quant)
        state = self.builder.state(info.name, array, quant)
        self.begun[graph.index, info.index] = state
        return state

    def _constant(self, info: TensorInfo) -> tuple[Array, Quant | None]:
        array = self.source.array(info)
        quant = info.quant
        if info.variable and array is not None:
            raise RefusedError(
                f"it reads state {info.name!r}, to which the file gives a value; convert the model again"
            )
        # A state begins with zeros.
        if array is None and info.dtype and (info.variable or prod(info.shape) == 0):
            if prod(info.shape) > MOST_ZEROS:
                raise RefusedError(f"{info.name!r} has a shape of {list(info.shape)}")
            array = first_value(info, info.shape)
        if array is None:
            raise RefusedError(
                f"it reads {info.name!r}, which the file neither holds nor computes; convert the model again"
            )
        return (array, quant) if array.dtype != np.int64 or quant is None else (array, None)

    def stem(self, name: str) -> str:
        """The name, or with a number that makes it one that was not asked for before."""
        number = self._stems.get(name, 0)
        self._stems[name] = number + 1
        return f"{name}.{number}" if number else name


def first_value(info: TensorInfo, shape: Shape) -> Array:
    """Return zeros, as integers store them."""
    assert info.dtype is not None
    return np.full(shape, info.quant.zero_point[0] if info.quant else 0, info.dtype.numpy)

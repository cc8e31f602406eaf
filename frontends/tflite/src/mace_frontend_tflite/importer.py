"""Keeps what is known of one model while it is translated: its tensors, states and variables."""

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
from mace_core.numerics import Numerics
from mace_frontend_tflite.schema import DAMAGE
from mace_frontend_tflite.source import Subgraph, TensorInfo, TfliteFile
from mace_frontend_tflite.variables import (
    ANY,
    READ,
    find_lasting_variables,
    reader_name,
    variable_name,
)

MAX_STATE_ELEMENTS = 1 << 26
"""Limit of a state's size. Its zeros are not in the file, so the size of the file does not limit them."""


@dataclass(kw_only=True)
class GraphScope(Scope[int, str]):
    """The IR's tensors by their numbers in one graph of the file."""

    unknown: ClassVar[str] = "it reads {name!r}, which nothing before it computes; convert the model again"

    graph: Subgraph


class TfliteImporter(Importer[str]):
    """Reads the operators of a model.

    variables: name of a variable -> the tensor that it holds before the operator that is translated next.
    states: (graph, tensor of the file) -> the tensor that a state is after the operators translated so far.
    input_variables: names of variables that the deployment file makes inputs.
    initial_states: the states of the IR's graph before the run, by (graph, tensor) or by the variable's name.
    numerics: the rule by which the model rounds.
    """

    damage = Damage("its inputs or options", "convert the model again", (*DAMAGE, ArithmeticError))

    def __init__(self, source: TfliteFile, builder: Builder, convert: Convert[str]) -> None:
        super().__init__(source.file.name, builder, convert)
        self.source = source
        self.variables: dict[str, str] = {}
        self.input_variables: set[str] = set()
        self.initial_states: dict[tuple[int, int] | str, str] = {}
        self.states: dict[tuple[int, int], str] = {}
        self.numerics = Numerics.SINGLE_ROUNDING
        self._stems: dict[str, int] = {}

    def begin_state(self, scope: GraphScope, info: TensorInfo, shape: Shape) -> None:
        """Let an input that is a state of the file begin with its first value."""
        self.builder.begin(info.name, first_value(info, shape))
        self.initial_states[scope.graph.index, info.index] = info.name

    def end_states(self) -> None:
        """Set every state's value after the run, once all nodes are translated."""
        for key, name in self.initial_states.items():
            after = self.variables[key] if isinstance(key, str) else self.states.get(key, name)
            self.builder.set_next(name, after)

    def cut_variable(self, graph: Subgraph, index: int, tensor: str) -> None:
        """Give the variable that an input stands for the input's value, for all its readers."""
        producer = graph.producers.get(index)
        if producer is not None and producer.code == READ and producer.inputs:
            name = variable_name(graph, producer.inputs[0])
            self.variables[name] = tensor
            self.input_variables.add(name)

    def begin_variables(self, starts: Mapping[str, str]) -> None:
        """Give variables the values of an initializer.

        A variable that lasts has it before the first run, any other before every run.
        starts: name of a variable -> the tensor that holds its value.
        """
        for name, tensor in starts.items():
            if not self.lasts(name):
                self.variables[name] = tensor
                continue
            array = self.builder.weights.get(tensor)
            if array is None:
                problem = f"variable {name!r} begins with a value that is computed at run time"
                raise RefusedError(f"{problem}; convert the model again")
            if name in self.input_variables:
                self.builder.begin(self.variables[name], array)
                self.initial_states[name] = self.variables[name]
            else:
                stem = reader_name(self.source, name)
                self.initial_states[name] = self.variables[name] = self.builder.state(
                    stem, array, self.builder.tensors[tensor].quant
                )

    def lasts(self, name: str) -> bool:
        """Tell whether the value of a variable lasts from run to run."""
        # An assignment through a handle of unknown origin may change any variable.
        return bool(self._lasting_variables & {name, ANY})

    @cached_property
    def _lasting_variables(self) -> set[str]:
        return find_lasting_variables(self.source)

    def snapshot_states(self) -> tuple[object, object]:
        """Return the values of states and variables; a later copy differs if an operator has changed one."""
        return dict(self.states), dict(self.variables)

    def tensor(self, scope: GraphScope, index: int) -> str:
        """Return the IR's tensor for one of the file's; a constant is added when it is first read."""
        if index in scope.values:
            return scope.find(index)
        graph = scope.graph
        # A state that an operator before this one changed, as in an earlier iteration of a loop.
        if (graph.index, index) in self.states:
            return self.states[graph.index, index]
        info = graph.tensors[index]
        if index in graph.producers or index in graph.inputs:
            raise RefusedError(scope.unknown.format(name=info.name))
        # Buffer 0 is empty by the format's definition: it says nothing about which tensors are equal.
        key = (graph.index, index) if info.buffer == 0 else (info.buffer, info.shape, info.kind, info.quant)
        return self.constant(key, lambda: self._declare(graph, info))

    def _declare(self, graph: Subgraph, info: TensorInfo) -> str:
        array, quant = self._constant(info)
        if not info.variable:
            return self.builder.weight(info.name, array, quant)
        state = self.builder.state(info.name, array, quant)
        self.initial_states[graph.index, info.index] = state
        return state

    def _constant(self, info: TensorInfo) -> tuple[Array, Quant | None]:
        array = self.source.array(info)
        quant = info.quant
        if info.variable and array is not None:
            raise RefusedError(
                f"it reads state {info.name!r}, to which the file gives a value; convert the model again"
            )
        # LiteRT clears every variable tensor before the first run (Subgraph::ResetVariableTensors).
        if array is None and info.dtype and (info.variable or prod(info.shape) == 0):
            if prod(info.shape) > MAX_STATE_ELEMENTS:
                raise RefusedError(f"{info.name!r} has a shape of {list(info.shape)}")
            array = first_value(info, info.shape)
        if array is None:
            raise RefusedError(
                f"it reads {info.name!r}, which the file neither holds nor computes; convert the model again"
            )
        # The IR has no quantized type of 64 bits. A bias of such is read by ops/conv.py with its scale.
        return (array, None) if array.dtype == np.int64 else (array, quant)

    def stem(self, name: str) -> str:
        """Return the name, with a number behind it if it was returned before."""
        number = self._stems.get(name, 0)
        self._stems[name] = number + 1
        return f"{name}.{number}" if number else name


def first_value(info: TensorInfo, shape: Shape) -> Array:
    """Return zeros: for integers that stand for real numbers, their zero point."""
    assert info.dtype is not None
    return np.full(shape, info.quant.zero_point[0] if info.quant else 0, info.dtype.numpy)

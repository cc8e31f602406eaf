"""From the file's nodes to the IR's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import prod

import numpy as np

from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import Array, DType, Quant, Shape
from mace_core.translation import RefusedError, Senseless, SkippedError, attempt
from mace_frontend_tflite.boundary import Part
from mace_frontend_tflite.node import Node
from mace_frontend_tflite.ops import handlers
from mace_frontend_tflite.ops.spectrum import handle_complex, is_complex, refuse_complex
from mace_frontend_tflite.schema import DAMAGE
from mace_frontend_tflite.source import Operator, Source, Subgraph, TensorInfo
from mace_frontend_tflite.variables import ANY, READ, lasting, reader_name, variable_name

SENSELESS = Senseless("its inputs or options", "convert the model again", (*DAMAGE, ArithmeticError))

DEPTH = 32
"""Graphs that may call each other."""

MOST_NODES = 1 << 14
"""Nodes that loops and sequences may be written out to."""

MOST_ZEROS = 1 << 26
"""Elements of a state."""

FAILED = ""
"""Stands for a tensor whose node could not be represented."""

Held = dict[int, str]
"""The IR's tensors by the file's index."""


class Translation:
    """A model on its way into a Builder, every fault noted.

    variables: by name, what they hold at this place of the run.
    states: by graph and tensor, what a state is after the run, as far as it is translated.
    cut: names of variables that the deployment file makes inputs.
    begun: the graph's states, by graph and tensor, or by the name of the variable.
    """

    def __init__(self, source: Source, builder: Builder) -> None:
        self.source = source
        self.builder = builder
        self.faults: list[str] = []
        self.variables: dict[str, str] = {}
        self.cut: set[str] = set()
        self.begun: dict[object, str] = {}
        self.states: dict[tuple[int, int], str] = {}
        self._constants: dict[object, str] = {}
        self._stems: dict[str, int] = {}
        self._depth = 0

    def refuse_unknown(self, part: Part) -> None:
        """Raise one MaceError for all operators that nothing here knows."""
        unknown = [
            o
            for o in part.operators
            if self._custom(o.code) not in self.builder.ops and o.code not in handlers()
        ]
        remedy = "cut the graph before it with output_tensors, or add it by a plugin"
        place = self.source.file.name
        faults = [
            f"{place}: node {Node(o, part.graph, {}, self).name!r}: operator {o.code} is not supported; {remedy}"
            for o in unknown
        ]
        if faults:
            raise MaceError.of(faults)

    def run(self, part: Part) -> list[str]:
        """Translate the nodes; the tensors that hold the outputs. MaceError with every fault."""
        held: Held = {}
        for info, shape in part.inputs:
            assert info.dtype is not None
            quant = info.quant if info.dtype is not DType.I64 else None
            held[info.index] = self.builder.input(info.name, info.dtype, shape, quant)
            if info.variable:
                self.builder.begin(info.name, _first_value(info, shape))
                self.begun[part.graph.index, info.index] = info.name
            self._cut_variable(part.graph, info.index, held[info.index])
        self.builder.reserved = frozenset(output.name for output in part.outputs)
        self._nodes(part.graph, part.operators, held)
        outputs = self._outputs(part, held)
        self._end_states()
        if self.faults:
            raise MaceError.of(dict.fromkeys(self.faults))
        return outputs

    def _end_states(self) -> None:
        """State what every state is after the run, once all nodes are translated."""
        for key, name in self.begun.items():
            after = self.variables[key] if isinstance(key, str) else self.states.get(key, name)  # type: ignore[call-overload]
            self.builder.set_next(name, after)

    def _cut_variable(self, graph: Subgraph, index: int, tensor: str) -> None:
        """Let an input that stands for what a variable holds be the variable's value for all who read it."""
        maker = graph.makers.get(index)
        if maker is not None and maker.code == READ and maker.inputs:
            name = variable_name(graph, maker.inputs[0])
            self.variables[name] = tensor
            self.cut.add(name)

    def begin_variables(self, node: Node, starts: Mapping[str, str]) -> None:
        """Let variables hold what an initializer gives them: before the first run those that last, else before every run.

        starts: the tensors that hold the values, by the name of the variable.
        """
        for name, tensor in starts.items():
            if not self._lasts(name):
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

    def _lasts(self, name: str) -> bool:
        return bool(self._lasting & {name, ANY})

    @cached_property
    def _lasting(self) -> set[str]:
        return lasting(self.source)

    def marks(self) -> tuple[object, object]:
        """Return what states and variables are at this place of the run, to tell whether something changes them."""
        return dict(self.states), dict(self.variables)

    def _outputs(self, part: Part, held: Held) -> list[str]:
        found = []
        for output in part.outputs:
            try:
                refuse_complex(part.graph.tensors[output.index])
                found.append(
                    self._state(part, output.index)
                    if output.after
                    else self.tensor(part.graph, held, output.index)
                )
            except SkippedError:
                if not self.faults:  # its node has fewer results than the file says
                    self.faults.append(
                        f"{self.source.file.name}: output {output.name!r}: no node computes it; convert the model again"
                    )
            except (RefusedError, *DAMAGE) as error:
                self.faults.append(f"{self.source.file.name}: output {output.name!r}: {error}")
        return found

    def _state(self, part: Part, index: int) -> str:
        key = (part.graph.index, index)
        maker = part.graph.makers.get(index)
        if maker is not None and maker.code == READ and maker.inputs:
            name = variable_name(part.graph, maker.inputs[0])
            if name in self.variables and self._lasts(name):
                return self.variables[name]
        if key not in self.states:
            raise (
                SkippedError
                if self.faults
                else RefusedError("no node that is read here changes it; name another tensor")
            )
        return self.states[key]

    def inline(self, node: Node, index: int, inputs: Sequence[str]) -> list[str]:
        """Translate another graph of the file in place of a node; the tensors that hold its outputs."""
        graph = self.called(node, index)
        node.refuse_unless(
            len(inputs) == len(graph.inputs),
            f"it calls a graph of {len(graph.inputs)} inputs with {len(inputs)}",
        )
        held = dict(zip(graph.inputs, inputs, strict=True))
        self.perform(node, graph, graph.operators, held)
        return [self.tensor(graph, held, i) for i in graph.outputs]

    def called(self, node: Node, index: int) -> Subgraph:
        """The graph that a node calls."""
        node.refuse_unless(
            0 < index < len(self.source.subgraphs), f"it calls graph {index}, which the file does not hold"
        )
        return self.source.subgraphs[index]

    def perform(self, node: Node, graph: Subgraph, operators: Sequence[Operator], held: Held) -> None:
        """Translate operators of a graph that a node calls; SkippedError if any of them fails."""
        node.refuse_unless(self._depth < DEPTH, f"graphs call each other more than {DEPTH} deep")
        before = len(self.faults)
        self._depth += 1
        self._nodes(graph, operators, held)
        self._depth -= 1
        if len(self.faults) > before:
            raise SkippedError

    def tensor(self, graph: Subgraph, held: Held, index: int) -> str:
        """The IR's tensor for one of the file's; a constant enters the graph when it is first asked for."""
        if index in held:
            if held[index] == FAILED:
                raise SkippedError
            return held[index]
        # An operator that ran before has left it, as in a loop's turn before this one.
        if (graph.index, index) in self.states:
            return self.states[graph.index, index]
        info = graph.tensors[index]
        if index in graph.makers or index in graph.inputs:
            raise RefusedError(
                f"it reads {info.name!r}, which nothing before it computes; convert the model again"
            )
        key = (graph.index, index) if info.buffer == 0 else (info.buffer, info.shape, info.kind, info.quant)
        if key not in self._constants:
            array, quant = self._constant(graph, info)
            declare = self.builder.state if info.variable else self.builder.weight
            self._constants[key] = declare(info.name, array, quant)
            if info.variable:
                self.begun[graph.index, index] = self._constants[key]
        return self._constants[key]

    def _constant(self, graph: Subgraph, info: TensorInfo) -> tuple[Array, Quant | None]:
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
            array = _first_value(info, info.shape)
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

    def room_for(self, nodes: int) -> bool:
        """Whether that many nodes more are not too many."""
        return len(self.builder.nodes) + nodes <= MOST_NODES

    def _nodes(self, graph: Subgraph, operators: Sequence[Operator], held: Held) -> None:
        for operator in operators:
            node = Node(operator, graph, held, self)
            results = dict.fromkeys(operator.outputs, FAILED)
            results.update(zip(operator.outputs, self._results(node), strict=False))
            # What the graph is cut at stays.
            held.update((i, result) for i, result in results.items() if i not in held)

    def _results(self, node: Node) -> Sequence[str]:
        """The tensors that hold a node's outputs; none if it failed."""
        place = f"{self.source.file.name}: node {node.name!r} ({node.operator.code})"
        return attempt(self.faults, place, lambda: self._handled(node), SENSELESS) or ()

    def _handled(self, node: Node) -> Sequence[str]:
        if custom := self.builder.ops.get(self._custom(node.operator.code)):
            return node.done(custom, node.inputs())
        if is_complex(node):
            return handle_complex(node)
        if handler := handlers().get(node.operator.code):
            made = handler(node)
            return [made] if isinstance(made, str) else made
        raise RefusedError("this operator is not supported")

    def _custom(self, code: str) -> str:
        return f"tflite::{code.removeprefix('custom ')}"


def _first_value(info: TensorInfo, shape: Shape) -> Array:
    """Return zeros, as integers store them."""
    assert info.dtype is not None
    return np.full(shape, info.quant.zero_point[0] if info.quant else 0, info.dtype.numpy)

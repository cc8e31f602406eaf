"""From the file's nodes to the IR's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from mace_core.build import Builder
from mace_core.errors import MaceError
from mace_core.ops.op import OpError
from mace_frontend_tflite.node import Node, RefusedError, SkippedError
from mace_frontend_tflite.ops import handlers
from mace_frontend_tflite.source import DAMAGE, Operator, Source, Subgraph

DEPTH = 32
"""Graphs that may call each other."""


class Translation:
    """A model on its way into a Builder, every fault noted."""

    def __init__(self, source: Source, builder: Builder) -> None:
        self.source = source
        self.builder = builder
        self.faults: list[str] = []
        self._depth = 0

    def refuse_unknown(self, operators: Iterable[Operator]) -> None:
        """Raise one MaceError for all operators that nothing here knows."""
        unknown = [o for o in operators if self._custom(o.code) not in self.builder.ops and o.code not in handlers()]
        graph = self.source.subgraphs[0]
        faults = []
        for operator in unknown:
            name = graph.tensors[operator.outputs[0]].name if operator.outputs else str(operator.index)
            remedy = "cut the graph before it with output_tensors, or add it by a plugin"
            faults.append(f"{self.source.file.name}: node {name!r}: operator {operator.code} is not supported; {remedy}")
        if faults:
            raise MaceError.of(faults)

    def run(self, graph: Subgraph, nodes: Sequence[Operator], held: dict[int, str], outputs: Sequence[int]) -> list[str]:
        """Translate the nodes; the tensors that hold the outputs. MaceError with every fault."""
        for operator in nodes:
            self._node(Node(operator, graph, held, self))
        if self.faults:
            raise MaceError.of(self.faults)
        try:
            return [self.tensor(graph, held, i) for i in outputs]
        except (SkippedError, *DAMAGE) as error:
            problem = f"an output of the model is never computed ({error!r})"
            raise MaceError(self.source.file.name, problem, "convert the model again, or name other output_tensors") from error

    def inline(self, node: Node, index: int, inputs: Sequence[str]) -> list[str]:
        """Translate another graph of the file in place of a node; the tensors that hold its outputs."""
        node.refuse_unless(0 < index < len(self.source.subgraphs), f"it calls graph {index}, which the file does not hold")
        graph = self.source.subgraphs[index]
        node.refuse_unless(len(inputs) == len(graph.inputs), f"it calls a graph of {len(graph.inputs)} inputs with {len(inputs)}")
        node.refuse_unless(self._depth < DEPTH, f"graphs call each other more than {DEPTH} deep")
        held, before = dict(zip(graph.inputs, inputs, strict=True)), len(self.faults)
        self._depth += 1
        for operator in graph.operators:
            self._node(Node(operator, graph, held, self))
        self._depth -= 1
        if len(self.faults) > before:
            raise SkippedError
        return [self.tensor(graph, held, i) for i in graph.outputs]

    def tensor(self, graph: Subgraph, held: dict[int, str], index: int) -> str:
        """The IR's tensor for one of the file's; a constant enters the graph when it is first asked for."""
        if index not in held:
            info = graph.tensors[index]
            array = self.source.array(info)
            if array is None and info.variable and info.dtype:  # a state begins with zeros
                zero = info.quant.zero_point[0] if info.quant else 0
                array = np.full(info.shape, zero, info.dtype.numpy)
            if array is None:
                raise SkippedError
            held[index] = self.builder.weight(info.name, array, info.quant)
        return held[index]

    def _node(self, node: Node) -> None:
        place = f"{self.source.file.name}: node {node.name!r} ({node.operator.code})"
        try:
            node.held.update(zip(node.operator.outputs, self._results(node), strict=False))
        except SkippedError:
            pass
        except (RefusedError, OpError) as error:
            self.faults.append(f"{place}: {error}")
        except MaceError as error:
            self.faults.append(str(error))
        except (*DAMAGE, ArithmeticError) as error:  # the file decides what is read and computed here
            self.faults.append(f"{place}: its inputs or options make no sense ({error!r}); convert the model again")

    def _results(self, node: Node) -> Sequence[str]:
        if custom := self.builder.ops.get(self._custom(node.operator.code)):
            return node.done(custom, node.inputs())
        if handler := handlers().get(node.operator.code):
            made = handler(node)
            return [made] if isinstance(made, str) else made
        raise RefusedError("this operator is not supported")

    def _custom(self, code: str) -> str:
        return f"tflite::{code.removeprefix('custom ')}"

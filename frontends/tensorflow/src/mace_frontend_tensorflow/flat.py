"""Flattens a graph: the body of every function that is called stands in place of the call.

Names inside are those that TensorFlow gives when it inlines: the call's, a slash, the name in the body.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mace_core.errors import MaceError
from mace_frontend_tensorflow.messages import AttrValue, FunctionDef, NodeDef

MAX_DEPTH = 48
"""How deep functions may call functions: one that calls itself would never end."""

MAX_OPERATIONS = 100_000
"""Operations of a flattened model: functions that call two others each double their number at every level."""

CALLS = ("PartitionedCall", "StatefulPartitionedCall")

RESULTS: Mapping[str, tuple[str, ...]] = {
    "BlockLSTM": ("i", "cs", "f", "o", "ci", "co", "h"),
    "BlockLSTMV2": ("i", "cs", "f", "o", "ci", "co", "h"),
    "FusedBatchNorm": ("y", "batch_mean", "batch_variance", "reserve_space_1", "reserve_space_2"),
    "FusedBatchNormV2": ("y", "batch_mean", "batch_variance", "reserve_space_1", "reserve_space_2"),
    "FusedBatchNormV3": (
        *("y", "batch_mean", "batch_variance"),
        *("reserve_space_1", "reserve_space_2", "reserve_space_3"),
    ),
    "GRUBlockCell": ("r", "u", "c", "h"),
    "LSTMBlockCell": ("i", "cs", "f", "o", "ci", "co", "h"),
    "ListDiff": ("out", "idx"),
    "MaxPoolWithArgmax": ("output", "argmax"),
    "Merge": ("output", "value_index"),
    "NonMaxSuppressionV4": ("selected_indices", "valid_outputs"),
    "NonMaxSuppressionV5": ("selected_indices", "selected_scores", "valid_outputs"),
    "CombinedNonMaxSuppression": ("nmsed_boxes", "nmsed_scores", "nmsed_classes", "valid_detections"),
    "SoftmaxCrossEntropyWithLogits": ("loss", "backprop"),
    "Switch": ("output_false", "output_true"),
    "TensorArrayConcatV3": ("value", "lengths"),
    "TensorArrayV3": ("handle", "flow"),
    "TensorListConcat": ("tensor", "lengths"),
    "TensorListConcatV2": ("tensor", "lengths"),
    "TensorListPopBack": ("output_handle", "tensor"),
    "TopK": ("values", "indices"),
    "TopKV2": ("values", "indices"),
    "Unique": ("y", "idx"),
    "UniqueV2": ("y", "idx"),
    "UniqueWithCounts": ("y", "idx", "count"),
    "UniqueWithCountsV2": ("y", "idx", "count"),
}
"""Names of the outputs of operators that have several (tensorflow/core/ops/*.cc).

Nodes inside of functions refer to outputs by name, nodes of a graph by number.
"""

Ref = tuple[str, int]
"""An output of an operation: its name and the output's number."""


@dataclass(frozen=True, eq=False)
class GraphOperation:
    """A node of the flattened graph.

    inputs: its operands.
    controls: names of nodes that run before it without giving it data.
    """

    name: str
    op: str
    inputs: tuple[Ref, ...]
    controls: tuple[str, ...]
    attrs: Mapping[str, AttrValue]


@dataclass
class Flat:
    """A flattened graph, or the flattened body of a function.

    operations: by name, in the order of the file, which need not be that of execution.
    aliases: the output inside a body that an output of a call stands for.
    arguments: the names of the operations that stand for a function's arguments.
    outputs: a function's results.
    """

    operations: dict[str, GraphOperation] = field(default_factory=dict)
    aliases: dict[Ref, Ref] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    outputs: tuple[Ref, ...] = ()

    def resolve(self, ref: Ref) -> Ref:
        """Return the output of an operation that a reference leads to through calls."""
        # A damaged file may let an alias lead to itself: the number of steps is limited.
        for _ in range(len(self.aliases) + 1):
            if ref not in self.aliases:
                return ref
            ref = self.aliases[ref]
        return ref

    def inputs(self, operation: GraphOperation) -> list[Ref]:
        """Return the operands of an operation, with calls resolved."""
        return [self.resolve(ref) for ref in operation.inputs]

    def source(self, ref: Ref, passing: Sequence[str] = ("Identity",)) -> GraphOperation | None:
        """Return the operation that computes an output, skipping operators in `passing`, or None."""
        for _ in range(len(self.operations) + 1):
            operation = self.operations.get(self.resolve(ref)[0])
            if operation is None or operation.op not in passing or not operation.inputs:
                return operation
            ref = operation.inputs[0]
        return None

    def ancestors(
        self, refs: Iterable[Ref], *, cuts: Collection[Ref] = (), controls: bool = False
    ) -> dict[str, GraphOperation]:
        """Return the operations that these outputs are computed from, by name.

        cuts: outputs whose operations are left out, as the graph is cut there.
        controls: whether operations count that others wait for without reading them.
        """
        ancestors: dict[str, GraphOperation] = {}
        pending = [ref for ref in map(self.resolve, refs) if ref not in cuts]
        while pending:
            name, _ = pending.pop()
            operation = self.operations.get(name)
            if operation is None or name in ancestors:
                continue
            ancestors[name] = operation
            pending += [ref for ref in self.inputs(operation) if ref not in cuts]
            if controls:
                pending += [self.resolve((before, 0)) for before in operation.controls]
        return ancestors


@dataclass(frozen=True)
class _Body:
    """A graph or function body that is being flattened.

    prefix: put before the names of its nodes.
    nodes: by name.
    arguments: what the arguments stand for.
    bound: values of the attributes that the function leaves to its caller.
    depth: the number of calls around it.
    """

    prefix: str
    nodes: Mapping[str, NodeDef]
    arguments: Mapping[str, Ref]
    bound: Mapping[str, AttrValue]
    depth: int


class Flattening:
    """Flattens graphs and functions of a model.

    place: what errors call the model.
    functions: all functions of its library, by name.
    """

    def __init__(self, place: str, functions: Iterable[FunctionDef]) -> None:
        self.place = place
        self.functions: Mapping[str, Any] = {f.signature.name: f for f in functions}
        self._count = 0

    def graph(self, nodes: Sequence[NodeDef]) -> Flat:
        """Return a graph without calls; MaceError if they are nested too deep or the result is too large."""
        flat = Flat()
        self._expand(flat, _Body("", {n.name: n for n in nodes}, {}, {}, 0))
        return flat

    def function(self, name: str, bound: Mapping[str, AttrValue]) -> Flat:
        """Return the body of a function, each argument an operation `_Arg`; MaceError if there is none.

        bound: values of the attributes that the function leaves to its caller.
        """
        function = self._function(name, name)
        arguments = tuple(a.name for a in function.signature.input_arg)
        flat = Flat(arguments=arguments)
        flat.operations.update((a, GraphOperation(a, "_Arg", (), (), {})) for a in arguments)
        inner = _Body("", {n.name: n for n in function.node_def}, {a: (a, 0) for a in arguments}, bound, 0)
        self._expand(flat, inner)
        flat.outputs = tuple(self._result_refs(function, inner))
        return flat

    def _function(self, name: str, caller: str) -> Any:
        if name not in self.functions:
            raise MaceError(
                self.place,
                f"node {caller!r} calls function {name!r}, which the file does not hold",
                "export the model again",
            )
        return self.functions[name]

    def _expand(self, flat: Flat, body: _Body) -> None:
        for node in body.nodes.values():
            self._count += 1
            if self._count > MAX_OPERATIONS:
                raise MaceError(
                    self.place,
                    f"has more than {MAX_OPERATIONS} nodes when its functions are inlined",
                    "cut it with output_tensors",
                )
            name = body.prefix + node.name
            inputs = tuple(self._ref(text, body) for text in node.input if not text.startswith("^"))
            controls = tuple(body.prefix + text[1:] for text in node.input if text.startswith("^"))
            operation = GraphOperation(
                name, node.op, inputs, controls, _bind_attributes(node.attr, body.bound)
            )
            if node.op in CALLS or node.op in self.functions:
                self._inline(flat, operation, body.depth + 1)
            else:
                flat.operations[name] = operation

    def _inline(self, flat: Flat, call: GraphOperation, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise MaceError(
                self.place,
                f"node {call.name!r}: functions call each other more than {MAX_DEPTH} deep",
                "export the model again",
            )
        # Version 2 names the function in an attribute; in version 1 the operator is the function's name.
        named = call.attrs["f"].func if call.op in CALLS and "f" in call.attrs else None
        function = self._function(named.name if named else call.op, call.name)
        formal = [a.name for a in function.signature.input_arg]
        if len(formal) != len(call.inputs):
            problem = f"node {call.name!r} gives {len(call.inputs)} arguments to a function of {len(formal)}"
            raise MaceError(self.place, problem, "export the model again")
        bound = dict(named.attr) if named else call.attrs
        nodes = {n.name: n for n in function.node_def}
        inner = _Body(f"{call.name}/", nodes, dict(zip(formal, call.inputs, strict=True)), bound, depth)
        self._expand(flat, inner)
        flat.aliases.update(((call.name, i), ref) for i, ref in enumerate(self._result_refs(function, inner)))

    def _result_refs(self, function: FunctionDef, inner: _Body) -> Iterator[Ref]:
        """Yield the output of an operation that each result of a function stands for."""
        for output in function.signature.output_arg:
            yield self._ref(str(function.ret.get(output.name, output.name)), inner)

    def _ref(self, text: str, body: _Body) -> Ref:
        """Return what an input names: `argument`, `node`, `node:2`, or in a function `node:output:2`."""
        name, *rest = text.split(":")
        if name in body.arguments and not rest:
            return body.arguments[name]
        # Python converts integers of any length, but takes long for those of a damaged file.
        number = int(rest[-1]) if rest and rest[-1].isdecimal() and len(rest[-1]) < 9 else 0
        if rest and not rest[0].isdecimal():
            number += self._output_number(body.nodes.get(name), rest[0])
        return body.prefix + name, number

    def _output_number(self, node: NodeDef | None, output: str) -> int:
        """Return the number of an output by its name; 0 if unknown, as most operators have one output."""
        if node is None:
            return 0
        function = self.functions.get(node.op)
        names = [o.name for o in function.signature.output_arg] if function else RESULTS.get(node.op, ())
        return list(names).index(output) if output in names else 0


def _bind_attributes(
    attrs: Mapping[str, AttrValue], bound: Mapping[str, AttrValue]
) -> Mapping[str, AttrValue]:
    """Return a node's attributes with those filled in that its function leaves to the caller."""
    return {
        key: bound.get(value.placeholder, value) if value.placeholder else value
        for key, value in attrs.items()
    }

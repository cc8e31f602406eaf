"""A graph of operations without calls: the body of every function that is called stands in place of the call.

Names inside are those that TensorFlow gives when it inlines: the call's, a slash, the body's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mace_core.errors import MaceError
from mace_frontend_tensorflow.messages import AttrValue, FunctionDef, NodeDef

DEPTH = 48
"""How deep functions may call functions."""

MOST = 100_000
"""Operations of a model with all functions written out."""

CALLS = ("PartitionedCall", "StatefulPartitionedCall")

RESULTS: Mapping[str, tuple[str, ...]] = {
    "BlockLSTM": ("i", "cs", "f", "o", "ci", "co", "h"),
    "BlockLSTMV2": ("i", "cs", "f", "o", "ci", "co", "h"),
    "FusedBatchNorm": ("y", "batch_mean", "batch_variance", "reserve_space_1", "reserve_space_2"),
    "FusedBatchNormV2": ("y", "batch_mean", "batch_variance", "reserve_space_1", "reserve_space_2"),
    "FusedBatchNormV3": (
        "y",
        "batch_mean",
        "batch_variance",
        "reserve_space_1",
        "reserve_space_2",
        "reserve_space_3",
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
"""Names of the outputs of the operators that have several (tensorflow/core/ops/*.cc): functions refer to outputs by name."""

Ref = tuple[str, int]
"""An output of an operation: its name and the output's number."""


@dataclass(frozen=True, eq=False)
class Operation:
    """A node. inputs: its operands. controls: names of nodes that run before it without giving it data."""

    name: str
    op: str
    inputs: tuple[Ref, ...]
    controls: tuple[str, ...]
    attrs: Mapping[str, AttrValue]


@dataclass
class Flat:
    """Operations by name.

    aliases: what an output of a call stands for. outputs: what a function's body gives.
    """

    operations: dict[str, Operation] = field(default_factory=dict)
    aliases: dict[Ref, Ref] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    outputs: tuple[Ref, ...] = ()

    def resolved(self, ref: Ref) -> Ref:
        """The output of an operation that a reference leads to."""
        for _ in range(len(self.aliases) + 1):
            if ref not in self.aliases:
                return ref
            ref = self.aliases[ref]
        return ref

    def inputs(self, operation: Operation) -> list[Ref]:
        """The operands of an operation, calls seen through."""
        return [self.resolved(ref) for ref in operation.inputs]

    def source(self, ref: Ref, passing: Sequence[str] = ("Identity",)) -> Operation | None:
        """The operation that computes an output, those of these operators passed by.

        None if there is none.
        """
        for _ in range(len(self.operations) + 1):
            operation = self.operations.get(self.resolved(ref)[0])
            if operation is None or operation.op not in passing or not operation.inputs:
                return operation
            ref = operation.inputs[0]
        return None


@dataclass(frozen=True)
class _Place:
    """Where a body is written out.

    arguments: what its arguments stand for. bound: values of the attributes that its nodes leave open.
    """

    prefix: str
    nodes: Mapping[str, NodeDef]
    arguments: Mapping[str, Ref]
    bound: Mapping[str, AttrValue]
    depth: int


class Flattening:
    """Writes graphs out. place: what errors call the model."""

    def __init__(self, place: str, functions: Iterable[FunctionDef]) -> None:
        self.place = place
        self.functions: Mapping[str, Any] = {f.signature.name: f for f in functions}
        self._count = 0

    def graph(self, nodes: Sequence[NodeDef]) -> Flat:
        """A whole graph; MaceError if calls are nested too deep or the result is too large."""
        flat = Flat()
        self._expand(flat, _Place("", {n.name: n for n in nodes}, {}, {}, 0))
        return flat

    def function(self, name: str, bound: Mapping[str, AttrValue]) -> Flat:
        """The body of a function, each argument an operation `_Arg`.

        MaceError if there is no such function.
        """
        function = self._function(name, name)
        arguments = tuple(a.name for a in function.signature.input_arg)
        flat = Flat(arguments=arguments)
        flat.operations.update((a, Operation(a, "_Arg", (), (), {})) for a in arguments)
        inner = _Place("", {n.name: n for n in function.node_def}, {a: (a, 0) for a in arguments}, bound, 0)
        self._expand(flat, inner)
        flat.outputs = tuple(self._returned(function, inner))
        return flat

    def _function(self, name: str, caller: str) -> Any:
        if name not in self.functions:
            raise MaceError(
                self.place,
                f"node {caller!r} calls function {name!r}, which the file does not hold",
                "export the model again",
            )
        return self.functions[name]

    def _expand(self, flat: Flat, place: _Place) -> None:
        for node in place.nodes.values():
            self._count += 1
            if self._count > MOST:
                raise MaceError(
                    self.place,
                    f"has more than {MOST} nodes with its functions written out",
                    "cut it with output_tensors",
                )
            name = place.prefix + node.name
            inputs = tuple(self._ref(text, place) for text in node.input if not text.startswith("^"))
            controls = tuple(place.prefix + text[1:] for text in node.input if text.startswith("^"))
            operation = Operation(name, node.op, inputs, controls, _bound(node.attr, place.bound))
            if node.op in CALLS or node.op in self.functions:
                self._call(flat, operation, place.depth + 1)
            else:
                flat.operations[name] = operation

    def _call(self, flat: Flat, call: Operation, depth: int) -> None:
        if depth > DEPTH:
            raise MaceError(
                self.place,
                f"node {call.name!r}: functions call each other more than {DEPTH} deep",
                "export the model again",
            )
        named = call.attrs["f"].func if call.op in CALLS and "f" in call.attrs else None
        function = self._function(named.name if named else call.op, call.name)
        formal = [a.name for a in function.signature.input_arg]
        if len(formal) != len(call.inputs):
            problem = f"node {call.name!r} gives {len(call.inputs)} arguments to a function of {len(formal)}"
            raise MaceError(self.place, problem, "export the model again")
        bound = dict(named.attr) if named else call.attrs
        nodes = {n.name: n for n in function.node_def}
        inner = _Place(f"{call.name}/", nodes, dict(zip(formal, call.inputs, strict=True)), bound, depth)
        self._expand(flat, inner)
        flat.aliases.update(((call.name, i), ref) for i, ref in enumerate(self._returned(function, inner)))

    def _returned(self, function: FunctionDef, inner: _Place) -> Iterator[Ref]:
        for output in function.signature.output_arg:
            yield self._ref(str(function.ret.get(output.name, output.name)), inner)

    def _ref(self, text: str, place: _Place) -> Ref:
        """What an input names: `argument`, `node`, `node:2`, or in a function `node:output:2`."""
        name, *rest = text.split(":")
        if name in place.arguments and not rest:
            return place.arguments[name]
        number = int(rest[-1]) if rest and rest[-1].isdecimal() and len(rest[-1]) < 9 else 0
        if rest and not rest[0].isdecimal():
            number += self._first(place.nodes.get(name), rest[0])
        return place.prefix + name, number

    def _first(self, node: NodeDef | None, output: str) -> int:
        """The number of an output that is told by name."""
        if node is None:
            return 0
        function = self.functions.get(node.op)
        names = [o.name for o in function.signature.output_arg] if function else RESULTS.get(node.op, ())
        return list(names).index(output) if output in names else 0


def _bound(attrs: Mapping[str, AttrValue], bound: Mapping[str, AttrValue]) -> Mapping[str, AttrValue]:
    """A node's attributes, those that it leaves to its function's caller filled in."""
    return {
        key: bound.get(value.placeholder, value) if value.placeholder else value
        for key, value in attrs.items()
    }

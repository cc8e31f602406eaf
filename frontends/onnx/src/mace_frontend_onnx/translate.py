"""Walk an ONNX graph node by node, functions and branches inline, and build the IR's graph."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

import numpy as np
import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, TensorProto

from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.hints import lines
from mace_core.ir import Array
from mace_core.ops.op import Op
from mace_core.translation import RefusedError, Senseless, SkippedError, attempt
from mace_frontend_onnx.boundary import Part, reads
from mace_frontend_onnx.node import Derivation, Held, Node, Scope, plain
from mace_frontend_onnx.ops import handlers
from mace_frontend_onnx.source import Source, element_type, plain_domain, versions

DEPTH = 64
"""How deep functions may call functions."""

SENSELESS = Senseless("its inputs or attributes", "export the model again")
MOST_INNER = 10_000
"""Nodes that the bodies of functions, branches and loops may have when they are written out, together."""


class Translation:
    """One model's way into the IR; `faults` collects what is wrong with single nodes.

    texts: tensors of the graph that are text in the model, which has no text: they hold indices into these
    lists.
    taken: by the identity of an If, the attribute that holds the branch which is always taken.
    """

    def __init__(self, source: Source, builder: Builder) -> None:
        self.source = source
        self.builder = builder
        self.faults: list[str] = []
        self.texts: dict[str, tuple[str, ...]] = {}
        self.taken: dict[int, str] = {}
        self._functions = {(plain_domain(f.domain), f.name): f for f in source.model.functions}
        # With what it is made from, whose id must stay taken.
        self._derived: dict[Hashable, tuple[Held, str]] = {}
        self._depth = 0
        self._written = 0

    def run(self, part: Part) -> list[str]:
        """Translate the part; the tensors that hold its outputs. MaceError with every fault."""
        graph = self.source.model.graph
        read = frozenset({*part.outputs, *(name for _, node in part.nodes for name in reads(node))})
        scope = Scope(self.source.opsets, held=self._constants(graph), read=read)
        for given in part.inputs:
            scope.held[given.name] = self.builder.input(given.name, given.dtype, given.shape)
        scope.held.update(
            (name, onnx.numpy_helper.from_array(array, name)) for name, array in part.fixed.items()
        )
        self._walk(
            [Node(proto, proto.name or f"{proto.op_type}_{i}", scope, self) for i, proto in part.nodes],
            part.outputs,
        )
        if self.faults:
            raise MaceError.of(self.faults)
        outputs = [self._output(scope, name) for name in part.outputs]
        self._refuse_text(part, outputs)
        return outputs

    def _output(self, scope: Scope, name: str) -> str:
        """Return the tensor of an output.

        Raises MaceError where nothing computes it, or where it is constant text.
        """
        place = f"{self.source.file.name}: output {name!r}"
        if scope.owner(name).held.get(name) is None:
            raise MaceError(
                place,
                "nothing computes it",
                "export the model again, or name other outputs in output_tensors",
            )
        try:
            return self.tensor(scope, name)
        except RefusedError as error:
            raise MaceError.of([f"{place}: {error}"]) from None

    def _refuse_text(self, part: Part, tensors: Sequence[str]) -> None:
        """Refuse outputs that are text unless the deployment file asks for integers there.

        The note tells what these stand for.
        """
        found = {
            name: self.texts[t] for name, t in zip(part.outputs, tensors, strict=True) if t in self.texts
        }
        file, faults = self.source.file.name, []
        types = [
            (name, "int64" if name in found else self.builder.tensors[t].dtype.numpy.name)
            for name, t in zip(part.outputs, tensors, strict=True)
        ]
        for name, texts in found.items():
            listed = ", ".join(map(repr, texts[:20])) + (", ..." if len(texts) > 20 else "")
            if name in part.indices:
                self.builder.notes.append(f"{file}: output {name!r} is the index of its text in: {listed}")
                continue
            others = lines("output", [n for n, _ in types if n not in found])
            whole = lines("output", [n for n, _ in types], data_types=[t for _, t in types])
            way = f"write in the deployment file the others:{others}\nor take the index of its text in ({listed}) instead:{whole}"
            faults.append(f"{file}: output {name!r} is text, which a library does not give; {way}")
        if faults:
            raise MaceError.of(faults)

    def tensor(self, scope: Scope, name: str) -> str:
        """The graph's tensor for an ONNX name; a constant enters the graph when it is first asked for."""
        held = scope.find(name)
        if held is None:
            raise SkippedError
        if isinstance(held, str):
            return held
        if held.data_type == TensorProto.STRING:
            raise RefusedError(f"it reads text, {name!r}; cut the graph before it with output_tensors")
        return self.derived(scope, name, Derivation("itself", lambda array: array))

    def derived(self, scope: Scope, name: str, how: Derivation) -> str:
        """A constant made from another, which itself does not enter the graph for that."""
        held = scope.find(name)
        mark = (held if isinstance(held, str) else id(held), how.key)
        if mark not in self._derived:
            array = (
                self.builder.weights[held]
                if isinstance(held, str)
                else self.source.array(held or TensorProto())
            )
            self._derived[mark] = (
                held,
                self.builder.weight(scope.owner(name).prefix + name, how.make(array), how.quant),
            )
        return self._derived[mark][1]

    def outside(self, scope: Scope, name: str) -> str:
        """The name in the IR's graph for a tensor made in the scope."""
        return scope.public.get(name) or scope.prefix + name

    def schema(self, node: Node) -> onnx.defs.OpSchema | None:
        """The definition of a node's operator in its version; None for an operator that is not ONNX's."""
        domain = plain_domain(node.proto.domain)
        try:
            return onnx.defs.get_schema(node.op, node.scope.opsets.get(domain, 1), domain)
        except onnx.defs.SchemaError:
            return None

    def refuse_unknown(self, part: Part) -> None:
        """Raise one MaceError for all operators of the part that nothing here knows."""
        opsets, faults = self.source.opsets, []
        for index, proto in part.nodes:
            if index not in part.certain:
                continue
            node = Node(proto, proto.name or f"{proto.op_type}_{index}", Scope(opsets), self)
            domain = plain_domain(proto.domain)
            schema = self.schema(node)
            function = (domain, node.op) in self._functions or (
                schema and (schema.has_function or schema.has_context_dependent_function)
            )
            mapped = handler_name(proto) in handlers()
            if not (mapped or function or custom_name(proto) in self.builder.ops):
                faults.append(
                    f"{self.source.file.name}: node {node.name!r} ({node.op}): {_unsupported(proto)}"
                )
        if faults:
            raise MaceError.of(faults)

    def _walk(self, nodes: Sequence[Node], outputs: Sequence[str]) -> None:
        """Translate nodes in order.

        Faults of those that only branches read that are not taken count nothing.
        """
        told: list[list[str]] = []
        before = len(self.faults)
        for node in nodes:
            self.node(node)
            told.append(self.faults[before:])
            del self.faults[before:]
        live = self._live(nodes, outputs)
        self.faults.extend(fault for index in sorted(live) for fault in told[index])
        if len(self.faults) == before and any(
            node.scope.held.get(o, "") is None for node in nodes[:1] for o in outputs
        ):
            self.faults.extend(fault for faults in told for fault in faults)

    def _live(self, nodes: Sequence[Node], outputs: Sequence[str]) -> set[int]:
        """Which of the nodes the outputs need, now that it is known which branches are taken."""
        makers = {output: index for index, node in enumerate(nodes) for output in node.proto.output}
        live, open_ends = set[int](), list(outputs)
        while open_ends:
            index = makers.get(open_ends.pop())
            if index is None or index in live:
                continue
            live.add(index)
            open_ends.extend(reads(nodes[index].proto, taken=self.taken.get(id(nodes[index].proto), "")))
        return live

    def node(self, node: Node) -> None:
        """Translate one node; a fault is noted, and what reads the node's outputs is passed over."""
        place = f"{self.source.file.name}: node {node.name!r} ({node.op})"
        results = attempt(self.faults, place, lambda: self._results(node), SENSELESS)
        failed = [None] * len(node.proto.output)
        for name, result in zip(node.proto.output, failed if results is None else results, strict=False):
            if name:
                node.scope.held[name] = result

    def _results(self, node: Node) -> Sequence[Held]:
        domain = plain_domain(node.proto.domain)
        if local := self._functions.get((domain, node.op)):
            return self.call(node, local)
        if domain == "" and node.op == "Constant" and node.attr("value") is not None:
            return [_supported(node.attr("value"))]
        if handler := handlers().get(handler_name(node.proto)):
            made = handler(node)
            results = [made] if isinstance(made, str) else made
            self._hand_on_text(node, results)
            return results
        if custom := self.builder.ops.get(custom_name(node.proto)):
            return node.done(custom, node.inputs(), dict(self._custom_attributes(node, custom)))
        if body := self.body(node):
            return self.call(node, body)
        raise RefusedError(_unsupported(node.proto))

    def _hand_on_text(self, node: Node, results: Sequence[Held]) -> None:
        """What moves the indices of texts gives indices of the same texts."""
        if plain_domain(node.proto.domain) or not node.has(0):
            return
        held = node.scope.find(node.proto.input[0])
        if isinstance(held, str) and held in self.texts:
            self.texts.update((name, self.texts[held]) for name in results if isinstance(name, str) and name)

    def _custom_attributes(self, node: Node, op: Op) -> Iterable[tuple[str, object]]:
        """Attributes by name; ONNX writes yes and no as numbers, and arrays as tensors."""
        for attribute in node.proto.attribute:
            value = plain(attribute)
            if isinstance(value, TensorProto):
                value = self.source.array(value)
            yield attribute.name, bool(value) if isinstance(op.attrs.get(attribute.name), bool) else value

    def body(self, node: Node) -> FunctionProto | None:
        """The function by which ONNX defines the node's operator, for inputs of these types.

        None if there is none.
        """
        schema = self.schema(node)
        version = node.scope.opsets.get(plain_domain(node.proto.domain), 1)
        if schema is None:
            return None
        if schema.has_context_dependent_function:
            types = [self._type(node, i) for i in range(node.count)]
            content = schema.get_context_dependent_function_with_opset_version(
                version, node.proto.SerializeToString(), types
            )
        elif schema.has_function:
            content = schema.get_function_with_opset_version(version)
        else:
            return None
        return FunctionProto.FromString(content) if content else None

    def _type(self, node: Node, index: int) -> bytes:
        if not node.has(index):
            return bytes(onnx.TypeProto().SerializeToString())
        code = onnx.helper.np_dtype_to_tensor_dtype(node.dtype(index).numpy)
        return bytes(onnx.helper.make_tensor_type_proto(code, node.shape(index)).SerializeToString())

    def call(self, node: Node, function: FunctionProto) -> Sequence[Held]:
        """Translate a function's body in place of the node that calls it."""
        if self._depth >= DEPTH:
            raise RefusedError(f"functions call each other more than {DEPTH} deep; export the model again")
        held: dict[str, Held] = dict.fromkeys(function.input, "")
        given = zip(function.input, node.proto.input, strict=False)
        held.update((formal, node.scope.find(name) if name else "") for formal, name in given)
        if None in held.values():
            raise SkippedError
        attributes = {a.name: a for a in self._attributes(node, function)}
        opsets = {**node.scope.opsets, **versions(function.opset_import)}
        # a body names every possible output, and computes those that the node lists
        outputs = function.output[: len(node.proto.output)]
        return self._inner(
            node, Scope(opsets, held=held), [_bound(n, attributes) for n in function.node], outputs
        )

    def _attributes(self, node: Node, function: FunctionProto) -> Iterable[AttributeProto]:
        yield from function.attribute_proto
        schema = self.schema(node)
        yield from (
            a.default_value for a in (schema.attributes.values() if schema else ()) if a.default_value.type
        )
        yield from node.proto.attribute

    def inline(
        self, node: Node, graph: GraphProto, held: Mapping[str, Held], tag: str = ""
    ) -> Sequence[Held]:
        """Translate a graph that a node holds, its inputs bound to `held`; what its outputs stand for."""
        scope = Scope(node.scope.opsets, parent=node.scope, held={**self._constants(graph), **held})
        return self._inner(node, scope, graph.node, [o.name for o in graph.output], tag)

    def _inner(
        self, node: Node, scope: Scope, nodes: Sequence[NodeProto], outputs: Sequence[str], tag: str = ""
    ) -> Sequence[Held]:
        scope.prefix = f"{node.name}{tag}/"
        scope.source = node.scope.source or node.name
        if not tag:
            names = zip(outputs, node.proto.output, strict=False)
            scope.public = {inner: self.outside(node.scope, outer) for inner, outer in names if outer}
        scope.read = frozenset({*outputs, *(name for inner in nodes for name in reads(inner))})
        self._count(len(nodes))
        self._depth += 1
        before = len(self.faults)
        labels = [
            f"{scope.prefix}{proto.name or f'{proto.op_type}_{index}'}" for index, proto in enumerate(nodes)
        ]
        self._walk(
            [Node(proto, label, scope, self) for proto, label in zip(nodes, labels, strict=True)], outputs
        )
        self._depth -= 1
        if len(self.faults) > before:
            raise SkippedError
        listed = [*node.proto.output] if not tag else outputs
        return [scope.find(inner) if outer else "" for inner, outer in zip(outputs, listed, strict=False)]

    def _count(self, nodes: int) -> None:
        """RefusedError as soon as more is written out than a library should hold, SkippedError from then on."""
        if self._written > MOST_INNER:
            raise SkippedError
        self._written += nodes
        if self._written > MOST_INNER:
            text = f"functions, branches and loops that are written out come to more than {MOST_INNER} nodes"
            raise RefusedError(f"{text}; export the model with fewer turns, or cut it with output_tensors")

    def _constants(self, graph: GraphProto) -> dict[str, Held]:
        held: dict[str, Held] = {t.name: t for t in graph.initializer}
        for sparse in graph.sparse_initializer:
            held[sparse.values.name] = self.builder.weight(sparse.values.name, _dense(self.source, sparse))
        return held


def handler_name(node: NodeProto) -> str:
    """The name under which an operator's handler is filed: ONNX's own operators without a domain."""
    return custom_name(node) if plain_domain(node.domain) else str(node.op_type)


def custom_name(node: NodeProto) -> str:
    """The name that a plugin's op for this node bears."""
    return f"{plain_domain(node.domain) or 'ai.onnx'}::{node.op_type}"


def _unsupported(node: NodeProto) -> str:
    name = custom_name(node)
    return f"operator {name} is not supported; cut the graph before it with output_tensors, or add {name!r} by a plugin"


def _supported(tensor: TensorProto) -> TensorProto:
    try:
        element_type(tensor.data_type)
    except ValueError as error:
        raise RefusedError(f"{error}; convert the model to float32") from None
    return tensor


def _bound(node: NodeProto, attributes: Mapping[str, AttributeProto]) -> NodeProto:
    """A node of a function body, what it takes from the call's attributes filled in.

    An absent one is left out.
    """
    made = NodeProto()
    made.CopyFrom(node)
    del made.attribute[:]
    for attribute in node.attribute:
        given = attributes.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
        if given is None:
            continue
        bound = made.attribute.add()
        bound.CopyFrom(given)
        bound.name = attribute.name
        for graph in (
            (bound.g, *bound.graphs) if bound.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS) else ()
        ):
            inner = [_bound(n, attributes) for n in graph.node]
            del graph.node[:]
            graph.node.extend(inner)
    return made


def _dense(source: Source, sparse: onnx.SparseTensorProto) -> Array:
    """A sparse constant, written out; its indices are flat positions or one row of coordinates each."""
    values, indices = source.array(sparse.values), source.array(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    flat = indices if indices.ndim == 1 else np.ravel_multi_index(tuple(indices.T), dense.shape)
    dense.reshape(-1)[flat] = values
    return dense

"""Writes functions, branches and bodies of loops out in place of the nodes that call or hold them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto

from mace_core.importer import RefusedError, SkippedError
from mace_frontend_onnx.boundary import reads
from mace_frontend_onnx.importer import Held, OnnxImporter, OnnxScope
from mace_frontend_onnx.node import OnnxNode
from mace_frontend_onnx.source import plain_domain, versions


def walk(importer: OnnxImporter, nodes: Sequence[OnnxNode], outputs: Sequence[str]) -> None:
    """Translate nodes in order.

    Faults of those that only branches read that are not taken count nothing.
    """
    faults = importer.faults
    reported: list[list[str]] = []
    before = len(faults)
    for node in nodes:
        _translate(node)
        reported.append(faults[before:])
        del faults[before:]
    live = _live(importer, nodes, outputs)
    faults.extend(fault for index in sorted(live) for fault in reported[index])
    failed = any(node.scope.values.get(name, "") is None for node in nodes[:1] for name in outputs)
    if len(faults) == before and failed:
        faults.extend(fault for of_node in reported for fault in of_node)


def _translate(node: OnnxNode) -> None:
    """Translate one node; what reads an output of one that failed is skipped."""
    results = node.importer.translate(node)
    listed = [None] * len(node.proto.output) if results is None else results
    for name, result in zip(node.proto.output, listed, strict=False):
        if name:
            node.scope.values[name] = result


def _live(importer: OnnxImporter, nodes: Sequence[OnnxNode], outputs: Sequence[str]) -> set[int]:
    """Return which of the nodes the outputs need, now that it is known which branches are taken."""
    makers = {output: index for index, node in enumerate(nodes) for output in node.proto.output}
    live, open_ends = set[int](), list(outputs)
    while open_ends:
        index = makers.get(open_ends.pop())
        if index is None or index in live:
            continue
        live.add(index)
        open_ends.extend(reads(nodes[index].proto, taken=importer.taken.get(id(nodes[index].proto), "")))
    return live


def inline(node: OnnxNode, graph: GraphProto, given: Mapping[str, Held], tag: str = "") -> Sequence[Held]:
    """Translate a graph that a node holds, its inputs bound to `given`; return what its outputs stand for."""
    values = {**node.importer.constants(graph), **given}
    scope = OnnxScope(values, parent=node.scope, opsets=node.scope.opsets)
    return _written_out(node, scope, (graph.node, [o.name for o in graph.output]), tag)


def call(node: OnnxNode, function: FunctionProto) -> Sequence[Held]:
    """Translate a function's body in place of the node that calls it; return what its outputs stand for."""
    values: dict[str, Held] = dict.fromkeys(function.input, "")
    given = zip(function.input, node.proto.input, strict=False)
    values.update((formal, node.scope.find(name) if name else "") for formal, name in given)
    attributes = {a.name: a for a in _attributes(node, function)}
    opsets = {**node.scope.opsets, **versions(function.opset_import)}
    # A body names every possible output, and computes those that the node lists.
    outputs = function.output[: len(node.proto.output)]
    body = [_bound(inner, attributes) for inner in function.node]
    return _written_out(node, OnnxScope(values, opsets=opsets), (body, outputs))


def function_body(node: OnnxNode) -> FunctionProto | None:
    """Return the function by which ONNX defines the node's operator, for inputs of these types.

    None if there is none.
    """
    schema = node.schema()
    version = node.scope.opsets.get(plain_domain(node.proto.domain), 1)
    if schema is None:
        return None
    if schema.has_context_dependent_function:
        types = [_type(node, i) for i in range(node.count)]
        content = schema.get_context_dependent_function_with_opset_version(
            version, node.proto.SerializeToString(), types
        )
    elif schema.has_function:
        content = schema.get_function_with_opset_version(version)
    else:
        return None
    return FunctionProto.FromString(content) if content else None


def _type(node: OnnxNode, index: int) -> bytes:
    if not node.has(index):
        return bytes(onnx.TypeProto().SerializeToString())
    code = onnx.helper.np_dtype_to_tensor_dtype(node.dtype(index).numpy)
    return bytes(onnx.helper.make_tensor_type_proto(code, node.shape(index)).SerializeToString())


def _attributes(node: OnnxNode, function: FunctionProto) -> Iterable[AttributeProto]:
    yield from function.attribute_proto
    schema = node.schema()
    defaults = (a.default_value for a in (schema.attributes.values() if schema else ()))
    yield from (value for value in defaults if value.type)
    yield from node.proto.attribute


def _written_out(
    node: OnnxNode, scope: OnnxScope, body: tuple[Sequence[NodeProto], Sequence[str]], tag: str = ""
) -> Sequence[Held]:
    """Translate the nodes of a body; `body` has its nodes and the names of its outputs."""
    nodes, outputs = body
    importer = node.importer
    with importer.nested():
        scope.prefix = f"{node.name}{tag}/"
        scope.source = node.source
        if not tag:
            names = zip(outputs, node.proto.output, strict=False)
            scope.public = {inner: importer.outside(node.scope, outer) for inner, outer in names if outer}
        scope.read = frozenset({*outputs, *(name for inner in nodes for name in reads(inner))})
        _count(importer, len(nodes))
        labels = [f"{scope.prefix}{p.name or f'{p.op_type}_{i}'}" for i, p in enumerate(nodes)]
        inner_nodes = [OnnxNode(p, label, scope, importer) for p, label in zip(nodes, labels, strict=True)]
        walk(importer, inner_nodes, outputs)
    listed = [*node.proto.output] if not tag else outputs
    return [scope.get(inner) if outer else "" for inner, outer in zip(outputs, listed, strict=False)]


def _count(importer: OnnxImporter, nodes: int) -> None:
    """RefusedError as soon as more is written out than a library should hold, SkippedError from then on."""
    if importer.is_full:
        raise SkippedError
    if not importer.write_out(nodes):
        limit = importer.limits.nodes
        text = f"functions, branches and loops that are written out come to more than {limit} nodes"
        raise RefusedError(f"{text}; export the model with fewer turns, or cut it with output_tensors")


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

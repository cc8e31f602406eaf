"""Translates functions, branches and bodies of loops in place of the nodes that call or hold them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto

from mace_core.importer import RefusedError, SkippedError, needed_nodes
from mace_frontend_onnx.importer import OnnxImporter, OnnxScope, Result
from mace_frontend_onnx.model_file import plain_domain, versions
from mace_frontend_onnx.model_part import names_of_inputs, names_read
from mace_frontend_onnx.node import OnnxNode


def translate_nodes(importer: OnnxImporter, nodes: Sequence[OnnxNode], outputs: Sequence[str]) -> None:
    """Translate nodes in order; report only faults of nodes that the outputs need.

    Which branch of an If runs is known only after its condition was translated, so every node is translated,
    and the faults of nodes that only branches read that never run are dropped afterwards.
    """
    faults = importer.faults
    faults_by_node: list[list[str]] = []
    before = len(faults)
    for node in nodes:
        _translate(node)
        faults_by_node.append(faults[before:])
        del faults[before:]
    for index in _needed_indices(importer, nodes, outputs):
        faults.extend(faults_by_node[index])
    failed = bool(nodes) and any(nodes[0].scope.values.get(name, "") is None for name in outputs)
    # An output that failed without a fault of its own would be reported as "nothing computes it".
    if len(faults) == before and failed:
        for node_faults in faults_by_node:
            faults.extend(node_faults)


def _translate(node: OnnxNode) -> None:
    """Translate one node; nodes that read an output of one that failed are skipped."""
    results = node.importer.translate(node)
    listed = [None] * len(node.proto.output) if results is None else results
    for name, result in zip(node.proto.output, listed, strict=False):
        if name:
            node.scope.values[name] = result


def _needed_indices(
    importer: OnnxImporter, nodes: Sequence[OnnxNode], outputs: Sequence[str]
) -> Sequence[int]:
    """Return which of the nodes the outputs need, now that it is known which branches run."""

    def reads(index: int) -> Iterator[str]:
        proto = nodes[index].proto
        return names_of_inputs(proto, taken_branch=importer.taken_branches.get(id(proto), ""))

    def writes(index: int) -> Iterator[str]:
        yield from nodes[index].proto.output

    return needed_nodes(range(len(nodes)), outputs, (), (reads, writes))


def inline_graph(
    node: OnnxNode, graph: GraphProto, inputs: Mapping[str, Result], tag: str = ""
) -> Sequence[Result]:
    """Translate a graph that a node holds; return what its outputs stand for.

    inputs: what the graph's inputs stand for.  tag: tells several copies of a graph apart; with one, the
    outputs get inner names, because the node's outputs are computed from them.
    """
    values = {**node.importer.constants(graph), **inputs}
    scope = OnnxScope(values, parent=node.scope, opsets=node.scope.opsets)
    return _translate_body(node, scope, (graph.node, [output.name for output in graph.output]), tag)


def inline_function(node: OnnxNode, function: FunctionProto) -> Sequence[Result]:
    """Translate a function's body in place of the node that calls it; return what its outputs stand for."""
    values: dict[str, Result] = dict.fromkeys(function.input, "")
    arguments = zip(function.input, node.proto.input, strict=False)
    values.update((formal, node.scope.find(name) if name else "") for formal, name in arguments)
    attributes = {attribute.name: attribute for attribute in _attributes(node, function)}
    opsets = {**node.scope.opsets, **versions(function.opset_import)}
    # A body names every possible output; the node may list fewer.
    outputs = function.output[: len(node.proto.output)]
    body = [_bind_attributes(inner, attributes) for inner in function.node]
    # No parent: a function sees its own inputs alone (onnx/docs/IR.md, Functions).
    return _translate_body(node, OnnxScope(values, opsets=opsets), (body, outputs))


def find_function_body(node: OnnxNode) -> FunctionProto | None:
    """Return the function by which ONNX defines the node's operator for inputs of these types.

    None if there is none.
    """
    schema = node.schema()
    version = node.scope.opsets.get(plain_domain(node.proto.domain), 1)
    if schema is None:
        return None
    if schema.has_context_dependent_function:
        types = [_serialized_type(node, i) for i in range(node.input_count)]
        content = schema.get_context_dependent_function_with_opset_version(
            version, node.proto.SerializeToString(), types
        )
    elif schema.has_function:
        content = schema.get_function_with_opset_version(version)
    else:
        return None
    return FunctionProto.FromString(content) if content else None


def _serialized_type(node: OnnxNode, index: int) -> bytes:
    if not node.has(index):
        return bytes(onnx.TypeProto().SerializeToString())
    code = onnx.helper.np_dtype_to_tensor_dtype(node.dtype(index).numpy)
    return bytes(onnx.helper.make_tensor_type_proto(code, node.shape(index)).SerializeToString())


def _attributes(node: OnnxNode, function: FunctionProto) -> Iterable[AttributeProto]:
    """Yield the attributes of a call; of several with one name the last counts."""
    yield from function.attribute_proto
    schema = node.schema()
    defaults = (a.default_value for a in (schema.attributes.values() if schema else ()))
    yield from (value for value in defaults if value.type)
    yield from node.proto.attribute


def _translate_body(
    node: OnnxNode, scope: OnnxScope, body: tuple[Sequence[NodeProto], Sequence[str]], tag: str = ""
) -> Sequence[Result]:
    """Translate the nodes of a body; `body` has its nodes and the names of its outputs."""
    nodes, outputs = body
    importer = node.importer
    with importer.enter_subgraph():
        scope.prefix = f"{node.name}{tag}/"
        scope.source = node.source
        if not tag:
            names = zip(outputs, node.proto.output, strict=False)
            scope.public = {inner: importer.public_name(node.scope, outer) for inner, outer in names if outer}
        scope.read = names_read(nodes, outputs)
        _count_nodes(importer, len(nodes))
        labels = [f"{scope.prefix}{p.name or f'{p.op_type}_{i}'}" for i, p in enumerate(nodes)]
        inner_nodes = [OnnxNode(p, label, scope, importer) for p, label in zip(nodes, labels, strict=True)]
        translate_nodes(importer, inner_nodes, outputs)
    listed = outputs if tag else list(node.proto.output)
    return [scope.get(inner) if outer else "" for inner, outer in zip(outputs, listed, strict=False)]


def _count_nodes(importer: OnnxImporter, nodes: int) -> None:
    """Count the nodes of a body; RefusedError when all bodies together exceed the limit.

    Raises SkippedError from then on, so that one file does not report the same refusal for every call.
    """
    if importer.is_full:
        raise SkippedError
    if not importer.count_expanded(nodes):
        limit = importer.limits.nodes
        text = f"its functions, branches and unrolled loops have more than {limit} nodes"
        raise RefusedError(f"{text}; export the model with fewer iterations, or cut it with output_tensors")


def _bind_attributes(node: NodeProto, attributes: Mapping[str, AttributeProto]) -> NodeProto:
    """Return a node of a function body with the call's attributes in place of its references to them.

    A reference to an attribute that the call does not have is dropped.
    """
    bound = NodeProto()
    bound.CopyFrom(node)
    del bound.attribute[:]
    for attribute in node.attribute:
        value = attributes.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
        if value is None:
            continue
        copy = bound.attribute.add()
        copy.CopyFrom(value)
        copy.name = attribute.name
        if copy.type not in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
            continue
        for graph in (copy.g, *copy.graphs):
            inner = [_bind_attributes(inner_node, attributes) for inner_node in graph.node]
            del graph.node[:]
            graph.node.extend(inner)
    return bound

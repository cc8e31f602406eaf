"""Picks the handler of a node, and walks the wanted part of a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx
from onnx import NodeProto, TensorProto

from mace_core.attributes import fields_of
from mace_core.errors import MaceError
from mace_core.hints import lines
from mace_core.importer import RefusedError
from mace_core.ops.op import Op
from mace_frontend_onnx.boundary import Part, reads
from mace_frontend_onnx.importer import Held, OnnxImporter, OnnxScope
from mace_frontend_onnx.node import OnnxNode, plain
from mace_frontend_onnx.ops import handlers
from mace_frontend_onnx.source import element_type, plain_domain
from mace_frontend_onnx.subgraphs import call, function_body, walk


def convert(node: OnnxNode) -> str | Sequence[Held]:
    """Add what computes a node.

    In this order: a function of the model, a handler, a plugin's op, the function by which ONNX defines it.
    """
    domain = plain_domain(node.proto.domain)
    if local := node.importer.functions.get((domain, node.op)):
        return call(node, local)
    if domain == "" and node.op == "Constant" and node.attr("value") is not None:
        return [_supported(node.attr("value"))]
    if handler := handlers().get(handler_name(node.proto)):
        made = handler(node)
        results = [made] if isinstance(made, str) else made
        _hand_on_text(node, results)
        return results
    if custom := node.builder.ops.get(custom_name(node.proto)):
        return node.done(custom, node.inputs(), dict(_custom_attributes(node, custom)))
    if body := function_body(node):
        return call(node, body)
    raise RefusedError(_unsupported(node.proto))


def translate(importer: OnnxImporter, part: Part) -> list[str]:
    """Translate the wanted part of a model; return the tensors that hold its outputs. MaceError with every fault."""
    graph = importer.source.model.graph
    read = frozenset({*part.outputs, *(name for _, node in part.nodes for name in reads(node))})
    scope = OnnxScope(dict(importer.constants(graph)), opsets=importer.source.opsets, read=read)
    for given in part.inputs:
        scope.values[given.name] = importer.builder.input(given.name, given.dtype, given.shape)
    scope.values.update(
        (name, onnx.numpy_helper.from_array(array, name)) for name, array in part.fixed.items()
    )
    nodes = [OnnxNode(p, p.name or f"{p.op_type}_{i}", scope, importer) for i, p in part.nodes]
    walk(importer, nodes, part.outputs)
    importer.raise_faults()
    outputs = [_output(importer, scope, name) for name in part.outputs]
    _refuse_text(importer, part, outputs)
    return outputs


def refuse_unknown(importer: OnnxImporter, part: Part) -> None:
    """Raise one MaceError for all operators of the part that nothing here knows."""
    scope = OnnxScope(opsets=importer.source.opsets)
    certain = [(i, proto) for i, proto in part.nodes if i in part.certain]
    nodes = [OnnxNode(p, p.name or f"{p.op_type}_{i}", scope, importer) for i, p in certain]
    unknown = {id(node): _unsupported(node.proto) for node in nodes if not _is_known(node)}
    importer.refuse_unknown(nodes, lambda node: unknown.get(id(node)))


def _is_known(node: OnnxNode) -> bool:
    """Tell whether anything here can translate the node's operator."""
    schema = node.schema()
    function = (plain_domain(node.proto.domain), node.op) in node.importer.functions or (
        schema and (schema.has_function or schema.has_context_dependent_function)
    )
    mapped = handler_name(node.proto) in handlers()
    return bool(mapped or function or custom_name(node.proto) in node.builder.ops)


def _output(importer: OnnxImporter, scope: OnnxScope, name: str) -> str:
    """Return the tensor of an output.

    Raises MaceError where nothing computes it, or where it is constant text.
    """
    place = f"{importer.location}: output {name!r}"
    if scope.owner(name).values.get(name) is None:
        raise MaceError(
            place,
            "nothing computes it",
            "export the model again, or name other outputs in output_tensors",
        )
    try:
        return importer.tensor(scope, name)
    except RefusedError as error:
        raise MaceError.of([f"{place}: {error}"]) from None


def _refuse_text(importer: OnnxImporter, part: Part, tensors: Sequence[str]) -> None:
    """Refuse outputs that are text unless the deployment file asks for integers there.

    The note tells what these stand for.
    """
    found = {
        name: importer.texts[t] for name, t in zip(part.outputs, tensors, strict=True) if t in importer.texts
    }
    file, faults = importer.location, []
    types = [
        (name, "int64" if name in found else importer.builder.tensors[t].dtype.numpy.name)
        for name, t in zip(part.outputs, tensors, strict=True)
    ]
    for name, texts in found.items():
        listed = ", ".join(map(repr, texts[:20])) + (", ..." if len(texts) > 20 else "")
        if name in part.indices:
            importer.builder.notes.append(f"{file}: output {name!r} is the index of its text in: {listed}")
            continue
        others = lines("output", [n for n, _ in types if n not in found])
        whole = lines("output", [n for n, _ in types], data_types=[t for _, t in types])
        way = f"write in the deployment file the others:{others}\nor take the index of its text in ({listed}) instead:{whole}"
        faults.append(f"{file}: output {name!r} is text, which a library does not give; {way}")
    if faults:
        raise MaceError.of(faults)


def _hand_on_text(node: OnnxNode, results: Sequence[Held]) -> None:
    """What moves the indices of texts gives indices of the same texts."""
    if plain_domain(node.proto.domain) or not node.has(0):
        return
    known, texts = node.scope.get(node.proto.input[0]), node.importer.texts
    if isinstance(known, str) and known in texts:
        texts.update((name, texts[known]) for name in results if isinstance(name, str) and name)


def _custom_attributes(node: OnnxNode, op: Op) -> Iterable[tuple[str, object]]:
    """Attributes by name; ONNX writes yes and no as numbers, and arrays as tensors."""
    fields = fields_of(op.attrs)
    for attribute in node.proto.attribute:
        value = plain(attribute)
        if isinstance(value, TensorProto):
            value = node.importer.source.array(value)
        field = fields.get(attribute.name)
        yield attribute.name, bool(value) if field and field.type is bool else value


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

"""Translates the nodes of a model, and reports operators that nothing supports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx
from onnx import NodeProto, TensorProto

from mace_core.attributes import fields_of
from mace_core.errors import MaceError
from mace_core.hints import lines
from mace_core.importer import RefusedError
from mace_core.ops.op import Op
from mace_frontend_onnx.importer import OnnxImporter, OnnxScope, Result
from mace_frontend_onnx.model_file import element_type, plain_domain
from mace_frontend_onnx.model_part import ModelPart, NumberedNode, names_read
from mace_frontend_onnx.node import OnnxNode, attribute_value
from mace_frontend_onnx.ops import handlers
from mace_frontend_onnx.subgraphs import find_function_body, inline_function, translate_nodes

MAX_LISTED_STRINGS = 20
"""How many of the strings that an output may stand for a message lists."""


def convert(node: OnnxNode) -> str | Sequence[Result]:
    """Add what computes a node; return what its outputs stand for."""
    domain = plain_domain(node.proto.domain)
    # A model's own function comes first: onnx.proto (ModelProto.functions) leaves the order to the runtime,
    # and a model that brings a definition means that one. A handler comes before ONNX's function because the
    # IR often has one op where the function has ten.
    if function := node.importer.functions.get((domain, node.op)):
        return inline_function(node, function)
    if domain == "" and node.op == "Constant" and node.attr("value") is not None:
        tensor = node.attr("value")
        element_type(tensor.data_type)  # refuses the node here, and not one that reads it
        return [tensor]
    if handler := handlers().get(handler_name(node.proto)):
        results = handler(node)
        listed = [results] if isinstance(results, str) else results
        _pass_on_strings(node, listed)
        return listed
    if custom := node.builder.ops.get(custom_name(node.proto)):
        return node.done(custom, node.inputs(), dict(_custom_attributes(node, custom)))
    if body := find_function_body(node):
        return inline_function(node, body)
    raise RefusedError(_unsupported_text(node.proto))


def translate(importer: OnnxImporter, part: ModelPart) -> list[str]:
    """Translate a part of a model; return the tensors of its outputs. Raises MaceError with every fault."""
    graph = importer.file.model.graph
    read = names_read([node for _, node in part.nodes], part.outputs)
    scope = OnnxScope(dict(importer.constants(graph)), opsets=importer.file.opsets, read=read)
    for port in part.inputs:
        scope.values[port.name] = importer.builder.input(port.name, port.dtype, port.shape)
    for name, array in part.fixed.items():
        scope.values[name] = onnx.numpy_helper.from_array(array, name)
    translate_nodes(importer, _nodes(importer, scope, part.nodes), part.outputs)
    importer.raise_faults()
    outputs = [_output_tensor(importer, scope, name) for name in part.outputs]
    _refuse_string_outputs(importer, part, outputs)
    return outputs


def _nodes(importer: OnnxImporter, scope: OnnxScope, nodes: Iterable[NumberedNode]) -> list[OnnxNode]:
    return [OnnxNode(proto, proto.name or f"{proto.op_type}_{i}", scope, importer) for i, proto in nodes]


def refuse_unknown(importer: OnnxImporter, part: ModelPart) -> None:
    """Raise one MaceError for all operators of the part that nothing here supports."""
    scope = OnnxScope(opsets=importer.file.opsets)
    nodes = _nodes(importer, scope, [(i, proto) for i, proto in part.nodes if i in part.certain])
    reasons = {id(node): _explain_unknown(node) for node in nodes}
    importer.refuse_unknown(nodes, lambda node: reasons[id(node)])


def _explain_unknown(node: OnnxNode) -> str | None:
    """Return why nothing here can translate the node's operator; None if something can."""
    schema = node.schema()
    is_function = (plain_domain(node.proto.domain), node.op) in node.importer.functions
    if schema and (schema.has_function or schema.has_context_dependent_function):
        is_function = True
    is_handled = handler_name(node.proto) in handlers()
    if is_handled or is_function or custom_name(node.proto) in node.builder.ops:
        return None
    return _unsupported_text(node.proto)


def _output_tensor(importer: OnnxImporter, scope: OnnxScope, name: str) -> str:
    """Return the tensor of an output; MaceError where nothing computes it, or if it is constant strings."""
    place = f"{importer.location}: output {name!r}"
    if scope.owner(name).values.get(name) is None:
        remedy = "export the model again, or name other outputs in output_tensors"
        raise MaceError(place, "nothing computes it", remedy)
    try:
        return importer.tensor(scope, name)
    except RefusedError as error:
        raise MaceError.of([f"{place}: {error}"]) from None


def _refuse_string_outputs(importer: OnnxImporter, part: ModelPart, tensors: Sequence[str]) -> None:
    """Refuse outputs that are strings unless the deployment file states integers there.

    Where it does, a note says which strings the integers are indices of.
    """
    outputs = dict(zip(part.outputs, tensors, strict=True))
    strings = {name: importer.strings[t] for name, t in outputs.items() if t in importer.strings}
    faults = []
    for name, labels in strings.items():
        listed = ", ".join(map(repr, labels[:MAX_LISTED_STRINGS]))
        if len(labels) > MAX_LISTED_STRINGS:
            listed += ", ..."
        if name in part.index_outputs:
            note = f"output {name!r} is the index of its text in: {listed}"
            importer.builder.notes.append(f"{importer.location}: {note}")
            continue
        remedy = (
            f"write in the deployment file the others:{_other_lines(outputs, strings)}"
            f"\nor take the index of its text in ({listed}) instead:{_index_lines(importer, outputs)}"
        )
        problem = f"output {name!r} is text, which a library does not give"
        faults.append(f"{importer.location}: {problem}; {remedy}")
    if faults:
        raise MaceError.of(faults)


def _other_lines(outputs: Mapping[str, str], strings: Mapping[str, object]) -> str:
    """Return the lines of a deployment file that name only the outputs that are no strings."""
    return lines("output", [name for name in outputs if name not in strings])


def _index_lines(importer: OnnxImporter, outputs: Mapping[str, str]) -> str:
    """Return the lines of a deployment file that state integers for the outputs that are strings."""
    types = [
        "int64" if tensor in importer.strings else importer.builder.tensors[tensor].dtype.numpy.name
        for tensor in outputs.values()
    ]
    return lines("output", outputs, data_types=types)


def _pass_on_strings(node: OnnxNode, results: Sequence[Result]) -> None:
    """Note that results of a node that moves indices of strings are indices of the same strings."""
    if plain_domain(node.proto.domain) or not node.has(0):
        return
    value, strings = node.scope.get(node.proto.input[0]), node.importer.strings
    if isinstance(value, str) and value in strings:
        strings.update((name, strings[value]) for name in results if isinstance(name, str) and name)


def _custom_attributes(node: OnnxNode, op: Op) -> Iterable[tuple[str, object]]:
    """Yield the attributes of a plugin's op by name; ONNX has booleans as numbers and arrays as tensors."""
    fields = fields_of(op.attrs)
    for attribute in node.proto.attribute:
        value = attribute_value(attribute)
        if isinstance(value, TensorProto):
            value = node.importer.file.array(value)
        field = fields.get(attribute.name)
        yield attribute.name, bool(value) if field and field.type is bool else value


def handler_name(node: NodeProto) -> str:
    """Return the name under which an operator's handler is listed: ONNX's own operators without a domain."""
    return custom_name(node) if plain_domain(node.domain) else str(node.op_type)


def custom_name(node: NodeProto) -> str:
    """Return the name of a plugin's op that computes this node."""
    return f"{plain_domain(node.domain) or 'ai.onnx'}::{node.op_type}"


def _unsupported_text(node: NodeProto) -> str:
    name = custom_name(node)
    remedy = f"cut the graph before it with output_tensors, or add {name!r} by a plugin"
    return f"operator {name} is not supported; {remedy}"

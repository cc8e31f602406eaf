"""Picks the handler of an operator, and translates the part of a model that is read."""

from __future__ import annotations

from collections.abc import Sequence

from mace_core.importer import ImportedNode, RefusedError, SkippedError
from mace_core.ir import DType
from mace_frontend_tflite.boundary import CutOutput, ModelCut
from mace_frontend_tflite.importer import GraphScope, TfliteImporter
from mace_frontend_tflite.node import TfliteNode
from mace_frontend_tflite.ops import handlers
from mace_frontend_tflite.ops.spectrum import handle_complex, is_complex, refuse_complex
from mace_frontend_tflite.schema import DAMAGE
from mace_frontend_tflite.subgraphs import translate_operator
from mace_frontend_tflite.variables import READ, variable_name


def convert(node: TfliteNode) -> str | Sequence[str]:
    """Add what computes an operator: a plugin's op comes before the handler."""
    if custom := node.builder.ops.get(custom_name(node.op)):
        return node.done(custom, node.inputs())
    if is_complex(node):
        return handle_complex(node)
    if handler := handlers().get(node.op):
        return handler(node)
    raise RefusedError("this operator is not supported")


def custom_name(code: str) -> str:
    """Return the name that a plugin's op for this operator has."""
    return f"tflite::{code.removeprefix('custom ')}"


def explain_unknown(node: ImportedNode) -> str | None:
    """Return why an operator is not supported; None if it is."""
    if node.op in handlers() or custom_name(node.op) in node.builder.ops:
        return None
    remedy = "cut the graph before it with output_tensors, or add it by a plugin"
    return f"operator {node.op} is not supported; {remedy}"


def translate(importer: TfliteImporter, part: ModelCut) -> list[str]:
    """Translate the part of a model that is read; return the tensors that hold its outputs.

    MaceError with every fault.
    """
    scope = GraphScope(graph=part.graph)
    nodes = [TfliteNode(operator, scope, importer) for operator in part.operators]
    importer.refuse_unknown(nodes, explain_unknown)
    for info, shape in part.inputs:
        assert info.dtype is not None
        # The IR has no quantized type of 64 bits: such an input is of plain integers.
        quant = info.quant if info.dtype is not DType.I64 else None
        tensor = importer.builder.input(info.name, info.dtype, shape, quant)
        scope.values[info.index] = tensor
        if info.variable:
            importer.begin_state(scope, info, shape)
        importer.cut_variable(part.graph, info.index, tensor)
    # An inner tensor may have the public name of an output; it gives way.
    importer.builder.reserved = frozenset(output.name for output in part.outputs)
    for node in nodes:
        translate_operator(node)
    outputs = _find_outputs(importer, part, scope)
    importer.end_states()
    importer.raise_faults()
    return outputs


def _find_outputs(importer: TfliteImporter, part: ModelCut, scope: GraphScope) -> list[str]:
    """Return the tensors of the outputs, as far as nothing is wrong with them."""
    tensors = []
    for output in part.outputs:
        location = f"{importer.location}: output {output.name!r}"
        try:
            tensors.append(_find_output(importer, scope, output))
        except SkippedError:
            if not importer.faults:  # its node has fewer results than the file says
                importer.faults.append(f"{location}: no node computes it; convert the model again")
        except (RefusedError, *DAMAGE) as error:
            importer.faults.append(f"{location}: {error}")
    return tensors


def _find_output(importer: TfliteImporter, scope: GraphScope, output: CutOutput) -> str:
    refuse_complex(scope.graph.tensors[output.index])
    if output.after:
        return _find_state(importer, scope, output.index)
    return importer.tensor(scope, output.index)


def _find_state(importer: TfliteImporter, scope: GraphScope, index: int) -> str:
    """Return the tensor that holds a state after the run."""
    graph = scope.graph
    producer = graph.producers.get(index)
    if producer is not None and producer.code == READ and producer.inputs:
        name = variable_name(graph, producer.inputs[0])
        if name in importer.variables and importer.lasts(name):
            return importer.variables[name]
    if (graph.index, index) in importer.states:
        return importer.states[graph.index, index]
    if importer.faults:
        raise SkippedError
    raise RefusedError("no node that is read here changes it; name another tensor")

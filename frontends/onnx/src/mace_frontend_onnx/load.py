"""An ONNX file as a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mace_core.api import Files
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import Array, Graph
from mace_core.ops import core_ops
from mace_core.ops.op import Op
from mace_frontend_onnx.boundary import wanted
from mace_frontend_onnx.importer import OnnxImporter
from mace_frontend_onnx.source import check, read
from mace_frontend_onnx.translate import convert, refuse_unknown, translate


def load(files: Files, model: Model, ops: Mapping[str, Op]) -> Graph:
    """Read a model between the inputs and outputs that the deployment file names.

    Weights are read one by one when a node takes them, so that the model is in memory about once. MaceError
    with every
    fault of the file: what it lacks, what is damaged, or each node that the IR cannot represent.
    """
    if len(files) != 1:
        raise MaceError(
            model.name, f"an ONNX model is one file, {len(files)} are named", "name the .onnx file alone"
        )
    return translated(files, model, ops).graph


def default_inputs(files: Files, model: Model) -> dict[str, Array]:
    """Return the initializers of those inputs that the deployment file names, by name."""
    source = read(files[0])
    names = {port.name for port in model.inputs}
    return {held.name: source.array(held) for held in source.model.graph.initializer if held.name in names}


@dataclass(frozen=True)
class Translated:
    """A graph, and the texts that the integers of those outputs stand for that are text in the file."""

    graph: Graph
    texts: Mapping[str, tuple[str, ...]]


def translated(files: Files, model: Model, ops: Mapping[str, Op]) -> Translated:
    """Read a model as `load` does."""
    source = read(files[0])
    part = wanted(source, model)
    importer = OnnxImporter(source, Builder(model.name, {**core_ops(), **ops}), convert)
    importer.builder.notes.extend(part.notes)
    refuse_unknown(importer, part)
    check(
        source,
        (i.name for i in part.inputs),
        part.outputs,
        (node for i, node in part.nodes if i in part.certain),
    )
    outputs = translate(importer, part)
    texts = {
        name: importer.texts[t] for name, t in zip(part.outputs, outputs, strict=True) if t in importer.texts
    }
    return Translated(importer.builder.finish(outputs, part.outputs), texts)

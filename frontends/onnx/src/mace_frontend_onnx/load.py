"""Reads an ONNX file as a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

from mace_core.api import Files
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import Array, Graph
from mace_core.ops import core_ops
from mace_core.ops.op import Op
from mace_frontend_onnx.importer import OnnxImporter
from mace_frontend_onnx.model_file import check, read
from mace_frontend_onnx.model_part import select_part
from mace_frontend_onnx.translate import convert, refuse_unknown, translate


@dataclass(frozen=True)
class Translation:
    """A graph; and for outputs that are strings in the file, the strings that their integers stand for."""

    graph: Graph
    strings: Mapping[str, tuple[str, ...]]


def load(files: Files, model: Model, ops: Mapping[str, Op]) -> Graph:
    """Read a model between the inputs and outputs that the deployment file names.

    Weights are read one by one when a node takes them, so that the model is in memory about once. Raises
    MaceError with every fault of the file: what it lacks, what is damaged, or each node that the IR cannot
    represent.
    """
    if len(files) != 1:
        problem = f"an ONNX model is one file, {len(files)} are named"
        raise MaceError(model.name, problem, "name the .onnx file alone")
    return read_translation(files, model, ops).graph


def default_inputs(files: Files, model: Model) -> dict[str, Array]:
    """Return the initializers of those inputs that the deployment file names, by name."""
    file = read(files[0])
    names = {port.name for port in model.inputs}
    return {
        tensor.name: file.array(tensor) for tensor in file.model.graph.initializer if tensor.name in names
    }


def read_translation(files: Files, model: Model, ops: Mapping[str, Op]) -> Translation:
    """Read a model as `load` does."""
    file = read(files[0])
    part = select_part(file, model)
    builder = Builder(model.name, {**core_ops(), **ops})
    # Names of nodes may be those of tensors; then the tensor inside a node, in another order of axes, gives
    # way.
    builder.reserved = frozenset(chain.from_iterable(node.output for _, node in part.nodes))
    importer = OnnxImporter(file, builder, convert)
    importer.builder.notes.extend(part.notes)
    # Before ONNX's checker, which stops at the first unknown operator: the user wants to see all of them.
    refuse_unknown(importer, part)
    nodes = [node for position, node in part.nodes if position in part.certain]
    check(file, [port.name for port in part.inputs], part.outputs, nodes)
    outputs = translate(importer, part)
    tensors = dict(zip(part.outputs, outputs, strict=True))
    strings = {name: importer.strings[t] for name, t in tensors.items() if t in importer.strings}
    importer.refuse_padded_rows(outputs)
    return Translation(importer.builder.finish(outputs, part.outputs), strings)

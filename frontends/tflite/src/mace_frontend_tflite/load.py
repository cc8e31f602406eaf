"""Reads a TensorFlow Lite file as a graph."""

from __future__ import annotations

from collections.abc import Mapping

from mace_core.api import Files
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import Graph
from mace_core.numerics import read_numerics
from mace_core.ops import core_ops
from mace_core.ops.op import Op
from mace_frontend_tflite.boundary import cut_model
from mace_frontend_tflite.importer import TfliteImporter
from mace_frontend_tflite.source import read
from mace_frontend_tflite.translate import convert, translate


def load(files: Files, model: Model, ops: Mapping[str, Op]) -> Graph:
    """Read a model between the inputs and outputs that the deployment file names.

    MaceError with every fault of the file: damage, or each node that the IR cannot represent.
    """
    if len(files) != 1:
        raise MaceError(
            model.name,
            f"a TensorFlow Lite model is one file, {len(files)} are named",
            "name the .tflite file alone",
        )
    source = read(files[0])
    part = cut_model(source, model)
    importer = TfliteImporter(source, Builder(model.name, {**core_ops(), **ops}), convert)
    if note := source.note_signatures():
        importer.builder.notes.append(note)
    importer.numerics = read_numerics(model.keys)
    outputs = translate(importer, part)
    return importer.builder.finish(outputs, [output.name for output in part.outputs])

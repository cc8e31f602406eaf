"""Builds the graph of a TensorFlow model."""

from __future__ import annotations

from collections.abc import Mapping

from mace_core.api import Files
from mace_core.deployment import Model
from mace_core.graph_builder import Builder
from mace_core.ir import Graph
from mace_core.ops import core_ops
from mace_core.ops.op import Op
from mace_frontend_tensorflow.boundary import cut_model
from mace_frontend_tensorflow.importer import TensorFlowImporter
from mace_frontend_tensorflow.source import read
from mace_frontend_tensorflow.states import changed_variables, refuse_hidden
from mace_frontend_tensorflow.translate import convert, translate


def load(files: Files, model: Model, ops: Mapping[str, Op]) -> Graph:
    """Read a model between the inputs and outputs that the deployment file names.

    MaceError with every fault of the file: what it lacks, what is damaged, or each node that the IR cannot
    represent.
    """
    source = read(files)
    # States come first: they add an output NAME.next for each changed variable, at which the model may be
    # cut.
    variables = changed_variables(source, model)
    refuse_hidden(source, model, variables)
    part = cut_model(source, model)
    builder = Builder(model.name, {**core_ops(), **ops})
    # The name of an output belongs to the output, even if the model has a node of the same name.
    names = [name for name, _ in part.outputs]
    builder.reserved = frozenset(names)
    importer = TensorFlowImporter(source, builder, convert)
    starts = {variable.name: variable.start for variable in variables if variable.start is not None}
    outputs = translate(importer, part, starts)
    importer.refuse_padded_rows(outputs)
    return builder.finish(outputs, names)

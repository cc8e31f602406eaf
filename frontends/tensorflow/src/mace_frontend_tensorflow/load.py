"""A TensorFlow model as a graph."""

from __future__ import annotations

from collections.abc import Mapping

from mace_core.api import Files
from mace_core.deployment import Model
from mace_core.graph_builder import Builder
from mace_core.ir import Graph
from mace_core.ops import core_ops
from mace_core.ops.op import Op
from mace_frontend_tensorflow.boundary import wanted
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
    variables = changed_variables(source, model)
    refuse_hidden(source, model, variables)
    part = wanted(source, model)
    builder = Builder(model.name, {**core_ops(), **ops})
    # A public name is that of the output, whatever a node is called.
    builder.reserved = frozenset(name for name, _ in part.outputs)
    importer = TensorFlowImporter(source, builder, convert)
    outputs = translate(
        importer,
        part,
        {variable.name: variable.start for variable in variables if variable.start is not None},
    )
    return builder.finish(outputs, [name for name, _ in part.outputs])

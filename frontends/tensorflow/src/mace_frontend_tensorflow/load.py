"""A TensorFlow model as a graph."""

from __future__ import annotations

from collections.abc import Mapping

from mace_core.api import Files
from mace_core.build import Builder
from mace_core.deployment import Model
from mace_core.ir import Array, Graph
from mace_core.ops import core_ops
from mace_core.ops.op import Op
from mace_core.states import Ends, refuse_lost
from mace_frontend_tensorflow.boundary import wanted
from mace_frontend_tensorflow.source import read
from mace_frontend_tensorflow.states import changed_variables
from mace_frontend_tensorflow.translate import Translation


def load(files: Files, model: Model, ops: Mapping[str, Op]) -> Graph:
    """Read a model between the inputs and outputs that the deployment file names.

    MaceError with every fault of the file: what it lacks, what is damaged, or each node that the IR cannot represent.
    """
    source = read(files)
    states = changed_variables(source, model)
    part = wanted(source, model)
    builder = Builder(model.name, {**core_ops(), **ops})
    builder.reserved = frozenset(name for name, _ in part.outputs)  # a public name is that of the output, whatever a node is called
    translation = Translation(source, builder)
    outputs = translation.run(part)
    cut = {port.ref[0] for port in part.inputs}
    ends = Ends([port.name for port in part.inputs], [name for name, _ in part.outputs])
    refuse_lost(source.name, [state for state in states if state.name not in cut], model, ends)
    return translation.builder.finish(outputs, [name for name, _ in part.outputs])


def starts(files: Files, model: Model) -> Mapping[str, Array]:
    """Return what the variables that the deployment file makes inputs are before the first run, by name."""
    states = {state.name: state.start for state in changed_variables(read(files), model)}
    return {port.name: states[port.name] for port in model.inputs if port.name in states}

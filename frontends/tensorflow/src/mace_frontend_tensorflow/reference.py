"""Runs the model in TensorFlow itself, for validation."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from mace_core.api import Files, Reference
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.graph_builder import NEXT
from mace_core.ir import Array
from mace_frontend_tensorflow.boundary import PublicNames, public_names, reference_of
from mace_frontend_tensorflow.messages import GraphDef
from mace_frontend_tensorflow.saved_model import SAVED_MODEL_FILE
from mace_frontend_tensorflow.source import VERSION_FIELD, TensorFlowSource, read
from mace_frontend_tensorflow.states import changed_variables
from mace_frontend_tensorflow.variables import VARIABLE_OPS

QUIET: Mapping[str, str] = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
"""Environment variables that TensorFlow reads when it is loaded.

They turn off log lines about the machine, and kernels of oneDNN, whose sums have another order on each
processor.
"""

INLINED = "inlined"
"""The name under which a graph is imported a second time, with its functions inlined."""


def reference(files: Files, model: Model) -> Reference | None:
    """Run the model on one CPU thread, its variables with their stored values in each run.

    None if TensorFlow is not installed.

    The callable takes arrays by input name and returns arrays by output name: of those that the deployment
    file names the ones that TensorFlow knows, tensors inside of functions among them.
    """
    if find_spec("tensorflow") is None:
        return None
    run = _open_session(files, model)
    if not changed_variables(read(files), model):
        return run

    # A session keeps its variables from run to run: each run gets a session of its own.
    def run_once(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        return _open_session(files, model)(arrays)

    return Reference(run_once, run.runtime)


def _open_session(files: Files, model: Model) -> Reference:
    """Return the model in a session of its own, in which variables begin with their stored values."""
    tf = tensorflow().compat.v1
    source = read(files)
    names = public_names(source, model)
    file = files[0] / SAVED_MODEL_FILE if files[0].is_dir() else files[0]
    try:
        if _is_saved_model(file):
            session = _load_saved_model(tf, file.parent, source.tags)
        else:
            session = _import_graph(tf, tf.GraphDef.FromString(file.read_bytes()))
        tensors = [_tensor(session.graph, n) for n in (*names.inputs.values(), *names.outputs.values())]
        # Loops of TensorFlow 1 were collapsed to operations that TensorFlow does not know.
        if not source.loops and any(tensor is None for tensor in tensors):
            names = _import_inlined(tf, session, source, names)
        run = _make_callable(session, names, file.name)
    except Exception as error:  # TensorFlow's errors have no narrower base class
        raise MaceError(
            file.name, f"TensorFlow refuses it: {error}", "validate against stored data instead"
        ) from error
    return Reference(run, f"TensorFlow {tf.VERSION}")


def recurrent(files: Files, model: Model) -> Reference | None:
    """Run the model with the variables that TensorFlow keeps from run to run, from their stored values on.

    Variables that the deployment file names as inputs or outputs are left out: TensorFlow has them inside.
    """
    if find_spec("tensorflow") is None:
        return None
    states = {variable.name for variable in changed_variables(read(files), model)}
    inputs = tuple(port for port in model.inputs if reference_of(port.name)[0] not in states)
    outputs = tuple(port for port in model.outputs if port.name.removesuffix(NEXT) not in states)
    names = {port.name for port in inputs}
    run = _open_session(files, replace(model, inputs=inputs, outputs=outputs))

    def run_next(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        return run({name: array for name, array in arrays.items() if name in names or not model.inputs})

    return Reference(run_next, run.runtime)


def tensorflow() -> Any:
    """Import TensorFlow with its log lines and deprecation warnings turned off."""
    for key, value in QUIET.items():
        os.environ.setdefault(key, value)
    module = import_module("tensorflow")
    module.get_logger().setLevel("ERROR")
    return module


def _is_saved_model(file: Path) -> bool:
    if file.name == SAVED_MODEL_FILE:
        return True
    with file.open("rb") as stream:
        return stream.read(1) == VERSION_FIELD


def _session(tf: Any, graph: Any) -> Any:
    return tf.Session(
        graph=graph, config=tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    )


def _import_graph(tf: Any, message: Any) -> Any:
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(message, name="")
    return _session(tf, graph)


def _load_saved_model(tf: Any, folder: Path, tags: Sequence[str]) -> Any:
    session = _session(tf, tf.Graph())
    with session.graph.as_default():
        tf.saved_model.load(session, list(tags), str(folder))
    return session


def _import_inlined(tf: Any, session: Any, source: TensorFlowSource, names: PublicNames) -> PublicNames:
    """Import the graph a second time with its functions inlined; return the names of the tensors there.

    TensorFlow returns no tensor from inside of a function. Both graphs share the variables by their names.
    """
    graph, flat = GraphDef(), source.flat
    tensors = {**names.off, **names.inputs, **names.outputs}
    refs = {name: flat.resolve(reference_of(tensor)) for name, tensor in tensors.items()}
    graph.library.function.extend(source.functions.functions.values())
    graph.versions.producer = source.version
    for operation in flat.ancestors(refs.values(), controls=True).values():
        inputs = [f"{name}:{index}" for name, index in flat.inputs(operation)]
        controls = [f"^{name}" for name in operation.controls if name in flat.operations]
        node = graph.node.add(name=operation.name, op=operation.op, input=[*inputs, *controls])
        for key, value in operation.attrs.items():
            if not key.startswith(
                "_"
            ):  # Placement and inlining leave attributes that name things of the first graph.
                node.attr[key].CopyFrom(value)
        if operation.op in VARIABLE_OPS and not node.attr["shared_name"].s:
            node.attr["shared_name"].s = operation.name.encode()
    with session.graph.as_default():
        tf.import_graph_def(tf.GraphDef.FromString(graph.SerializeToString()), name=INLINED)
    inlined = {name: f"{INLINED}/{node}:{index}" for name, (node, index) in refs.items()}
    sides = (names.inputs, names.outputs, names.off)
    return PublicNames(*({name: inlined[name] for name in side} for side in sides))


def _tensor(graph: Any, name: str) -> Any:
    """Return the tensor of a name, with or without its number; None if the graph has none."""
    try:
        return graph.get_tensor_by_name(name if ":" in name else f"{name}:0")
    except (KeyError, ValueError):
        return None


def _make_callable(
    session: Any, names: PublicNames, model: str
) -> Callable[[Mapping[str, Array]], Mapping[str, Array]]:
    inputs = {name: _tensor(session.graph, text) for name, text in names.inputs.items()}
    unknown = sorted(name for name, tensor in inputs.items() if tensor is None)
    if unknown:
        raise ValueError(f"it cannot begin at {', '.join(unknown)}")
    tensors = {name: _tensor(session.graph, text) for name, text in names.outputs.items()}
    # Variables and lists are no arrays that a session could return.
    outputs = {
        name: tensor
        for name, tensor in tensors.items()
        if tensor is not None and tensor.dtype.name not in ("resource", "variant")
    }
    switches = [_tensor(session.graph, text) for text in names.off.values()]
    off = {tensor: False for tensor in switches if tensor is not None}

    def run(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        values_of_inputs = {**off, **{inputs[name]: array for name, array in arrays.items()}}
        try:
            values = session.run(list(outputs.values()), values_of_inputs)
        except Exception as error:  # as above
            raise MaceError(
                model, f"TensorFlow cannot run it: {error}", "validate against stored data instead"
            ) from error
        return {name: np.asarray(value) for name, value in zip(outputs, values, strict=True)}

    return run

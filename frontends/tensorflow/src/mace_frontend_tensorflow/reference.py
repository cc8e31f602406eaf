"""The model in TensorFlow itself, for validation."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from mace_frontend_tensorflow.boundary import Public, public, reference_of
from mace_frontend_tensorflow.flat import Operation
from mace_frontend_tensorflow.folder import SAVED
from mace_frontend_tensorflow.messages import GraphDef
from mace_frontend_tensorflow.source import VERSION_FIELD, Source, read
from mace_frontend_tensorflow.states import changed_variables
from mace_frontend_tensorflow.variables import VARIABLES

QUIET: Mapping[str, str] = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
"""Environment variables that TensorFlow reads when it is loaded: no words about the machine, and its own plain kernels."""


BESIDE = "inlined"
"""The name under which a graph stands beside itself."""


def reference(files: Files, model: Model) -> Reference | None:
    """Run the model on one CPU thread, its variables with their stored values in each run.

    None if TensorFlow is not installed.

    The callable takes arrays by input name and gives arrays by output name: of those that the deployment file
    names the ones that TensorFlow knows, tensors inside of functions among them.
    """
    if find_spec("tensorflow") is None:
        return None
    run = _begun(files, model)
    if not changed_variables(read(files), model):
        return run

    def run_anew(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        return _begun(files, model)(arrays)

    return Reference(run_anew, run.runtime)


def _begun(files: Files, model: Model) -> Reference:
    """Return the model in a session of its own, in which variables have their stored values at first."""
    tf = tensorflow().compat.v1
    source = read(files)
    names = public(source, model)
    file = files[0] / SAVED if files[0].is_dir() else files[0]
    try:
        session = _saved(tf, file.parent, source.tags) if _is_saved(file) else _frozen(tf, file)
        if not source.loops and any(
            _tensor(session.graph, n) is None for n in (*names.inputs.values(), *names.outputs.values())
        ):
            names = _inlined(tf, session, source, names)
        run = _callable(session, names, file.name)
    except Exception as error:  # TensorFlow's errors derive from nothing narrower
        raise MaceError(
            file.name, f"TensorFlow refuses it: {error}", "validate against stored data instead"
        ) from error
    return Reference(run, f"TensorFlow {tf.VERSION}")


def recurrent(files: Files, model: Model) -> Reference | None:
    """Run the model with the variables that TensorFlow keeps, from their stored values on, whether or not they are inputs."""
    if find_spec("tensorflow") is None:
        return None
    states = {variable.name for variable in changed_variables(read(files), model)}
    inputs = tuple(port for port in model.inputs if reference_of(port.name)[0] not in states)
    outputs = tuple(port for port in model.outputs if port.name.removesuffix(NEXT) not in states)
    names = {port.name for port in inputs}
    run = _begun(files, replace(model, inputs=inputs, outputs=outputs))

    def run_on(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        return run({name: array for name, array in arrays.items() if name in names or not model.inputs})

    return Reference(run_on, run.runtime)


def tensorflow() -> Any:
    """The module, told to be quiet, of what it would rather have called too."""
    for key, value in QUIET.items():
        os.environ.setdefault(key, value)
    module = import_module("tensorflow")
    module.get_logger().setLevel("ERROR")
    return module


def _is_saved(file: Path) -> bool:
    if file.name == SAVED:
        return True
    with file.open("rb") as stream:
        return stream.read(1) == VERSION_FIELD


def _session(tf: Any, graph: Any) -> Any:
    return tf.Session(
        graph=graph, config=tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    )


def _frozen(tf: Any, file: Path) -> Any:
    return _imported(tf, tf.GraphDef.FromString(file.read_bytes()))


def _imported(tf: Any, described: Any) -> Any:
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(described, name="")
    return _session(tf, graph)


def _saved(tf: Any, folder: Path, tags: Sequence[str]) -> Any:
    session = _session(tf, tf.Graph())
    with session.graph.as_default():
        tf.saved_model.load(session, list(tags), str(folder))
    return session


def _inlined(tf: Any, session: Any, source: Source, names: Public) -> Public:
    """Put the graph beside itself with functions written out; names of what is wanted there.

    Variables are shared by their names.
    """
    graph, flat = GraphDef(), source.flat
    wanted = {
        name: flat.resolved(reference_of(text))
        for name, text in {**names.off, **names.inputs, **names.outputs}.items()
    }
    graph.library.function.extend(source.functions.functions.values())
    graph.versions.producer = source.version
    for operation in _needed(source, [name for name, _ in wanted.values()]):
        inputs = [f"{name}:{index}" for name, index in flat.inputs(operation)]
        controls = [f"^{name}" for name in operation.controls if name in flat.operations]
        node = graph.node.add(name=operation.name, op=operation.op, input=[*inputs, *controls])
        for key, value in operation.attrs.items():
            if not key.startswith("_"):  # what placement and inlining left
                node.attr[key].CopyFrom(value)
        if operation.op in VARIABLES and not node.attr["shared_name"].s:
            node.attr["shared_name"].s = operation.name.encode()
    with session.graph.as_default():
        tf.import_graph_def(tf.GraphDef.FromString(graph.SerializeToString()), name=BESIDE)
    inner = {name: f"{BESIDE}/{node}:{index}" for name, (node, index) in wanted.items()}
    return Public(*({n: inner[n] for n in side} for side in (names.inputs, names.outputs, names.off)))


def _needed(source: Source, names: list[str]) -> Iterator[Operation]:
    """The operations that compute these, and those that these wait for."""
    found: set[str] = set()
    while names:
        operation = source.flat.operations.get(names.pop())
        if operation is not None and operation.name not in found:
            found.add(operation.name)
            names.extend((*(name for name, _ in source.flat.inputs(operation)), *operation.controls))
            yield operation


def _tensor(graph: Any, name: str) -> Any:
    """The tensor of a name, with or without its number; None if the graph holds none such."""
    try:
        return graph.get_tensor_by_name(name if ":" in name else f"{name}:0")
    except (KeyError, ValueError):
        return None


def _callable(
    session: Any, names: Public, model: str
) -> Callable[[Mapping[str, Array]], Mapping[str, Array]]:
    given = {name: _tensor(session.graph, text) for name, text in names.inputs.items()}
    unknown = sorted(name for name, tensor in given.items() if tensor is None)
    if unknown:
        raise ValueError(f"it cannot begin at {', '.join(unknown)}")
    found = {name: _tensor(session.graph, text) for name, text in names.outputs.items()}
    wanted = {
        name: tensor
        for name, tensor in found.items()
        if tensor is not None and tensor.dtype.name not in ("resource", "variant")
    }

    off = {
        tensor: False for text in names.off.values() if (tensor := _tensor(session.graph, text)) is not None
    }

    def run(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        fed = {**off, **{given[name]: array for name, array in arrays.items()}}
        try:
            values = session.run(list(wanted.values()), fed)
        except Exception as error:  # as above
            raise MaceError(
                model, f"TensorFlow cannot run it: {error}", "validate against stored data instead"
            ) from error
        return {name: np.asarray(value) for name, value in zip(wanted, values, strict=True)}

    return run

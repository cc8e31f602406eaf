"""The model in Keras itself, for validation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np

from mace_core.api import Files, Reference
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_keras.source import read


def reference(files: Files, model: Model, *, keeps_states: bool = False) -> Reference | None:
    """Run the model in the backend that KERAS_BACKEND names, or that Keras chooses.

    None if Keras is not installed.

    The callable takes arrays by input name and gives arrays by output name, for the layers that the outermost
    model has. Python code in the file stays refused (Keras's safe mode).

    keeps_states: whether a run of stateful layers goes on where the one before has ended; otherwise each
    begins with zeros.
    """
    if find_spec("keras") is None:
        return None
    import keras

    file = files[0]
    source = read(file)
    if source.version == 2 and '"hard_sigmoid"' in json.dumps(source.config):
        problem = "was written by Keras 2, whose hard_sigmoid has another slope than that of the Keras that is installed"
        raise MaceError(file.name, problem, "validate against stored data instead")
    try:
        whole = keras.saving.load_model(str(file), compile=False, safe_mode=True)
        whole = whole if hasattr(whole, "operations") else keras.Model(whole.inputs, whole.outputs)
        nodes = _nodes(whole)
        inputs = {p.name: _tensor(nodes, p.name) for p in model.inputs} or {
            t._keras_history.operation.name: t for t in whole.inputs
        }
        outputs = {p.name: _tensor(nodes, p.name) for p in model.outputs} or _outputs(whole, nodes)
        known = {name: tensor for name, tensor in outputs.items() if tensor is not None}
        entries = [t for t in inputs.values() if t is not None]
        part = keras.Model(entries[0] if len(entries) == 1 else entries, list(known.values()))
    except Exception as error:  # Keras raises what its backends raise
        text = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise MaceError(
            file.name, f"Keras refuses it: {text}", "validate against stored data instead"
        ) from error

    _reset_states(part)

    def run(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        if not keeps_states:
            _reset_states(part)
        tensors = [keras.ops.convert_to_tensor(arrays[name]) for name in inputs]
        given = tensors[0] if len(tensors) == 1 else tensors
        # Many runs in a row repay what Keras needs to compile the model, about a second.
        made = part.predict_on_batch(given) if keeps_states else part(given, training=False)
        listed = made if isinstance(made, list | tuple) else [made]
        return {
            name: np.array(keras.ops.convert_to_numpy(tensor))
            for name, tensor in zip(known, listed, strict=True)
        }

    return Reference(run, f"Keras {keras.__version__} on {keras.backend.backend()}")


def _reset_states(part: Any) -> None:
    """Set the states of all stateful layers to zero.

    Keras's own `reset_state` fails for cells on top of each other.
    """
    import keras

    for layer in part._flatten_layers():
        if getattr(layer, "stateful", False):
            for variable in keras.tree.flatten(getattr(layer, "states", None) or ()):
                variable.assign(keras.ops.zeros_like(variable.value))


def _nodes(whole: Any) -> dict[str, list[Any]]:
    """The calls of each operation that the model is made of, by its name, in order.

    An operation may have been called for others too.
    """
    found: dict[str, dict[int, Any]] = {}
    open_ = list(whole.outputs)
    while open_:
        operation, number, _ = open_.pop()._keras_history
        calls = found.setdefault(operation.name, {})
        if number not in calls:
            calls[number] = operation._inbound_nodes[number]
            open_.extend(calls[number].input_tensors)
    return {name: [calls[number] for number in sorted(calls)] for name, calls in found.items()}


def _tensor(nodes: Mapping[str, list[Any]], name: str) -> Any | None:
    """A layer's result by the name that it has in the graph: "lstm", "lstm:1", "dense/1".

    None if the model does not show it.
    """
    stem, _, index = name.rpartition(":") if ":" in name else (name, "", "0")
    own, _, call = stem.partition("/")
    if own not in nodes or not index.isdigit() or not (call or "0").isdigit():
        return None
    made = nodes[own][int(call or 0)].output_tensors if int(call or 0) < len(nodes[own]) else []
    return made[int(index)] if int(index) < len(made) else None


def _outputs(whole: Any, nodes: Mapping[str, list[Any]]) -> dict[str, Any]:
    """The model's outputs by the names that they have in the graph."""
    named: dict[str, Any] = {}
    for tensor in whole.outputs:
        operation, number, index = tensor._keras_history
        call = nodes[operation.name].index(operation._inbound_nodes[number])
        named[f"{operation.name}{f'/{call}' if call else ''}{f':{index}' if index else ''}"] = tensor
    return named

"""Runs the model in Keras itself, for validation."""

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
    """Return what runs the model in the backend that KERAS_BACKEND names, or that Keras chooses.

    None if Keras is not installed.

    The callable takes arrays by input name and gives arrays by output name, for the layers that the outermost
    model has. Python code in the file stays refused (Keras's safe mode).

    keeps_states: whether a run of stateful layers continues from the states after the run before; otherwise
    each
    begins with zeros.
    """
    if find_spec("keras") is None:
        return None
    import keras

    file = files[0]
    source = read(file)
    if source.version == 2 and '"hard_sigmoid"' in json.dumps(source.config):
        problem = "was written by Keras 2, whose hard_sigmoid has another slope than the installed Keras's"
        raise MaceError(file.name, problem, "validate against stored data instead")
    try:
        loaded = keras.saving.load_model(str(file), compile=False, safe_mode=True)
        # A Sequential model has no graph of operations to cut.
        if not hasattr(loaded, "operations"):
            loaded = keras.Model(loaded.inputs, loaded.outputs)
        part, inputs, known = _extract_part(loaded, model)
    except Exception as error:  # Keras raises what its backends raise
        text = (str(error).strip() or type(error).__name__).splitlines()[0]
        remedy = "validate against stored data instead"
        raise MaceError(file.name, f"Keras refuses it: {text}", remedy) from error

    _reset_states(part)

    def run(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        if not keeps_states:
            _reset_states(part)
        tensors = [keras.ops.convert_to_tensor(arrays[name]) for name in inputs]
        argument = tensors[0] if len(tensors) == 1 else tensors
        # predict_on_batch compiles the model, about a second, which only many runs in a row repay.
        results = part.predict_on_batch(argument) if keeps_states else part(argument, training=False)
        listed = results if isinstance(results, list | tuple) else [results]
        arrays_of = map(keras.ops.convert_to_numpy, listed)
        return {name: np.array(array) for name, array in zip(known, arrays_of, strict=True)}

    return Reference(run, f"Keras {keras.__version__} on {keras.backend.backend()}")


def _extract_part(loaded: Any, model: Model) -> tuple[Any, list[str], list[str]]:
    """Return the part between a model's ports, and the names of its inputs and outputs in their order."""
    import keras

    calls = _collect_calls(loaded)
    inputs = {port.name: _find_tensor(calls, port.name) for port in model.inputs} or {
        tensor._keras_history.operation.name: tensor for tensor in loaded.inputs
    }
    outputs = {port.name: _find_tensor(calls, port.name) for port in model.outputs} or _name_outputs(
        loaded, calls
    )
    known = {name: tensor for name, tensor in outputs.items() if tensor is not None}
    entries = [t for t in inputs.values() if t is not None]
    part = keras.Model(entries[0] if len(entries) == 1 else entries, list(known.values()))
    return part, [*inputs], [*known]


def _reset_states(part: Any) -> None:
    """Set the states of all stateful layers to zero.

    Keras's own `reset_state` fails for cells on top of each other.
    """
    import keras

    for layer in part._flatten_layers():
        if getattr(layer, "stateful", False):
            for variable in keras.tree.flatten(getattr(layer, "states", None) or ()):
                variable.assign(keras.ops.zeros_like(variable.value))


def _collect_calls(model: Any) -> dict[str, list[Any]]:
    """Return the calls of each operation on the way to the model's outputs, by its name, in order.

    Only these: the operation may have been called for other models too, whose calls Keras keeps as well.
    """
    calls_by_name: dict[str, dict[int, Any]] = {}
    tensors = list(model.outputs)
    while tensors:
        operation, number, _ = tensors.pop()._keras_history
        calls = calls_by_name.setdefault(operation.name, {})
        if number not in calls:
            calls[number] = operation._inbound_nodes[number]
            tensors.extend(calls[number].input_tensors)
    return {name: [calls[number] for number in sorted(calls)] for name, calls in calls_by_name.items()}


def _find_tensor(calls: Mapping[str, list[Any]], name: str) -> Any | None:
    """Return a layer's result by the name that it has in the graph: "lstm", "lstm:1", "dense/1".

    None if Keras gives no access to it.
    """
    stem, _, index = name.rpartition(":") if ":" in name else (name, "", "0")
    layer, _, number = stem.partition("/")
    if layer not in calls or not index.isdigit() or not (number or "0").isdigit():
        return None
    if int(number or 0) >= len(calls[layer]):
        return None
    tensors = calls[layer][int(number or 0)].output_tensors
    return tensors[int(index)] if int(index) < len(tensors) else None


def _name_outputs(model: Any, calls: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Return the model's outputs by the names that they have in the graph."""
    outputs: dict[str, Any] = {}
    for tensor in model.outputs:
        operation, number, index = tensor._keras_history
        call = calls[operation.name].index(operation._inbound_nodes[number])
        name = f"{operation.name}/{call}" if call else operation.name
        outputs[f"{name}:{index}" if index else name] = tensor
    return outputs

"""The model in LiteRT's plain kernels, for validation."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

import numpy as np

from mace_core.api import Files, Reference
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Array


def reference(files: Files, model: Model) -> Reference | None:
    """Run the model, every tensor of it kept, on one CPU thread; None if LiteRT is not installed.

    The callable takes arrays by input name and gives arrays by output name.
    """
    if find_spec("ai_edge_litert") is None:
        return None
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    try:
        interpreter = Interpreter(
            str(files[0]),
            num_threads=1,
            experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
            experimental_preserve_all_tensors=bool(model.outputs),
        )
        places = {t["name"]: t["index"] for t in interpreter.get_tensor_details()}
        given = {d["name"]: d["index"] for d in interpreter.get_input_details()}
        for port in model.inputs:
            if port.shape is not None and port.name in given:
                interpreter.resize_tensor_input(given[port.name], port.shape)
        interpreter.allocate_tensors()
    except (ValueError, RuntimeError) as error:
        raise MaceError(files[0].name, f"LiteRT refuses it: {error}", "validate against stored data instead") from error
    unknown = {p.name for p in model.inputs} - given.keys()
    if unknown:
        raise MaceError(files[0].name, f"LiteRT cannot begin at {', '.join(sorted(unknown))}", "validate against stored data instead")
    names = [p.name for p in model.outputs if p.name in places] or [d["name"] for d in interpreter.get_output_details()]

    def run(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        interpreter.reset_all_variables()
        for name, index in given.items():
            interpreter.set_tensor(index, np.ascontiguousarray(arrays[name]))
        interpreter.invoke()
        found = {}
        for name in names:
            try:
                found[name] = interpreter.get_tensor(places[name])
            except ValueError:  # a tensor without data, as inside a fused kernel
                continue
        return found

    return run

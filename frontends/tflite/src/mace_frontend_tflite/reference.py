"""The model in LiteRT: in its plain kernels for validation, in its fastest for benchmarks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np

from mace_core.api import Files, Reference
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_tflite.source import read


def reference(files: Files, model: Model, *, plain: bool = True) -> Reference | None:
    """Run the model on one CPU thread, every tensor of it kept where inner ones are asked for; None if LiteRT is not installed.

    The callable takes arrays by input name and gives arrays by output name.
    """
    if find_spec("ai_edge_litert") is None:
        return None
    try:
        interpreter = _plain(files, bool(model.outputs)) if plain else _fastest(files)
        places = {info.name: info.index for info in read(files[0]).subgraphs[0].tensors}
        given = {name: places[name] for name in _names(places, interpreter.get_input_details())}
        for port in model.inputs:
            if port.shape is not None and port.name in given:
                interpreter.resize_tensor_input(given[port.name], port.shape)
        interpreter.allocate_tensors()
    except (ValueError, RuntimeError) as error:
        raise MaceError(files[0].name, f"LiteRT refuses it: {error}", "validate against stored data instead") from error
    unknown = {p.name for p in model.inputs} - given.keys()
    if unknown:
        raise MaceError(files[0].name, f"LiteRT cannot begin at {', '.join(sorted(unknown))}", "validate against stored data instead")
    names = [p.name for p in model.outputs if p.name in places] or _names(places, interpreter.get_output_details())

    def run(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        interpreter.reset_all_variables()
        for name, index in given.items():
            interpreter.set_tensor(index, np.ascontiguousarray(arrays[name]))
        try:
            interpreter.invoke()
        except RuntimeError as error:
            raise MaceError(files[0].name, f"LiteRT cannot run it: {error}", "validate against stored data instead") from error
        found = {}
        for name in names:
            try:
                found[name] = interpreter.get_tensor(places[name])
            except ValueError:  # a tensor without data, as inside a fused kernel
                continue
        return found

    return run


def _fastest(files: Files) -> Any:
    from ai_edge_litert.interpreter import Interpreter

    return Interpreter(str(files[0]), num_threads=1)


def _plain(files: Files, keep: bool) -> Any:
    """An interpreter of plain kernels; of optimised ones where an operator has no plain one (CEIL, ROUND, ELU)."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kinds = (OpResolverType.BUILTIN_REF, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
    for kind in kinds:
        try:
            return Interpreter(str(files[0]), num_threads=1, experimental_op_resolver_type=kind, experimental_preserve_all_tensors=keep)
        except ValueError as error:
            if "Didn't find op" not in str(error) or kind == kinds[-1]:
                raise
    return None


def _names(places: Mapping[str, int], details: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names by which this frontend knows tensors."""
    names = {index: name for name, index in places.items()}
    return [names[d["index"]] for d in details]

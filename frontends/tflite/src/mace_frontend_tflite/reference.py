"""The model in LiteRT: in its plain kernels for validation, in its fastest for benchmarks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import numpy as np

from mace_core.api import Files, Reference
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.graph_builder import NEXT
from mace_core.ir import Array
from mace_frontend_tflite.source import Source, read

STORED = "validate against stored data instead"

FASTEST = "XNNPACK"


def reference(files: Files, model: Model, *, plain: bool = True) -> Reference | None:
    """Run the model on one CPU thread, every tensor of it kept where inner ones are asked for.

    None if LiteRT is not installed.

    The callable takes arrays by input name and gives arrays by output name. Each call begins with the start
    values of the states that are no inputs.
    """
    if find_spec("ai_edge_litert") is None:
        return None
    session = _Session(files, model, plain)
    unknown = {port.name for port in model.inputs} - session.places.keys()
    if unknown:
        raise MaceError(files[0].name, f"LiteRT cannot begin at {', '.join(sorted(unknown))}", STORED)

    def run(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        session.reset()
        return session.run(arrays)

    return Reference(run, session.runtime)


def recurrent(files: Files, model: Model) -> Reference | None:
    """Run the model with the states that LiteRT keeps, from their start values on, whether or not they are inputs."""
    if find_spec("ai_edge_litert") is None:
        return None
    session = _Session(files, model, plain=True)
    session.reset()
    for name in [name for name, info in session.infos.items() if info.variable]:
        session.places.pop(name, None)
    return Reference(session.run, session.runtime)


class _Session:
    """An interpreter, and the numbers of the tensors that it can be given. places: by name."""

    def __init__(self, files: Files, model: Model, plain: bool) -> None:
        self.files, self.model, self.plain = files, model, plain
        self.source = read(files[0])
        self.infos = {info.name: info for info in self.source.subgraphs[0].tensors}
        self.places: dict[str, int] = {}
        self.names: list[str] = []
        self.runtime = ""
        self._start()

    def _start(self) -> None:
        model = self.model
        try:
            made = _plain(self.files, bool(model.outputs)) if self.plain else (_fastest(self.files), FASTEST)
            self.interpreter, kernels = made
            self.runtime = f"LiteRT {version('ai-edge-litert')}, {kernels}"
            indices = {name: info.index for name, info in self.infos.items()}
            own = {name: indices[name] for name in _names(indices, self.interpreter.get_input_details())}
            for port in model.inputs:
                if port.shape is not None and port.name in own:
                    self.interpreter.resize_tensor_input(own[port.name], port.shape)
            self.interpreter.allocate_tensors()
        except (ValueError, RuntimeError) as error:
            raise MaceError(self.files[0].name, f"LiteRT refuses it: {error}", STORED) from error
        states = {
            port.name: indices[port.name]
            for port in model.inputs
            if port.name in indices and self.infos[port.name].variable
        }
        self.places = {**own, **states}
        stated = [port.name for port in model.outputs if self._tensor(port.name) is not None]
        self.names = stated or _names(indices, self.interpreter.get_output_details())

    def _tensor(self, output: str) -> int | None:
        """Return the number of the tensor that holds an output after the run.

        None if LiteRT does not show it.
        """
        if output in self.infos:
            return self.infos[output].index
        state = self.infos.get(output.removesuffix(NEXT))
        return state.index if state is not None and state.variable else None

    def reset(self) -> None:
        """Give every state its start value; variables have theirs only in an interpreter of its own."""
        if _has_variables(self.source):
            places = self.places
            self._start()
            self.places = {name: place for name, place in self.places.items() if name in places}
        self.interpreter.reset_all_variables()

    def run(self, arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        """Run it once."""
        for name, index in self.places.items():
            self.interpreter.set_tensor(index, np.ascontiguousarray(arrays[name]))
        try:
            self.interpreter.invoke()
        except RuntimeError as error:
            raise MaceError(self.files[0].name, f"LiteRT cannot run it: {error}", STORED) from error
        found = {}
        for name in self.names:
            try:
                found[name] = self.interpreter.get_tensor(self._tensor(name))
            except ValueError:  # a tensor without data, as inside a fused kernel
                continue
        return found


def _has_variables(source: Source) -> bool:
    return any(operator.code == "VAR_HANDLE" for graph in source.subgraphs for operator in graph.operators)


def _fastest(files: Files) -> Any:
    from ai_edge_litert.interpreter import Interpreter

    return Interpreter(str(files[0]), num_threads=1)


def _plain(files: Files, keep: bool) -> tuple[Any, str]:
    """An interpreter of reference kernels, and what they are.

    Optimized ones where an operator has no other (CEIL, ROUND, ELU).
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    kinds = {
        OpResolverType.BUILTIN_REF: "reference kernels",
        OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES: "optimized kernels without XNNPACK",
    }
    options = {"num_threads": 1, "experimental_preserve_all_tensors": keep}
    for kind, kernels in kinds.items():
        try:
            return Interpreter(str(files[0]), experimental_op_resolver_type=kind, **options), kernels
        except ValueError as error:
            if "Didn't find op" not in str(error) or kind is OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES:
                raise
    raise AssertionError("the last attempt returns or raises")


def _names(places: Mapping[str, int], details: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names by which this frontend knows tensors."""
    names = {index: name for name, index in places.items()}
    return [names[d["index"]] for d in details]

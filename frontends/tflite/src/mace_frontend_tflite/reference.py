"""Runs the model in LiteRT: in its reference kernels for validation, in its fastest for benchmarks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from itertools import chain
from typing import Any

import numpy as np

from mace_core.api import Files, Reference
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.graph_builder import NEXT
from mace_core.ir import Array
from mace_frontend_tflite.source import TfliteFile, read

REMEDY = "validate against stored data instead"

FASTEST = "XNNPACK"
"""LiteRT applies this delegate by itself, so the fastest interpreter is the one without options."""


def reference(files: Files, model: Model, *, plain: bool = True) -> Reference | None:
    """Return what runs the model on one CPU thread; None if LiteRT is not installed.

    The callable takes arrays by input name and gives arrays by output name. Each call begins with the start
    values of the states that are no inputs.
    """
    if find_spec("ai_edge_litert") is None:
        return None
    session = _Session(files, model, plain)
    unknown = {port.name for port in model.inputs} - session.settable.keys()
    if unknown:
        raise MaceError(files[0].name, f"LiteRT cannot begin at {', '.join(sorted(unknown))}", REMEDY)

    def run(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        session.reset()
        return session.run(arrays)

    return Reference(run, session.runtime)


def recurrent_reference(files: Files, model: Model) -> Reference | None:
    """Return what runs the model with the states that LiteRT keeps, from their start values on.

    None if LiteRT is not installed. States that the deployment file makes inputs are kept as well.
    """
    if find_spec("ai_edge_litert") is None:
        return None
    session = _Session(files, model, plain=True)
    session.reset()
    for name in [name for name, info in session.infos.items() if info.variable]:
        session.settable.pop(name, None)
    return Reference(session.run, session.runtime)


class _Session:
    """An interpreter of LiteRT for a model.

    settable: name of a tensor that a caller may set before a run -> its number in the file.
    """

    def __init__(self, files: Files, model: Model, plain: bool) -> None:
        self.files, self.model, self.plain = files, model, plain
        self.source = read(files[0])
        self.infos = {info.name: info for info in self.source.subgraphs[0].tensors}
        self.settable: dict[str, int] = {}
        self.names: list[str] = []
        self.runtime = ""
        self._start()

    def _start(self) -> None:
        model = self.model
        try:
            if self.plain:
                self.interpreter, kernels = _make_plain_interpreter(self.files, bool(model.outputs))
            else:
                self.interpreter, kernels = _make_fastest_interpreter(self.files), FASTEST
            self.runtime = f"LiteRT {version('ai-edge-litert')}, {kernels}"
            indices = {name: info.index for name, info in self.infos.items()}
            names = _name_tensors(indices, self.interpreter.get_input_details())
            inputs = {name: indices[name] for name in names}
            for port in model.inputs:
                if port.shape is not None and port.name in inputs:
                    self.interpreter.resize_tensor_input(inputs[port.name], port.shape)
            self.interpreter.allocate_tensors()
        except (ValueError, RuntimeError) as error:
            raise MaceError(self.files[0].name, f"LiteRT refuses it: {error}", REMEDY) from error
        states = {
            port.name: indices[port.name]
            for port in model.inputs
            if port.name in indices and self.infos[port.name].variable
        }
        self.settable = {**inputs, **states}
        stated = [port.name for port in model.outputs if self._tensor(port.name) is not None]
        self.names = stated or _name_tensors(indices, self.interpreter.get_output_details())

    def _tensor(self, output: str) -> int | None:
        """Return the number of the tensor that holds an output after the run.

        None if LiteRT gives no access to it.
        """
        if output in self.infos:
            return self.infos[output].index
        state = self.infos.get(output.removesuffix(NEXT))
        return state.index if state is not None and state.variable else None

    def reset(self) -> None:
        """Give every state its start value."""
        # reset_all_variables clears variable tensors, but not resource variables: these live as long as the
        # interpreter.
        if _has_variables(self.source):
            before = self.settable
            self._start()
            self.settable = {name: number for name, number in self.settable.items() if name in before}
        self.interpreter.reset_all_variables()

    def run(self, arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        """Run the model once; return its outputs by name, without those to which LiteRT gives no access."""
        for name, index in self.settable.items():
            self.interpreter.set_tensor(index, np.ascontiguousarray(arrays[name]))
        try:
            self.interpreter.invoke()
        except RuntimeError as error:
            raise MaceError(self.files[0].name, f"LiteRT cannot run it: {error}", REMEDY) from error
        arrays_by_name = {}
        for name in self.names:
            with suppress(ValueError):  # of a tensor without data, as inside a fused kernel
                arrays_by_name[name] = self.interpreter.get_tensor(self._tensor(name))
        return arrays_by_name


def _has_variables(source: TfliteFile) -> bool:
    operators = chain.from_iterable(graph.operators for graph in source.subgraphs)
    return any(operator.code == "VAR_HANDLE" for operator in operators)


def _make_fastest_interpreter(files: Files) -> Any:
    from ai_edge_litert.interpreter import Interpreter

    return Interpreter(str(files[0]), num_threads=1)


def _make_plain_interpreter(files: Files, keep: bool) -> tuple[Any, str]:
    """Return an interpreter of reference kernels, and which kernels they are.

    Optimized kernels are used for a model with an operator that has no other (CEIL, ROUND, ELU).
    keep: whether inner tensors can be read after a run.
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


def _name_tensors(indices: Mapping[str, int], details: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of the tensors that LiteRT describes, as this frontend makes them unique."""
    names = {index: name for name, index in indices.items()}
    return [names[description["index"]] for description in details]

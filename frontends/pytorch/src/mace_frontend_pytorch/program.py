"""Loads a model in torch, runs it and writes it as ONNX. Only `reference` imports torch as well."""

from __future__ import annotations

import logging
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from mace_core.deployment import Port
from mace_core.errors import MaceError
from mace_core.graph_builder import NEXT
from mace_core.hints import shape_lines
from mace_core.ir import DType, Shape
from mace_frontend_pytorch.archive import EXPORT_COMMAND, SCRIPT, ModelArchive, damage_error, quote_names
from mace_frontend_pytorch.exporter_faults import (
    EXPORTED,
    SCRIPTED,
    mend_script_exporter,
    read_program,
    read_script,
    refuse_faults,
)
from mace_frontend_pytorch.states import (
    call_module,
    export_with_states,
    find_states,
    name_states,
    write_starts,
)

NO_PICKLES = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
"""The environment variable that makes torch refuse pickles that could run code."""

TORCH_TYPES: Mapping[DType, str] = MappingProxyType(
    {
        DType.F16: "float16",
        DType.F32: "float32",
        DType.F64: "float64",
        DType.BOOL: "bool",
        DType.U8: "uint8",
        DType.I8: "int8",
        DType.I16: "int16",
        DType.I32: "int32",
        DType.I64: "int64",
    }
)
"""The IR's element types -> torch's names for them."""


class TorchProgram(ABC):
    """A model that torch has loaded.

    inputs: names of its arguments.  outputs: how many tensors it returns.
    """

    inputs: tuple[str, ...]
    outputs: int

    def __init__(self, archive: ModelArchive) -> None:
        self.path = archive.path

    @abstractmethod
    def run(self, tensors: Sequence[Any]) -> list[Any]:
        """Compute the outputs from tensors in the order of `inputs`."""

    @abstractmethod
    def write(
        self, target: Path, names: tuple[Sequence[str], Sequence[str]], ports: Sequence[Port | None]
    ) -> None:
        """Write the model as ONNX, its inputs and outputs with these names.

        Buffers that a run changes are inputs and outputs besides; `states.read_starts` tells which.

        ports: what the deployment file states of each input.
        """

    def start_session(self) -> Callable[[Sequence[Any]], list[Any]]:
        """Return what runs the model, and keeps the buffers that it changes from call to call."""
        return self.run


def missing_packages() -> str | None:
    """Return which packages must be installed, as a message says it; None if all are."""
    absent = [name for name in ("torch", "onnxscript") if find_spec(name) is None]
    if not absent:
        return None
    return f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed"


def open_program(archive: ModelArchive) -> TorchProgram:
    """Load a model with torch; MaceError if torch is missing or refuses it."""
    if missing := missing_packages():
        install = "pip install 'mace-frontend-pytorch[torch]'"
        remedy = f"{install}, or export the model to ONNX yourself: {EXPORT_COMMAND}"
        problem = f"is a {archive.kind}, which needs torch: {missing}"
        raise MaceError(archive.path.name, problem, remedy)
    with silence_torch() as logged:
        try:
            return _Script(archive) if archive.kind is SCRIPT else _Exported(archive)
        except MaceError:
            raise
        except Exception as error:  # torch raises errors of every class for files that are damaged
            raise damage_error(archive.path, logged[0] if logged else error) from error


class _LoggedErrors(logging.Handler):
    """Collects the errors that torch logs; it then goes on, and fails later for another reason."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1]:
            self.errors.append(record.exc_info[1])


@contextmanager
def silence_torch() -> Iterator[list[BaseException]]:
    """Hide torch's warnings about its own future and its optional parts, and keep pickles away from it.

    Yields a list of the errors that torch logs instead of raising them.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import torch.export
        import torch.onnx  # noqa: F401  # sets its loggers up when it is imported, so that comes first

    collected = _LoggedErrors()
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "torch._export")]
    levels, environment = [logger.level for logger in loggers], os.environ.get(NO_PICKLES)
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    export_logger = loggers[1]
    handlers, propagate = export_logger.handlers, export_logger.propagate
    export_logger.setLevel(logging.WARNING)
    export_logger.handlers, export_logger.propagate = [collected], False
    os.environ[NO_PICKLES] = "1"
    try:
        with warnings.catch_warnings():
            for category in (DeprecationWarning, FutureWarning, UserWarning):
                warnings.simplefilter("ignore", category)
            yield collected.errors
    finally:
        export_logger.handlers, export_logger.propagate = handlers, propagate
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if environment is None:
            del os.environ[NO_PICKLES]
        else:
            os.environ[NO_PICKLES] = environment


class _Script(TorchProgram):
    """A TorchScript archive."""

    def __init__(self, archive: ModelArchive) -> None:
        super().__init__(archive)
        import torch

        self.module = torch.jit.load(str(archive.path), map_location="cpu").eval()
        # Argument 0 is self; arguments with a default keep it.
        arguments = [a for a in self.module.forward.schema.arguments[1:] if not a.has_default_value()]
        others = [a.name for a in arguments if a.type.kind() != "TensorType"]
        if others or not arguments:
            problem = "its forward() takes no tensor"
            if others:
                problem = f"its forward() takes {quote_names(others)}, which is no tensor"
            raise MaceError(archive.path.name, problem, "trace a module whose forward() takes tensors alone")
        self.inputs = tuple(a.name for a in arguments)
        self.outputs = sum(self._count_tensors(r.type) for r in self.module.forward.schema.returns)

    def _count_tensors(self, returned: Any) -> int:
        """Return how many tensors a result of this type is; MaceError if it is no tensor or tuple of them."""
        if returned.kind() == "TensorType":
            return 1
        if returned.kind() == "TupleType":
            return sum(self._count_tensors(inner) for inner in returned.elements())
        problem = f"its forward() gives a {returned}"
        raise MaceError(self.path.name, problem, "return one tensor, or a tuple of tensors")

    def run(self, tensors: Sequence[Any]) -> list[Any]:
        return list(_flatten(self.module(*tensors)))

    def write(
        self, target: Path, names: tuple[Sequence[str], Sequence[str]], ports: Sequence[Port | None]
    ) -> None:
        import torch

        shapes = [port.shape if port else None for port in ports]
        unknown = [name for name, shape in zip(self.inputs, shapes, strict=True) if shape is None]
        if unknown:
            lines = shape_lines(dict(zip(names[0], shapes, strict=True)))
            problem = f"TorchScript does not tell the shape of {quote_names(unknown)}"
            remedy = "write them in the deployment file, in the order of forward(), each ? replaced by"
            raise MaceError(self.path.name, problem, f"{remedy} a shape:{lines}")
        # Freezing makes all attributes constants but those that the module writes.
        graph = torch.jit.freeze(self.module, optimize_numerics=False).inlined_graph
        refuse_faults(self.path.name, read_script(graph), SCRIPTED)
        read = graph.findAllNodes("prim::GetAttr", recurse=True)
        tensors = [node for node in read if node.output().type().kind() == "TensorType"]
        if buffers := sorted({node.s("name") for node in tensors}):
            problem = f"changes its buffers {quote_names(buffers)} when it runs, which is not exported"
            remedy = "save it after eval(), or by torch.export.save, with which they become states"
            raise MaceError(self.path.name, problem, remedy)
        examples = tuple(_example(port.shape or (), port.dtype) for port in ports if port)
        # torch.export, which dynamo=True uses, traces Python code; TorchScript has none.
        with mend_script_exporter():
            torch.onnx.export(
                self.module,
                examples,
                str(target),
                dynamo=False,
                input_names=[*names[0]],
                output_names=[*names[1]],
            )


class _Exported(TorchProgram):
    """A program that torch.export has saved."""

    def __init__(self, archive: ModelArchive) -> None:
        super().__init__(archive)
        import torch

        self.program = torch.export.load(str(archive.path))
        signature = self.program.graph_signature
        inputs, outputs = signature.user_inputs, signature.user_outputs
        # A port that is no tensor has its value there instead of a name.
        if not inputs or not all(isinstance(name, str) for name in (*inputs, *outputs)):
            problem = "takes or gives what is no tensor"
            raise MaceError(archive.path.name, problem, "export a module that takes and gives tensors alone")
        self.inputs, self.outputs = tuple(inputs), len(outputs)

    def run(self, tensors: Sequence[Any]) -> list[Any]:
        return self.start_session()(tensors)

    def start_session(self) -> Callable[[Sequence[Any]], list[Any]]:
        # Buffers of its own, because a run would change those of the program.
        module, states = self.program.module(), find_states(self.program)
        return lambda tensors: list(_flatten(call_module(self.program, module, tensors, states)))

    def write(
        self, target: Path, names: tuple[Sequence[str], Sequence[str]], ports: Sequence[Port | None]
    ) -> None:
        import torch

        program, inputs, outputs = self.program, [*names[0]], [*names[1]]
        refuse_faults(self.path.name, read_program(program.graph), EXPORTED)
        starts = find_states(program)
        if starts:
            states = name_states(starts, (*inputs, *outputs))
            program = export_with_states(program, starts, self._examples(ports))
            inputs, outputs = [*states, *inputs], [*(name + NEXT for name in states), *outputs]
            arrays = {name: tensor.numpy() for name, tensor in zip(states, starts.values(), strict=True)}
            write_starts(target, arrays)
        torch.onnx.export(
            program,
            f=str(target),
            dynamo=True,
            verbose=False,
            input_names=inputs,
            output_names=outputs,
        )

    def _examples(self, ports: Sequence[Port | None]) -> list[Any]:
        """Return a tensor for each input, in the shape that the deployment file or the program states."""
        nodes = {node.name: node for node in self.program.graph.nodes}
        examples = []
        for name, port in zip(self.inputs, ports, strict=True):
            value = nodes[name].meta["val"]
            shape = port.shape if port and port.shape is not None else tuple(value.shape)
            if not all(type(size) is int for size in shape):
                problem = f"input {name!r} of a model that changes its buffers has an unknown shape"
                raise MaceError(self.path.name, problem, "write its shape in the deployment file")
            examples.append(value.new_zeros(shape, device="cpu"))
        return examples


def _flatten(value: Any) -> Iterator[Any]:
    """Yield the tensors in what a module returns, in torch's order of outputs."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from _flatten(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _flatten(item)
    elif value is not None:
        yield value


def _example(shape: Shape, dtype: DType | None) -> Any:
    """Return a tensor of an input's shape and type; of single precision if the type is unknown."""
    import torch

    return torch.zeros(shape, dtype=getattr(torch, TORCH_TYPES.get(dtype or DType.F32, "float32")))

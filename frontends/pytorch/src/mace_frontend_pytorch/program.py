"""A model in torch: what it is given and gives, run and written as ONNX. Nothing else here imports torch."""

from __future__ import annotations

import logging
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mace_core.deployment import Port
from mace_core.errors import MaceError
from mace_core.hints import shape_lines
from mace_core.ir import DType, Shape
from mace_frontend_pytorch.source import EXPORT, SCRIPT, Source, damaged, joined

NO_PICKLES = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
"""Makes torch refuse pickles that could run code, wherever it meets them."""


class Program(ABC):
    """A loaded model. inputs: names of its arguments.  outputs: how many tensors it gives."""

    inputs: tuple[str, ...]
    outputs: int

    def __init__(self, source: Source) -> None:
        self.file = source.file

    @abstractmethod
    def run(self, tensors: Sequence[Any]) -> list[Any]:
        """Compute the outputs from tensors in the order of `inputs`."""

    @abstractmethod
    def write(
        self, target: Path, names: tuple[Sequence[str], Sequence[str]], ports: Sequence[Port | None]
    ) -> None:
        """Write the model as ONNX, its inputs and outputs with these names.

        ports: what is known of each input.
        """


def missing() -> str | None:
    """What must be installed; None if torch is there."""
    absent = [name for name in ("torch", "onnxscript") if find_spec(name) is None]
    return f"{' and '.join(absent)} {'is' if len(absent) == 1 else 'are'} not installed" if absent else None


def opened(source: Source) -> Program:
    """Load a model with torch; MaceError if torch is missing or refuses it."""
    if lack := missing():
        remedy = f"pip install 'mace-frontend-pytorch[torch]', or export the model to ONNX yourself: {EXPORT}"
        raise MaceError(source.file.name, f"is a {source.kind}, which needs torch: {lack}", remedy)
    with quiet() as noted:
        try:
            return _Script(source) if source.kind is SCRIPT else _Exported(source)
        except MaceError:
            raise
        except Exception as error:  # torch raises errors of every class for files that are damaged
            raise damaged(source.file, noted[0] if noted else error) from error


class _Notes(logging.Handler):
    """Keeps the errors that torch logs where it goes on and fails later for another reason."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: list[BaseException] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1]:
            self.errors.append(record.exc_info[1])


@contextmanager
def quiet() -> Iterator[list[BaseException]]:
    """Keep torch's notes about its own future and its optional parts away from the user, and pickles away from torch.

    Gives the errors that torch has noted instead of raising them.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import torch.export
        import torch.onnx  # noqa: F401  # sets up its loggers when it is imported, whatever they were set to before

    notes = _Notes()
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.export", "torch._export")]
    levels, before = [logger.level for logger in loggers], os.environ.get(NO_PICKLES)
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    exporting = loggers[1]
    heard, passed_on = exporting.handlers, exporting.propagate
    exporting.setLevel(logging.WARNING)
    exporting.handlers, exporting.propagate = [notes], False
    os.environ[NO_PICKLES] = "1"
    try:
        with warnings.catch_warnings():
            for category in (DeprecationWarning, FutureWarning, UserWarning):
                warnings.simplefilter("ignore", category)
            yield notes.errors
    finally:
        exporting.handlers, exporting.propagate = heard, passed_on
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if before is None:
            del os.environ[NO_PICKLES]
        else:
            os.environ[NO_PICKLES] = before


class _Script(Program):
    """A TorchScript archive."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        import torch

        self.module = torch.jit.load(str(source.file), map_location="cpu").eval()
        arguments = [a for a in self.module.forward.schema.arguments[1:] if not a.has_default_value()]
        others = [a.name for a in arguments if a.type.kind() != "TensorType"]
        if others or not arguments:
            problem = (
                f"its forward() takes {joined(others)}, which is no tensor"
                if others
                else "its forward() takes no tensor"
            )
            raise MaceError(source.file.name, problem, "trace a module whose forward() takes tensors alone")
        self.inputs = tuple(a.name for a in arguments)
        self.outputs = sum(self._count(r.type) for r in self.module.forward.schema.returns)

    def _count(self, kind: Any) -> int:
        """How many tensors a result of this type is."""
        if kind.kind() == "TensorType":
            return 1
        if kind.kind() == "TupleType":
            return sum(self._count(inner) for inner in kind.elements())
        raise MaceError(
            self.file.name, f"its forward() gives a {kind}", "return one tensor, or a tuple of tensors"
        )

    def run(self, tensors: Sequence[Any]) -> list[Any]:
        return list(_flat(self.module(*tensors)))

    def write(
        self, target: Path, names: tuple[Sequence[str], Sequence[str]], ports: Sequence[Port | None]
    ) -> None:
        import torch

        unknown = [
            own for own, port in zip(self.inputs, ports, strict=True) if port is None or port.shape is None
        ]
        if unknown:
            shapes = {name: port.shape if port else None for name, port in zip(names[0], ports, strict=True)}
            remedy = f"write them in the deployment file, in the order of forward(), each ? replaced by a shape:{shape_lines(shapes)}"
            raise MaceError(
                self.file.name, f"TorchScript does not tell the shape of {joined(unknown)}", remedy
            )
        examples = tuple(_example(port.shape or (), port.dtype) for port in ports if port)
        torch.onnx.export(
            self.module,
            examples,
            str(target),
            dynamo=False,
            input_names=[*names[0]],
            output_names=[*names[1]],
        )


class _Exported(Program):
    """A program that torch.export has saved."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        import torch

        self.program = torch.export.load(str(source.file))
        given, made = self.program.graph_signature.user_inputs, self.program.graph_signature.user_outputs
        if not given or not all(isinstance(name, str) for name in (*given, *made)):
            raise MaceError(
                source.file.name,
                "takes or gives what is no tensor",
                "export a module that takes and gives tensors alone",
            )
        self.inputs, self.outputs = tuple(given), len(made)

    def run(self, tensors: Sequence[Any]) -> list[Any]:
        from torch.utils import _pytree as pytree

        args, kwargs = pytree.tree_unflatten(list(tensors), self.program.call_spec.in_spec)
        return list(_flat(self.program.module()(*args, **kwargs)))

    def write(
        self, target: Path, names: tuple[Sequence[str], Sequence[str]], ports: Sequence[Port | None]
    ) -> None:
        import torch

        how = {"input_names": [*names[0]], "output_names": [*names[1]]}
        torch.onnx.export(self.program, f=str(target), dynamo=True, verbose=False, **how)


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _flat(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _flat(item)
    elif value is not None:
        yield value


def _example(shape: Shape, dtype: DType | None) -> Any:
    """A tensor of the input's shape and type."""
    import torch

    names = {
        DType.F16: "float16",
        DType.F32: "float32",
        DType.F64: "float64",
        DType.BOOL: "bool",
        DType.U8: "uint8",
        DType.I8: "int8",
    }
    names |= {DType.I16: "int16", DType.I32: "int32", DType.I64: "int64"}
    return torch.zeros(shape, dtype=getattr(torch, names.get(dtype or DType.F32, "float32")))

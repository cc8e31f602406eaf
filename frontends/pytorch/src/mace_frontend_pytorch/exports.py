"""Exports a model to ONNX once, and caches the result for the user, so that torch need not start again."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Protocol
from zipfile import BadZipFile, ZipFile

from mace_core.api import Stream
from mace_core.deployment import Port
from mace_core.errors import MaceError
from mace_core.run.disk_cache import read_cached, write_cached
from mace_frontend_pytorch import exporter_faults, states
from mace_frontend_pytorch import program as exporter
from mace_frontend_pytorch.archive import EXPORT_COMMAND, recognize, short_text
from mace_frontend_pytorch.program import TorchProgram, open_program, silence_torch

CACHE_KIND = "exports"
EXPORTERS = ("torch", "onnxscript", "mace-frontend-pytorch")
"""Packages whose versions decide what an export looks like."""

MODULES = (exporter, states, exporter_faults)
"""Modules of this package that decide it too."""

CHUNK = 1 << 20
PortNames = tuple[Sequence[str], Sequence[str]]
"""Names of the inputs, and of the outputs."""


class ModelSignature(Protocol):
    """What is known of a model before it is exported."""

    @property
    def path(self) -> Path:
        """Its file."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of its arguments."""

    @property
    def outputs(self) -> int:
        """How many tensors it returns."""


class CachedModel:
    """A model in a file; torch loads it only for what is not in the cache."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def program(self) -> TorchProgram:
        """The model in torch; MaceError if torch is missing or refuses it."""
        return open_program(recognize(self.path))

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of its arguments."""
        return self._signature[0]

    @property
    def outputs(self) -> int:
        """How many tensors it returns."""
        return self._signature[1]

    def write(self, target: Path, names: PortNames, ports: Sequence[Port | None]) -> None:
        """Write the model as ONNX into a folder where no other file lies; MaceError if torch cannot.

        ports: what the deployment file states of each input.
        """
        stated = [port and (port.shape, port.dtype and port.dtype.value) for port in ports]
        key = self._key("onnx", target.name, *map(list, names), stated)
        if key is None:
            self._export(target, names, ports)
        elif not _unpack(read_cached(CACHE_KIND, key), target):
            self._export(target, names, ports)
            _pack(key, target.parent)

    @cached_property
    def _signature(self) -> tuple[tuple[str, ...], int]:
        key = self._key("signature")
        signature = _read_signature(read_cached(CACHE_KIND, key)) if key else None
        if signature is None:
            signature = self.program.inputs, self.program.outputs
            if key:
                write_cached(CACHE_KIND, key, json.dumps(signature))
        return signature

    @cached_property
    def _origin(self) -> list[str] | None:
        """The checksums of the file and of what would export it; None where one of them does not exist."""
        try:
            with self.path.open("rb") as stream:
                content = hashlib.file_digest(stream, "sha256").hexdigest()
            # An editable install has the same version before and after a change of the code.
            code = [hashlib.sha256(Path(str(module.__file__)).read_bytes()).hexdigest() for module in MODULES]
            return [content, *code, *map(version, EXPORTERS)]
        except (OSError, PackageNotFoundError):
            return None

    def _key(self, *parts: object) -> str | None:
        """Return the cache key for something about this file; None if it must not be cached."""
        if self._origin is None:
            return None
        return hashlib.sha256(json.dumps([self._origin, parts]).encode()).hexdigest()

    def _export(self, target: Path, names: PortNames, ports: Sequence[Port | None]) -> None:
        program = self.program
        with silence_torch():
            try:
                program.write(target, names, ports)
            except MaceError:
                raise
            except Exception as error:  # torch's exporters raise errors of every class
                problem = f"torch cannot export it to ONNX: {short_text(error)}"
                remedy = f"export it yourself and give the ONNX file: {EXPORT_COMMAND}"
                raise MaceError(self.path.name, problem, remedy) from error


def _read_signature(path: Path | None) -> tuple[tuple[str, ...], int] | None:
    """Return names of arguments and the number of results; None if the file is missing or damaged."""
    try:
        names, count = json.loads(path.read_bytes()) if path else ((), None)
    except (OSError, ValueError, TypeError):
        return None
    is_list_of_names = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if type(count) is not int or not is_list_of_names:
        return None
    return tuple(names), count


def _pack(key: str, folder: Path) -> None:
    """Store the files of a folder in the cache, as one archive with their checksums."""
    # One archive, because torch writes the weights of a large model into files of their own beside it.
    files = sorted(folder.iterdir())
    path = folder / "kept.zip"
    with ZipFile(path, "w") as archive:
        for file in files:
            archive.write(file, file.name)

    def chunks() -> Iterator[bytes]:
        with path.open("rb") as stream:
            while chunk := stream.read(CHUNK):
                yield chunk

    write_cached(CACHE_KIND, key, Stream(chunks))
    path.unlink()


def _unpack(cached: Path | None, target: Path) -> bool:
    """Unpack a cached archive beside the target, which is one of its files.

    Return False if the archive is missing or damaged.
    """
    if cached is None:
        return False
    try:
        with ZipFile(cached) as archive:
            if target.name not in archive.namelist() or archive.testzip():
                return False
            archive.extractall(target.parent)
    except (
        *(OSError, BadZipFile, zlib.error, EOFError),
        *(ValueError, RuntimeError, NotImplementedError, LookupError),
    ):
        return False
    return True

"""A model as ONNX, exported once: what torch made of a file is kept in the user's cache folder, and torch need not start again."""

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
from mace_frontend_pytorch import program as exporter
from mace_frontend_pytorch.program import Program, opened, quiet
from mace_frontend_pytorch.source import EXPORT, recognise

KIND = "exports"
MAKERS = ("torch", "onnxscript", "mace-frontend-pytorch")
"""Packages that decide what an export looks like."""

PIECE = 1 << 20
Names = tuple[Sequence[str], Sequence[str]]


class Facts(Protocol):
    """What is known of a model before it is exported: the names of its arguments, and how many tensors it gives."""

    @property
    def file(self) -> Path:
        """Its file."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of its arguments."""

    @property
    def outputs(self) -> int:
        """How many tensors it gives."""


class Known:
    """A model in a file; torch loads it only for what no earlier command has found out."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @cached_property
    def program(self) -> Program:
        """The model in torch; MaceError if torch is missing or refuses it."""
        return opened(recognise(self.file))

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of its arguments."""
        return self._signature[0]

    @property
    def outputs(self) -> int:
        """How many tensors it gives."""
        return self._signature[1]

    def write(self, target: Path, names: Names, ports: Sequence[Port | None]) -> None:
        """Write the model as ONNX into a folder where nothing else lies; MaceError if torch cannot.

        names: of the inputs and outputs.  ports: what is known of each input.
        """
        stated = [port and (port.shape, port.dtype and port.dtype.value) for port in ports]
        key = self._key("onnx", target.name, *map(list, names), stated)
        if key is None:
            self._export(target, names, ports)
        elif not _unpack(read_cached(KIND, key), target):
            self._export(target, names, ports)
            _pack(key, target.parent)

    @cached_property
    def _signature(self) -> tuple[tuple[str, ...], int]:
        key = self._key("signature")
        found = _read_signature(read_cached(KIND, key)) if key else None
        if found is None:
            found = self.program.inputs, self.program.outputs
            if key:
                write_cached(KIND, key, json.dumps(found))
        return found

    @cached_property
    def _origin(self) -> list[str] | None:
        """The checksum of the file, and of what would export it.

        None where there is no file, or nothing that exports it.
        """
        try:
            with self.file.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
            own = hashlib.sha256(Path(exporter.__file__).read_bytes()).hexdigest()
            return [content, own, *map(version, MAKERS)]
        except (OSError, PackageNotFoundError):
            return None

    def _key(self, *what: object) -> str | None:
        """The name under which something about this file is kept."""
        if self._origin is None:
            return None
        return hashlib.sha256(json.dumps([self._origin, what]).encode()).hexdigest()

    def _export(self, target: Path, names: Names, ports: Sequence[Port | None]) -> None:
        program = self.program
        with quiet():
            try:
                program.write(target, names, ports)
            except MaceError:
                raise
            except Exception as error:  # torch's exporters raise errors of every class
                text = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
                remedy = f"export it yourself and give the ONNX file: {EXPORT}"
                raise MaceError(self.file.name, f"torch cannot export it to ONNX: {text}", remedy) from error


def _read_signature(file: Path | None) -> tuple[tuple[str, ...], int] | None:
    """Names of arguments and the number of results; None for what is not there or is damaged."""
    try:
        names, count = json.loads(file.read_bytes()) if file else ((), None)
    except (OSError, ValueError, TypeError):
        return None
    if (
        type(count) is not int
        or not isinstance(names, list)
        or not all(isinstance(name, str) for name in names)
    ):
        return None
    return tuple(names), count


def _pack(key: str, folder: Path) -> None:
    """Keep the files of a folder as one archive with their checksums: the weights of a large model lie beside it."""
    files = sorted(folder.iterdir())
    archive = folder / "kept.zip"
    with ZipFile(archive, "w") as packed:
        for file in files:
            packed.write(file, file.name)

    def pieces() -> Iterator[bytes]:
        with archive.open("rb") as source:
            while piece := source.read(PIECE):
                yield piece

    write_cached(KIND, key, Stream(pieces))
    archive.unlink()


def _unpack(kept: Path | None, target: Path) -> bool:
    """Put the files of an archive beside the target, which is one of them.

    False for one that is not there or is damaged.
    """
    if kept is None:
        return False
    try:
        with ZipFile(kept) as archive:
            if target.name not in archive.namelist() or archive.testzip():
                return False
            archive.extractall(target.parent)
    except (
        OSError,
        BadZipFile,
        zlib.error,
        ValueError,
        RuntimeError,
        NotImplementedError,
        EOFError,
        LookupError,
    ):
        return False
    return True

"""A model file, read and checked: its configuration, and the HDF5 file that holds its weights."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile, ZipInfo

import h5py

from mace_core.errors import MaceError
from mace_frontend_keras.hdf5 import DAMAGED, Hdf5, check_structure, text_of

CONFIG, METADATA, WEIGHTS = "config.json", "metadata.json", "model.weights.h5"
LARGEST_TEXT = 1 << 26
"""Bytes of a configuration; the largest models take a few million."""
DEEPEST = 200
"""Brackets within brackets of a configuration; a nested model adds about six."""
LARGEST_RATIO = 20
SMALL = 1 << 26
"""Bytes up to which a member of an archive may grow by more than LARGEST_RATIO when it is unpacked."""


@dataclass(frozen=True)
class Source:
    """A model file.

    config: of the model itself, with `class_name`.  version: the major version of the Keras that wrote it; 0
    if unknown.
    legacy: whether its weights lie as Keras 1 and 2 put them, by layer name.
    """

    file: Path
    config: Mapping[str, Any]
    version: int
    legacy: bool
    weights: Hdf5


def read(file: Path) -> Source:
    """Read a `.keras` archive or a whole model in HDF5, whatever its suffix; MaceError for anything else."""
    try:
        with file.open("rb") as stream:
            start = stream.read(8)
        source = _archive(file) if start[:2] == b"PK" else _hdf5(file)
    except OSError as error:
        if error.errno is not None and not file.is_file():
            raise MaceError(
                file.name, f"cannot be read: {error.strerror}", "correct the path in the deployment file"
            ) from error
        raise no_model(file, str(error)) from error
    except (*DAMAGED, BadZipFile, zlib.error, NotImplementedError, EOFError) as error:
        raise no_model(file, str(error)) from error
    if source.version == 1:
        raise MaceError(file.name, "was written by Keras 1", "load it with Keras 2.2 and save it again")
    return source


def no_model(file: Path, why: str) -> MaceError:
    """The error for a file that is none of Keras, or damaged."""
    line = (why.strip() or "it ends too early").splitlines()[0][:200]
    return MaceError(
        file.name,
        f"is no Keras model, or a damaged one: {line}",
        "save the whole model again with model.save()",
    )


def _archive(file: Path) -> Source:
    with ZipFile(file) as archive:
        members = {info.filename: info for info in archive.infolist()}
        if CONFIG not in members:
            raise no_model(file, f"the archive holds no {CONFIG}")
        config = _json(file, _member(file, archive, members[CONFIG], LARGEST_TEXT))
        metadata = (
            _json(file, _member(file, archive, members[METADATA], LARGEST_TEXT))
            if METADATA in members
            else {}
        )
        if WEIGHTS not in members:
            others = [name for name in members if name.startswith("model.weights")]
            remedy = "save it again with model.save('model.keras'), weights as one HDF5 file"
            raise MaceError(
                file.name, f"its weights are {', '.join(others) or 'missing'}, {WEIGHTS} was expected", remedy
            )
        packed = members[WEIGHTS].compress_size
        data = _member(file, archive, members[WEIGHTS], max(SMALL, LARGEST_RATIO * packed))
    check_structure(data)
    return Source(
        file,
        config,
        _version(metadata.get("keras_version")),
        False,
        Hdf5(file, h5py.File(BytesIO(data), "r"), len(data)),
    )


def _member(file: Path, archive: ZipFile, info: ZipInfo, most: int) -> bytes:
    """A member's bytes; MaceError if there are more than `most`, by its own word or in truth."""
    if info.file_size <= most and not info.flag_bits & 1:
        with archive.open(info) as stream:
            data = stream.read(most + 1)
        if len(data) <= most:
            return data
    problem = (
        "is encrypted"
        if info.flag_bits & 1
        else f"unpacks to {info.file_size} bytes from {info.compress_size}"
    )
    raise MaceError(file.name, f"{info.filename} {problem}", "save the model again")


def _hdf5(file: Path) -> Source:
    with file.open("rb") as stream, mmap(stream.fileno(), 0, access=ACCESS_READ) as data:
        check_structure(data)
    opened = h5py.File(file, "r")
    weights = Hdf5(file, opened, file.stat().st_size)
    text = text_of(weights.attribute(opened, "model_config"))
    if text is None:
        remedy = "save the whole model: model.save(), not model.save_weights()"
        raise MaceError(file.name, "holds weights without the model that they belong to", remedy)
    holder = weights.group("model_weights") or opened
    version = text_of(weights.attribute(holder, "keras_version")) or text_of(
        weights.attribute(opened, "keras_version")
    )
    return Source(file, _json(file, text.encode()), _version(version or "1"), True, weights)


def _json(file: Path, data: bytes) -> dict[str, Any]:
    """A JSON object; MaceError for anything else, too large or too deep."""
    if len(data) > LARGEST_TEXT or _depth(data) > DEEPEST:
        raise no_model(file, f"a configuration of {len(data)} bytes, {_depth(data)} brackets deep")
    found = json.loads(data)
    if not isinstance(found, dict):
        raise no_model(file, "its configuration is no JSON object")
    return found


def _depth(data: bytes) -> int:
    """How deep brackets lie in brackets.

    Those in texts count as well, which real configurations do not have.
    """
    depth = deepest = 0
    for byte in data:
        depth += (byte in b"{[") - (byte in b"}]")
        deepest = max(deepest, depth)
    return deepest


def _version(text: object) -> int:
    """The major version, 0 if there is none."""
    major = str(text or "").partition(".")[0]
    return int(major) if major.isdigit() and len(major) < 4 else 0

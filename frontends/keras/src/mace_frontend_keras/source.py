"""Reads and checks a model file: its configuration, and the HDF5 file that holds its weights."""

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
from mace_frontend_keras.hdf5 import DAMAGED, MAX_RATIO, MAX_TEXT, SMALL, Hdf5, as_text, check_structure

CONFIG, METADATA, WEIGHTS = "config.json", "metadata.json", "model.weights.h5"
MAX_DEPTH = 200
"""Brackets within brackets of a configuration; a nested model adds about six."""


@dataclass(frozen=True)
class KerasFile:
    """A model file.

    config: of the model itself, with `class_name`.
    version: the major version of the Keras that wrote it; 0 if unknown.
    legacy: whether its weights lie by layer name, as Keras 1 and 2 save them.
    """

    file: Path
    config: Mapping[str, Any]
    version: int
    legacy: bool
    weights: Hdf5


def read(file: Path) -> KerasFile:
    """Read a `.keras` archive or a whole model in HDF5, whatever its suffix; MaceError for anything else."""
    try:
        with file.open("rb") as stream:
            start = stream.read(8)
        source = _read_archive(file) if start[:2] == b"PK" else _read_hdf5(file)
    except OSError as error:
        if error.errno is not None and not file.is_file():
            raise MaceError(
                file.name, f"cannot be read: {error.strerror}", "correct the path in the deployment file"
            ) from error
        raise invalid_model_error(file, str(error)) from error
    except (*DAMAGED, BadZipFile, zlib.error, NotImplementedError, EOFError) as error:
        raise invalid_model_error(file, str(error)) from error
    if source.version == 1:
        raise MaceError(file.name, "was written by Keras 1", "load it with Keras 2.2 and save it again")
    return source


def invalid_model_error(file: Path, reason: str) -> MaceError:
    """Return the error for a file that is none of Keras, or damaged."""
    line = (reason.strip() or "it ends too early").splitlines()[0][:200]
    return MaceError(
        file.name,
        f"is no Keras model, or a damaged one: {line}",
        "save the whole model again with model.save()",
    )


def _read_archive(file: Path) -> KerasFile:
    with ZipFile(file) as archive:
        members = {info.filename: info for info in archive.infolist()}
        if CONFIG not in members:
            raise invalid_model_error(file, f"the archive holds no {CONFIG}")
        config = _read_json(file, _read_member(file, archive, members[CONFIG], MAX_TEXT))
        metadata: Mapping[str, Any] = {}
        if METADATA in members:
            metadata = _read_json(file, _read_member(file, archive, members[METADATA], MAX_TEXT))
        if WEIGHTS not in members:
            others = [name for name in members if name.startswith("model.weights")]
            problem = f"its weights are {', '.join(others) or 'missing'}, {WEIGHTS} was expected"
            remedy = "save it again with model.save('model.keras'), weights as one HDF5 file"
            raise MaceError(file.name, problem, remedy)
        packed = members[WEIGHTS].compress_size
        data = _read_member(file, archive, members[WEIGHTS], max(SMALL, MAX_RATIO * packed))
    check_structure(data)
    weights = Hdf5(file, h5py.File(BytesIO(data), "r"), len(data))
    return KerasFile(file, config, _major_version(metadata.get("keras_version")), False, weights)


def _read_member(file: Path, archive: ZipFile, info: ZipInfo, limit: int) -> bytes:
    """Return a member's bytes; MaceError if there are more than `limit`, as it states or in fact."""
    is_encrypted = bool(info.flag_bits & 1)
    if info.file_size <= limit and not is_encrypted:
        # The size that a member states may be wrong: never more than the limit is unpacked.
        with archive.open(info) as stream:
            data = stream.read(limit + 1)
        if len(data) <= limit:
            return data
    problem = "is encrypted"
    if not is_encrypted:
        problem = f"unpacks to {info.file_size} bytes from {info.compress_size}"
    raise MaceError(file.name, f"{info.filename} {problem}", "save the model again")


def _read_hdf5(file: Path) -> KerasFile:
    # Checked before the library opens it, which already reads attributes.
    with file.open("rb") as stream, mmap(stream.fileno(), 0, access=ACCESS_READ) as data:
        check_structure(data)
    root = h5py.File(file, "r")
    weights = Hdf5(file, root, file.stat().st_size)
    text = as_text(weights.attribute(root, "model_config"))
    if text is None:
        remedy = "save the whole model: model.save(), not model.save_weights()"
        raise MaceError(file.name, "holds weights without the model that they belong to", remedy)
    # The version stands beside the weights, in some files only at the top; Keras 1 wrote none.
    holder = weights.group("model_weights") or root
    versions = (as_text(weights.attribute(place, "keras_version")) for place in (holder, root))
    version = next(filter(None, versions), "1")
    return KerasFile(file, _read_json(file, text.encode()), _major_version(version), True, weights)


def _read_json(file: Path, data: bytes) -> dict[str, Any]:
    """Return a JSON object; MaceError for anything else, too large or too deep."""
    if len(data) > MAX_TEXT or _bracket_depth(data) > MAX_DEPTH:
        raise invalid_model_error(
            file, f"a configuration of {len(data)} bytes, {_bracket_depth(data)} brackets deep"
        )
    config = json.loads(data)
    if not isinstance(config, dict):
        raise invalid_model_error(file, "its configuration is no JSON object")
    return config


def _bracket_depth(data: bytes) -> int:
    """Return how deep brackets lie in brackets.

    Those in strings count as well, which real configurations do not have.
    """
    depth = deepest = 0
    for byte in data:
        depth += (byte in b"{[") - (byte in b"}]")
        deepest = max(deepest, depth)
    return deepest


def _major_version(text: object) -> int:
    """Return the major version, 0 if there is none."""
    major = str(text or "").partition(".")[0]
    return int(major) if major.isdigit() and len(major) < 4 else 0

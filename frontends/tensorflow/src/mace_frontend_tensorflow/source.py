"""A model as it lies in the file system: a frozen graph, or a SavedModel with its variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from mace_core.api import Files
from mace_core.errors import MaceError
from mace_frontend_tensorflow.bundle import read_bundle
from mace_frontend_tensorflow.flat import Flat, Flattening
from mace_frontend_tensorflow.folder import SAVED, VARIABLES
from mace_frontend_tensorflow.frames import Loop, with_loops
from mace_frontend_tensorflow.messages import DecodeError, GraphDef, MetaGraphDef, SavedModel
from mace_frontend_tensorflow.variables import Variables

SERVING = "serve"
VERSION_FIELD = b"\x08"
"""How every SavedModel begins, and no graph: with its first field, a number."""

SCALAR_IS_UNKNOWN = 24
"""Graphs older than this version write an unknown shape as that of a scalar (tensorflow/core/public/version.h)."""


@dataclass(frozen=True)
class Signature:
    """A function that a SavedModel offers: names of tensors by public name."""

    name: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


@dataclass(frozen=True)
class Source:
    """A model. name: what errors call it.  loops: of TensorFlow 1, by operation.

    version: of the TensorFlow that wrote its graph.  tags: what a SavedModel calls it.
    """

    name: str
    flat: Flat
    loops: Mapping[str, Loop]
    functions: Flattening
    signatures: tuple[Signature, ...]
    variables: Variables
    version: int
    tags: tuple[str, ...] = ()


def read(files: Files) -> Source:
    """Read a model; MaceError for anything that is none.

    files: a frozen graph; or a SavedModel, its folder or the saved_model.pb in it.
    """
    if len(files) != 1:
        raise MaceError(
            files[-1].name,
            f"a TensorFlow model is one file or folder, {len(files)} are named",
            "name saved_model.pb alone",
        )
    file = files[0] / SAVED if files[0].is_dir() else files[0]
    try:
        data = file.read_bytes()
    except OSError as error:
        raise MaceError(
            file.name, f"cannot be read: {error.strerror}", "correct the path in the deployment file"
        ) from error
    try:
        if file.name == SAVED or data.startswith(VERSION_FIELD):
            return _saved(file, _serving(SavedModel.FromString(data)))
        return _source(file, GraphDef.FromString(data), ())
    except (DecodeError, ValueError) as error:
        reason = (str(error).strip() or "it holds no message").splitlines()[0]
        raise MaceError(
            file.name, f"is no TensorFlow model, or a damaged one: {reason}", "export or download it again"
        ) from error


def _serving(model: SavedModel) -> MetaGraphDef:
    """The graph for inference: the first one marked so, else the first."""
    if not model.meta_graphs:
        raise ValueError("it holds no graph")
    marked = (m for m in model.meta_graphs if SERVING in m.meta_info_def.tags)
    return next(marked, model.meta_graphs[0])


def _saved(file: Path, meta: MetaGraphDef) -> Source:
    signatures = []
    for name, signature in sorted(meta.signature_def.items()):
        inputs, outputs = (
            {key: info.name for key, info in sorted(side.items())}
            for side in (signature.inputs, signature.outputs)
        )
        if outputs and not name.startswith("__"):  # __saved_model_init_op is no function for users
            signatures.append(Signature(name, inputs, outputs))
    return replace(_source(file, meta.graph_def, tuple(signatures)), tags=tuple(meta.meta_info_def.tags))


def _source(file: Path, graph: GraphDef, signatures: tuple[Signature, ...]) -> Source:
    if not graph.node:
        raise ValueError("it holds no nodes")
    functions = Flattening(file.name, graph.library.function)
    flat, loops = with_loops(functions.graph(graph.node), file.name)
    bundle = read_bundle(file.parent / VARIABLES / "variables") if file.name == SAVED else None
    return Source(
        file.name, flat, loops, functions, signatures, Variables(flat, bundle), graph.versions.producer
    )

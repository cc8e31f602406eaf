"""Reads the files of a model: a frozen graph, or a SavedModel with its variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from mace_core.api import Files
from mace_core.errors import MaceError
from mace_frontend_tensorflow.bundle import read_bundle
from mace_frontend_tensorflow.flat import Flat, Flattening
from mace_frontend_tensorflow.frames import LoopFrame, collapse_loops
from mace_frontend_tensorflow.messages import DecodeError, GraphDef, MetaGraphDef, SavedModel
from mace_frontend_tensorflow.saved_model import SAVED_MODEL_FILE, VARIABLES_FOLDER
from mace_frontend_tensorflow.variables import Variables

SERVING = "serve"
VERSION_FIELD = b"\x08"
"""The first byte of every SavedModel: its first field is an integer, where a graph begins with a message."""

SCALAR_IS_UNKNOWN = 24
"""Graphs older than this version write an unknown shape as a scalar's (tensorflow/core/public/version.h)."""


@dataclass(frozen=True)
class ServingSignature:
    """A function that a SavedModel offers, with its tensors by public name."""

    name: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


@dataclass(frozen=True)
class TensorFlowSource:
    """A model as its files have it.

    name: what errors call it.
    flat: its operations, calls inlined.
    loops: those of TensorFlow 1, by the name of the operation that each became.
    functions: its library of functions.
    signatures: what a SavedModel offers; none for a frozen graph.
    variables: their trained values.
    version: the version of the graph's format, of the TensorFlow that wrote it.
    tags: those of a SavedModel's graph.
    """

    name: str
    flat: Flat
    loops: Mapping[str, LoopFrame]
    functions: Flattening
    signatures: tuple[ServingSignature, ...]
    variables: Variables
    version: int
    tags: tuple[str, ...] = ()


def read(files: Files) -> TensorFlowSource:
    """Read a model; MaceError for files that are none.

    files: a frozen graph, the folder of a SavedModel, or the saved_model.pb in it.
    """
    if len(files) != 1:
        raise MaceError(
            files[-1].name,
            f"a TensorFlow model is one file or folder, {len(files)} are named",
            "name saved_model.pb alone",
        )
    file = files[0] / SAVED_MODEL_FILE if files[0].is_dir() else files[0]
    try:
        data = file.read_bytes()
    except OSError as error:
        raise MaceError(
            file.name, f"cannot be read: {error.strerror}", "correct the path in the deployment file"
        ) from error
    try:
        if file.name == SAVED_MODEL_FILE or data.startswith(VERSION_FIELD):
            return _read_saved_model(file, _serving_graph(SavedModel.FromString(data)))
        return _read_graph(file, GraphDef.FromString(data), ())
    except (DecodeError, ValueError) as error:
        reason = (str(error).strip() or "it holds no message").splitlines()[0]
        raise MaceError(
            file.name, f"is no TensorFlow model, or a damaged one: {reason}", "export or download it again"
        ) from error


def _serving_graph(model: SavedModel) -> MetaGraphDef:
    """Return the graph for inference: the first one that has the tag, or else the first."""
    if not model.meta_graphs:
        raise ValueError("it holds no graph")
    tagged = (graph for graph in model.meta_graphs if SERVING in graph.meta_info_def.tags)
    return next(tagged, model.meta_graphs[0])


def _read_saved_model(file: Path, meta: MetaGraphDef) -> TensorFlowSource:
    signatures = []
    for name, signature in sorted(meta.signature_def.items()):
        inputs = {key: info.name for key, info in sorted(signature.inputs.items())}
        outputs = {key: info.name for key, info in sorted(signature.outputs.items())}
        # Names such as __saved_model_init_op are for TensorFlow itself.
        if outputs and not name.startswith("__"):
            signatures.append(ServingSignature(name, inputs, outputs))
    return replace(_read_graph(file, meta.graph_def, tuple(signatures)), tags=tuple(meta.meta_info_def.tags))


def _read_graph(file: Path, graph: GraphDef, signatures: tuple[ServingSignature, ...]) -> TensorFlowSource:
    if not graph.node:
        raise ValueError("it holds no nodes")
    functions = Flattening(file.name, graph.library.function)
    flat, loops = collapse_loops(functions.graph(graph.node), file.name)
    bundle = (
        read_bundle(file.parent / VARIABLES_FOLDER / "variables") if file.name == SAVED_MODEL_FILE else None
    )
    return TensorFlowSource(
        file.name, flat, loops, functions, signatures, Variables(flat, bundle), graph.versions.producer
    )

"""The TensorFlow frontend: reads frozen graphs and SavedModels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from mace_core.api import Files, Frontend, PortNames, Reference
from mace_core.deployment import Model
from mace_core.hookspecs import hookimpl
from mace_core.ir import Graph
from mace_core.ops.op import Op
from mace_frontend_tensorflow.saved_model import SAVED_MODEL_FILE, VARIABLES_FOLDER


class TensorFlow(Frontend):
    """Frozen graphs, and SavedModels with their variables."""

    name = "tensorflow"
    suffixes = (".pb",)
    order = "NHWC"
    needs = "mace-frontend-tensorflow[reference]"

    def load(self, files: Files, model: Model, ops: Mapping[str, Op]) -> Graph:
        """Read the model; shapes that the file leaves open come from `model.inputs`."""
        from mace_frontend_tensorflow.load import load

        return load(files, model, ops)

    def claims(self, file: Path) -> bool:
        """Tell whether this reads a file: a graph, or the file of a SavedModel or its folder."""
        return super().claims(file) or (file / SAVED_MODEL_FILE).is_file()

    def port_names(self, files: Files) -> PortNames:
        """Return the names of the model's own inputs and outputs."""
        from mace_frontend_tensorflow.boundary import public_names
        from mace_frontend_tensorflow.source import read

        names = public_names(read(files), Model("", files))
        return tuple(names.inputs), tuple(names.outputs)

    def dependencies(self, files: Files) -> Files:
        """Return the model's file, and for a SavedModel the folder of its variables."""
        folders = (file.parent / VARIABLES_FOLDER for file in files if file.name == SAVED_MODEL_FILE)
        return super().dependencies((*files, *(folder for folder in folders if folder.is_dir())))

    def reference(self, files: Files, model: Model) -> Reference | None:
        """Return the model in TensorFlow on one CPU thread; None if that is not installed."""
        from mace_frontend_tensorflow.reference import reference

        return reference(files, model)

    def recurrent(self, files: Files, model: Model) -> Reference | None:
        """Return the model in TensorFlow, which keeps its variables from call to call.

        None if TensorFlow is not installed.
        """
        from mace_frontend_tensorflow.reference import recurrent

        return recurrent(files, model)


@hookimpl
def mace_frontends() -> Iterable[Frontend]:
    """Offer TensorFlow."""
    return (TensorFlow(),)

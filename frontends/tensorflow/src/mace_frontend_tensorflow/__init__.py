"""The TensorFlow frontend: reads frozen graphs and SavedModels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from mace_core.api import Files, Frontend, PortNames, Reference
from mace_core.deployment import Model
from mace_core.hookspecs import hookimpl
from mace_core.ir import Graph
from mace_core.ops.op import Op
from mace_frontend_tensorflow.folder import SAVED, VARIABLES


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
        """A graph, a SavedModel's own file, or the folder that it lies in."""
        return super().claims(file) or (file / SAVED).is_file()

    def port_names(self, files: Files) -> PortNames:
        """The model's own inputs and outputs."""
        from mace_frontend_tensorflow.boundary import public
        from mace_frontend_tensorflow.source import read

        names = public(read(files), Model("", files))
        return tuple(names.inputs), tuple(names.outputs)

    def dependencies(self, files: Files) -> Files:
        """The model's file and its variables, which lie beside that of a SavedModel."""
        beside = (f.parent / VARIABLES for f in files if f.name == SAVED)
        return super().dependencies((*files, *(folder for folder in beside if folder.is_dir())))

    def reference(self, files: Files, model: Model) -> Reference | None:
        """The model in TensorFlow on one CPU thread; None if it is not installed."""
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

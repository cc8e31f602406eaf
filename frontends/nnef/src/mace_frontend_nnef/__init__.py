"""The NNEF frontend: reads the Neural Network Exchange Format of the Khronos Group, version 1.0."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from mace_core.api import Files, Frontend, PortNames, Reference
from mace_core.deployment import Model
from mace_core.hookspecs import hookimpl
from mace_core.ir import Graph
from mace_core.ops.op import Op
from mace_frontend_nnef.folder import GRAPH


class Nnef(Frontend):
    """NNEF models: a folder with `graph.nnef` and a `.dat` file for each variable."""

    name = "nnef"
    suffixes = (".nnef",)
    order = "NCHW"

    def load(self, files: Files, model: Model, ops: Mapping[str, Op]) -> Graph:
        """Read the model; `model.inputs` may give its inputs other shapes, in NNEF's order."""
        from mace_frontend_nnef.load import load

        return load(files, model, ops)

    def claims(self, file: Path) -> bool:
        """A description, or the folder that it lies in."""
        return super().claims(file) or (file / GRAPH).is_file()

    def port_names(self, files: Files) -> PortNames:
        """The model's own inputs and outputs."""
        from mace_frontend_nnef.source import read

        graph = read(files).graph
        return tuple(graph.inputs), tuple(graph.outputs)

    def dependencies(self, files: Files) -> Files:
        """The description, and every file of variables in its folder."""
        folders = {file if file.is_dir() else file.parent for file in files}
        beside = (path for folder in sorted(folders) for path in sorted(folder.rglob("*.dat")))
        return (*(file / GRAPH if file.is_dir() else file for file in files), *beside)

    def reference(self, files: Files, model: Model) -> Reference:
        """The model computed by numpy as the specification defines its operations."""
        from mace_frontend_nnef.reference import reference

        return reference(files, model)


@hookimpl
def mace_frontends() -> Iterable[Frontend]:
    """Offer NNEF."""
    return (Nnef(),)

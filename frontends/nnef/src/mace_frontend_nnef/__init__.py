"""Reads NNEF 1.0, the Neural Network Exchange Format of the Khronos Group."""

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
    """Reads NNEF models: folders with `graph.nnef` and a `.dat` file for each variable."""

    name = "nnef"
    suffixes = (".nnef",)
    order = "NCHW"
    is_native = False

    def load(self, files: Files, model: Model, ops: Mapping[str, Op]) -> Graph:
        """Return the model as a graph; `model.inputs` may state other shapes, in NNEF's order of axes."""
        from mace_frontend_nnef.load import load

        return load(files, model, ops)

    def claims(self, file: Path) -> bool:
        """Return whether a file is a description, or the folder of one."""
        return super().claims(file) or (file / GRAPH).is_file()

    def port_names(self, files: Files) -> PortNames:
        """Return the names of the model's own inputs and outputs."""
        from mace_frontend_nnef.source import read

        graph = read(files).graph
        return tuple(graph.inputs), tuple(graph.outputs)

    def dependencies(self, files: Files) -> Files:
        """Return the descriptions and every file of variables in their folders."""
        descriptions = [file / GRAPH if file.is_dir() else file for file in files]
        variables: list[Path] = []
        for folder in sorted({description.parent for description in descriptions}):
            # All of them: a build system asks before a description is read, which says what is needed.
            variables += sorted(folder.rglob("*.dat"))
        return (*descriptions, *variables)

    def reference(self, files: Files, model: Model) -> Reference:
        """Return the model computed by numpy, as the specification defines its operations."""
        from mace_frontend_nnef.reference import reference

        return reference(files, model)


@hookimpl
def mace_frontends() -> Iterable[Frontend]:
    """Offer NNEF."""
    return (Nnef(),)

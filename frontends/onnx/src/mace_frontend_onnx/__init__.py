"""The ONNX frontend: reads `.onnx` files of operator sets 7 and newer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mace_core.api import Files, Frontend, PortNames, Reference
from mace_core.deployment import Model
from mace_core.hookspecs import hookimpl
from mace_core.ir import Array, Graph
from mace_core.ops.op import Op


class Onnx(Frontend):
    """ONNX models, weights inside the file or beside it."""

    name = "onnx"
    suffixes = (".onnx",)
    order = "NCHW"
    fixes_inputs = True
    needs = "mace-frontend-onnx[reference]"

    def load(self, files: Files, model: Model, ops: Mapping[str, Op]) -> Graph:
        """Read the model; shapes that the file leaves open come from `model.inputs`, in ONNX's order."""
        from mace_frontend_onnx.load import load

        return load(files, model, ops)

    def port_names(self, files: Files) -> PortNames:
        """The model's own inputs and outputs."""
        from mace_frontend_onnx.boundary import declared
        from mace_frontend_onnx.source import read

        return declared(read(files[0]))

    def dependencies(self, files: Files) -> Files:
        """The model file, and those that hold its weights."""
        from mace_frontend_onnx.outside import data_files

        return (*files, *data_files(files[0]))

    def reference(self, files: Files, model: Model) -> Reference | None:
        """The model in ONNX Runtime on one CPU thread; None if it is not installed."""
        from mace_frontend_onnx.reference import reference

        return reference(files, model)

    def starts(self, files: Files, model: Model) -> Mapping[str, Array]:
        """Return the initializers that the file has for inputs, which are their values where nobody gives others."""
        from mace_frontend_onnx.load import default_inputs

        return default_inputs(files, model)


@hookimpl
def mace_frontends() -> Iterable[Frontend]:
    """Offer ONNX."""
    return (Onnx(),)

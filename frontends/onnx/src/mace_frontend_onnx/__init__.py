"""The ONNX frontend: reads `.onnx` files of operator sets 7 and newer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mace_core.api import Files, Frontend, PortNames, Reference
from mace_core.deployment import Model
from mace_core.hookspecs import hookimpl
from mace_core.ir import Array, Graph
from mace_core.ops.op import Op

# The methods import what they need when they run: `mace` loads every frontend, and onnx takes half a second.


class Onnx(Frontend):
    """ONNX models, with weights inside the file or beside it."""

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
        """Return the names of the model's own inputs and outputs."""
        from mace_frontend_onnx.model_file import read

        file = read(files[0])
        return tuple(file.inputs), tuple(file.outputs)

    def dependencies(self, files: Files) -> Files:
        """Return the model file, and the files that hold its weights."""
        from mace_frontend_onnx.external_data import data_files

        return (*files, *data_files(files[0]))

    def reference(self, files: Files, model: Model) -> Reference | None:
        """Return the model in ONNX Runtime on one CPU thread; None if it is not installed."""
        from mace_frontend_onnx.reference import reference

        return reference(files, model)

    def fast_reference(self, files: Files, model: Model) -> Reference | None:
        """Return the model in ONNX Runtime on one CPU thread, quantized layers always in integers."""
        from mace_frontend_onnx.reference import FAST, reference

        return reference(files, model, FAST)

    def starts(self, files: Files, model: Model) -> Mapping[str, Array]:
        """Return the initializers of inputs, which are their values where the user states no others."""
        from mace_frontend_onnx.load import default_inputs

        return default_inputs(files, model)


@hookimpl
def mace_frontends() -> Iterable[Frontend]:
    """Offer ONNX."""
    return (Onnx(),)

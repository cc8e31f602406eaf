"""The TensorFlow Lite frontend: reads `.tflite` files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mace_core.api import Files, Frontend, PortNames, Reference
from mace_core.deployment import Model
from mace_core.hookspecs import hookimpl
from mace_core.ir import Graph
from mace_core.ops.op import Op


class TfLite(Frontend):
    """TensorFlow Lite models."""

    name = "tflite"
    suffixes = (".tflite",)
    order = "NHWC"
    needs = "mace-frontend-tflite[reference]"

    def load(self, files: Files, model: Model, ops: Mapping[str, Op]) -> Graph:
        """Read the model; dimensions that the file leaves open come from `model.inputs`."""
        from mace_frontend_tflite.load import load

        return load(files, model, ops)

    def port_names(self, files: Files) -> PortNames:
        """Return the names of the model's own inputs and outputs."""
        from mace_frontend_tflite.boundary import port_names
        from mace_frontend_tflite.source import read

        return port_names(read(files[0]))

    def reference(self, files: Files, model: Model) -> Reference | None:
        """Return the model in LiteRT's reference kernels; None if LiteRT is not installed."""
        from mace_frontend_tflite.reference import reference

        return reference(files, model)

    def fast_reference(self, files: Files, model: Model) -> Reference | None:
        """Return the model in LiteRT's fastest kernels, those of XNNPACK; None if LiteRT is not installed."""
        from mace_frontend_tflite.reference import reference

        return reference(files, model, plain=False)

    def recurrent(self, files: Files, model: Model) -> Reference | None:
        """Return the model in LiteRT's reference kernels, which keep its states from call to call.

        None if LiteRT is not installed.
        """
        from mace_frontend_tflite.reference import recurrent_reference

        return recurrent_reference(files, model)


@hookimpl
def mace_frontends() -> Iterable[Frontend]:
    """Offer TensorFlow Lite."""
    return (TfLite(),)

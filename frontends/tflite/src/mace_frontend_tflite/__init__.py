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
        """The model's own inputs and outputs."""
        from mace_frontend_tflite.boundary import declared
        from mace_frontend_tflite.source import read

        return declared(read(files[0]))

    def reference(self, files: Files, model: Model) -> Reference | None:
        """The model in LiteRT's plain kernels; None if it is not installed."""
        from mace_frontend_tflite.reference import reference

        return reference(files, model)

    def fast_reference(self, files: Files, model: Model) -> Reference | None:
        """The model in LiteRT's fastest kernels, those of XNNPACK; None if it is not installed."""
        from mace_frontend_tflite.reference import reference

        return reference(files, model, plain=False)

    def recurrent(self, files: Files, model: Model) -> Reference | None:
        """Return the model in LiteRT's plain kernels, its states kept from call to call.

        None if LiteRT is not installed.
        """
        from mace_frontend_tflite.reference import recurrent

        return recurrent(files, model)


@hookimpl
def mace_frontends() -> Iterable[Frontend]:
    """Offer TensorFlow Lite."""
    return (TfLite(),)

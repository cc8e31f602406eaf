"""The Caffe frontend: reads `.prototxt` files with their `.caffemodel`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mace_core.api import Files, Frontend, PortNames, Reference
from mace_core.deployment import Model
from mace_core.hookspecs import hookimpl
from mace_core.ir import Graph
from mace_core.ops.op import Op


class Caffe(Frontend):
    """Caffe networks."""

    name = "caffe"
    suffixes = (".prototxt", ".caffemodel")
    order = "NCHW"
    needs = "mace-frontend-caffe[reference]"

    def load(self, files: Files, model: Model, ops: Mapping[str, Op]) -> Graph:
        """Read the network; `model.inputs` may give its inputs other shapes, in Caffe's order."""
        from mace_frontend_caffe.load import load

        return load(files, model, ops)

    def port_names(self, files: Files) -> PortNames:
        """The model's own inputs and outputs."""
        from mace_frontend_caffe.load import port_names

        return port_names(files)

    def reference(self, files: Files, model: Model) -> Reference | None:
        """The network in OpenCV's `dnn` module; None if it is not installed."""
        from mace_frontend_caffe.reference import reference

        return reference(files, model)


@hookimpl
def mace_frontends() -> Iterable[Frontend]:
    """Offer Caffe."""
    return (Caffe(),)

"""The PyTorch frontend: reads TorchScript archives and exported programs with torch, through ONNX."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mace_core.api import Files, Frontend, PortNames, Reference
from mace_core.deployment import Model
from mace_core.hookspecs import hookimpl
from mace_core.ir import Graph
from mace_core.ops.op import Op


class PyTorch(Frontend):
    """PyTorch models."""

    name = "pytorch"
    suffixes = (".pt", ".pt2", ".pth")
    order = "NCHW"
    needs = "mace-frontend-pytorch[torch]"

    def load(self, files: Files, model: Model, ops: Mapping[str, Op]) -> Graph:
        """Export the model to ONNX and read that.

        A TorchScript archive takes the shapes of its inputs from `model.inputs`.
        """
        from mace_frontend_pytorch.load import load

        return load(files, model, ops)

    def port_names(self, files: Files) -> PortNames:
        """Return the names of the model's own inputs and outputs."""
        from mace_frontend_pytorch.exports import CachedModel
        from mace_frontend_pytorch.load import name_ports

        inputs, outputs = name_ports(CachedModel(files[0]), Model("", files))
        return tuple(inputs), tuple(outputs)

    def reference(self, files: Files, model: Model) -> Reference | None:
        """Return the model in PyTorch itself on one thread; None if it is not installed."""
        from mace_frontend_pytorch.reference import reference

        return reference(files, model)

    def recurrent(self, files: Files, model: Model) -> Reference | None:
        """Return the same, which keeps the buffers that a run changes from call to call."""
        from mace_frontend_pytorch.reference import reference

        return reference(files, model, keeps_states=True)


@hookimpl
def mace_frontends() -> Iterable[Frontend]:
    """Offer PyTorch."""
    return (PyTorch(),)

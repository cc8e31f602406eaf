"""The Keras frontend: reads `.keras` archives and `.h5` files of whole models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mace_core.api import Files, Frontend, PortNames, Reference
from mace_core.deployment import Model
from mace_core.hookspecs import hookimpl
from mace_core.ir import Graph
from mace_core.ops.op import Op


class Keras(Frontend):
    """Keras models."""

    name = "keras"
    suffixes = (".h5", ".keras", ".hdf5")
    order = "NHWC"
    needs = "mace-frontend-keras[reference]"

    def load(self, files: Files, model: Model, ops: Mapping[str, Op]) -> Graph:
        """Read the model; `model.inputs` may give its inputs other shapes."""
        from mace_frontend_keras.load import load

        return load(files, model, ops)

    def port_names(self, files: Files) -> PortNames:
        """Return the names of the model's own inputs and outputs."""
        from mace_frontend_keras.load import describe_model
        from mace_frontend_keras.source import read

        _, network = describe_model(read(files[0]))
        return tuple(i.name for i in network.inputs), tuple(network.outputs)

    def reference(self, files: Files, model: Model) -> Reference | None:
        """Return the model in Keras itself; None if Keras is not installed."""
        from mace_frontend_keras.reference import reference

        return reference(files, model)

    def recurrent(self, files: Files, model: Model) -> Reference | None:
        """Return the model in Keras itself, its stateful layers going on from call to call.

        None if Keras is not installed.
        """
        from mace_frontend_keras.reference import reference

        return reference(files, model, keeps_states=True)


@hookimpl
def mace_frontends() -> Iterable[Frontend]:
    """Offer Keras."""
    return (Keras(),)

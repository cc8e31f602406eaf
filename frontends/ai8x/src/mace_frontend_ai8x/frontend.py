"""Declares the frontend; what reads a model is imported once a model is read.

Every start of `mace` imports this module, and `load` takes another 0.2 s of processor time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from mace_core.api import Files, Frontend, PortNames, Reference
from mace_core.deployment import Model
from mace_core.ir import Graph
from mace_core.ops.op import Op


class Ai8x(Frontend):
    """Reads descriptions (YAML) and checkpoints of the vendor's tools ai8x-training and ai8x-synthesis."""

    name = "ai8x"
    suffixes = (".yaml", ".yml")
    order: ClassVar[str] = "NCHW"
    is_native: ClassVar[bool] = False

    def load(self, files: Files, model: Model, ops: Mapping[str, Op]) -> Graph:
        """Return the network as integer arithmetic: i8 in, i8 or i32 out, in PyTorch's order of axes.

        The graph's origin is a `DescribedModel`, which knows where the description places each layer: targets
        for the vendor's accelerators follow it, other targets ignore it.
        """
        from mace_frontend_ai8x.load import load_graph

        return load_graph(model)

    def port_names(self, files: Files) -> PortNames:
        """Return the one input; the outputs are known only once the whole network is read."""
        return ("input",), ()

    def reference(self, files: Files, model: Model) -> Reference:
        """Return the layers computed by the accelerator's arithmetic, in numpy."""
        from mace_frontend_ai8x.load import make_reference

        return make_reference(model)

"""The maker's own files as a model: a network description (YAML) and the checkpoint with its weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np

from mace_core.api import Files, Frontend, Reference
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Array, Graph
from mace_core.ops.op import Op
from mace_core.run.files import read_samples
from mace_target_max78000.arithmetic import outputs
from mace_target_max78000.checkpoint import load_checkpoint
from mace_target_max78000.description import read_description
from mace_target_max78000.device import MAX78000, Device
from mace_target_max78000.graph import as_graph, delivered
from mace_target_max78000.network import Network
from mace_target_max78000.options import Options


class Ai8x(Frontend):
    """Descriptions and checkpoints of ai8x-training and ai8x-synthesis; the graph computes what the accelerator computes."""

    name = "ai8x"
    suffixes = (".yaml", ".yml")
    order: ClassVar[str] = "NCHW"

    def load(self, files: Files, model: Model, ops: Mapping[str, Op]) -> Graph:
        """The network as integer arithmetic: i8 in, i8 or i32 out, in PyTorch's order of axes."""
        return as_graph(read_network(model, Options(), MAX78000))

    def reference(self, files: Files, model: Model) -> Reference:
        """The layers by the accelerator's arithmetic, in numpy."""
        network = read_network(model, Options(), MAX78000)

        def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
            (data,) = inputs.values()
            fed = network.fed(np.asarray(data, np.int64).reshape(network.sample.shape))
            found = outputs(fed, Options(), MAX78000)
            pairs = zip(network.layers, found, strict=True)
            return {layer.name: delivered(layer, value) for layer, value in pairs if layer.output}

        return run


def read_network(model: Model, options: Options, device: Device) -> Network:
    """The network of a model's two files, with the first sample of its validation data; random data where there is none.

    MaceError with all faults of the description.
    """
    if len(model.files) != 2:
        raise MaceError(f"model {model.name!r}", "has no checkpoint", "name the .pth.tar file under weight_file_path")
    description, checkpoint = model.files
    return read_description(description, load_checkpoint(checkpoint), _sample(model), options, device)


def _sample(model: Model) -> Array | Path | None:
    data = model.inputs[0].data if model.inputs else ()
    return read_samples(data[0]) if data else None

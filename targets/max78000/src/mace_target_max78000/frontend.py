"""The maker's own files as a model: a network description (YAML) and the checkpoint with its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from mace_core.api import Files, Frontend, PortNames, Reference
from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.ir import Array, Graph
from mace_core.ops.op import Op
from mace_core.run.files import read_samples
from mace_target_max78000.arithmetic import outputs
from mace_target_max78000.checkpoint import Checkpoint, Form, Settings, load_checkpoint
from mace_target_max78000.description import read_description
from mace_target_max78000.device import Device
from mace_target_max78000.graph import as_graph, output_tensors
from mace_target_max78000.network import Network
from mace_target_max78000.options import Options


class Ai8x(Frontend):
    """Descriptions and checkpoints of ai8x-training and ai8x-synthesis; the graph computes what the accelerator computes."""

    name = "ai8x"
    suffixes = (".yaml", ".yml")
    order: ClassVar[str] = "NCHW"

    def load(self, files: Files, model: Model, ops: Mapping[str, Op]) -> Graph:
        """The network as integer arithmetic: i8 in, i8 or i32 out, in PyTorch's order of axes."""
        return as_graph(read_network(model, Options()))

    def port_names(self, files: Files) -> PortNames:
        """Its one input; the outputs are known with the network alone."""
        return ("input",), ()

    def reference(self, files: Files, model: Model) -> Reference:
        """The layers by the accelerator's arithmetic, in numpy."""
        network = read_network(model, Options())

        def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
            (data,) = inputs.values()
            fed = replace(network, sample=np.asarray(data, np.int64).reshape(network.sample.shape))
            found = [v for layer, v in zip(network.layers, outputs(fed, Options()), strict=True) if layer.output]
            described = zip(output_tensors(network), found, strict=True)
            return {t.name: value.reshape(t.shape).astype(t.dtype.numpy) for t, value in described}

        return Reference(run, "the accelerator's arithmetic in numpy")


def read_network(model: Model, options: Options, device: Device | None = None) -> Network:
    """The network of a model's two files, with the first sample of its validation data; random data where only its shape is stated.

    device: what this part cannot compute is among the faults.  MaceError with all faults of the description.
    """
    if len(model.files) != 2:
        raise MaceError(f"model {model.name!r}", "has no checkpoint", "name the .pth.tar file under weight_file_path")
    description, checkpoint = model.files
    return read_description(description, parameters_of(checkpoint, options), _sample(model), options, device)


def parameters_of(checkpoint: Path, options: Options) -> Callable[[Sequence[Form]], Checkpoint]:
    """What reads a checkpoint's parameters once it is known what the description's layers need.

    A checkpoint that is not quantized gets the bits that the description states. Options may skip its first layers.
    MaceError: it has no more layers than are skipped.
    """

    def read(forms: Sequence[Form]) -> Checkpoint:
        stated = [form.stated for form in forms]
        while stated and stated[-1] is None:  # a description may have more layers than the checkpoint, which is told better later
            stated.pop()
        skipped = options.skip_checkpoint_layers
        found = load_checkpoint(checkpoint, Settings(bits=[None] * skipped + stated), options.ignore_bn)
        if skipped and skipped >= len(found.layers):
            problem = f"has {len(found.layers)} layers with weights, the first {skipped} are to be skipped"
            raise MaceError(checkpoint, problem, "lower skip-checkpoint-layers")
        return replace(found, layers=found.layers[skipped:])

    return read


def _sample(model: Model) -> Array:
    port = model.inputs[0] if model.inputs else Port("input")
    if port.data:
        return read_samples(port.data[0])
    if port.shape is None:
        remedy = "name a .npy file under validation_inputs_data, or the shape under input_shapes, of the input_tensors `input`"
        raise MaceError(f"model {model.name!r}", "neither a sample nor the shape of the input is stated", remedy)
    return np.random.default_rng(0).integers(-128, 127, port.shape[1:], endpoint=True)

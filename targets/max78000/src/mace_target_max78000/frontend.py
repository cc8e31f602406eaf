"""The maker's own files as a model: a network description (YAML) and the checkpoint with its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from mace_target_max78000.device import DEVICE_NAMES, Device, device_named
from mace_target_max78000.graph import as_any_graph, output_tensors
from mace_target_max78000.network import Network
from mace_target_max78000.options import Options

READING_OPTIONS = ("skip_yaml_layers", "skip_checkpoint_layers", "ignore_bn")
"""Options of the parts that say which layers of the files are the network."""


class Ai8x(Frontend):
    """Descriptions and checkpoints of ai8x-training and ai8x-synthesis.

    The graph computes what the accelerator computes.
    """

    name = "ai8x"
    suffixes = (".yaml", ".yml")
    order: ClassVar[str] = "NCHW"

    def load(self, files: Files, model: Model, ops: Mapping[str, Op]) -> Graph:
        """Return the network as integer arithmetic: i8 in, i8 or i32 out, in PyTorch's order of axes.

        The graph's origin is the `DescribedModel`, whose placement only the parts that it was written for can
        follow.
        """
        described, options = DescribedModel.of(model), _reading_options(model)
        try:
            network = described.network(options)
        except MaceError:
            _tell_with_limits(described, model, options)
            raise
        return replace(as_any_graph(network), origin=described)

    def port_names(self, files: Files) -> PortNames:
        """Its one input; the outputs are known with the network alone."""
        return ("input",), ()

    def reference(self, files: Files, model: Model) -> Reference:
        """The layers by the accelerator's arithmetic, in numpy."""
        network = DescribedModel.of(model).network(_reading_options(model))

        def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
            (data,) = inputs.values()
            fed = replace(network, sample=np.asarray(data, np.int64).reshape(network.sample.shape))
            found = [
                v for layer, v in zip(network.layers, outputs(fed, Options()), strict=True) if layer.output
            ]
            described = zip(output_tensors(network), found, strict=True)
            return {t.name: value.reshape(t.shape).astype(t.dtype.numpy) for t, value in described}

        return Reference(run, "the accelerator's arithmetic in numpy")


@dataclass(frozen=True, eq=False)
class DescribedModel:
    """Holds the files of a model and a sample; how they are read depends on the options of who asks.

    sample: the first of the validation data; random data where only its shape is stated.
    """

    description: Path
    checkpoint: Path
    sample: Array

    @classmethod
    def of(cls, model: Model) -> DescribedModel:
        """Return what the deployment file names.

        MaceError where it names no checkpoint, or no shape of the input.
        """
        if len(model.files) != 2:
            raise MaceError(
                f"model {model.name!r}", "has no checkpoint", "name the .pth.tar file under weight_file_path"
            )
        return cls(*model.files, _sample(model))

    def network(self, options: Options, device: Device | None = None) -> Network:
        """Read the network.

        device: what this part cannot compute is among the faults.  MaceError with all faults of the
        description.
        """
        return read_description(
            self.description, parameters_of(self.checkpoint, options), self.sample, options, device
        )


def _reading_options(model: Model) -> Options:
    """Return those options of the deployment file that say which layers of the files are the network, whoever computes it."""
    stated = model.keys.get("target_options", {})
    assert isinstance(stated, Mapping)
    for name in (*model.runtimes, *map(str.lower, DEVICE_NAMES)):
        if name.upper() in DEVICE_NAMES and name in stated:
            asked = {
                key: value for key, value in stated[name].items() if key.replace("-", "_") in READING_OPTIONS
            }
            return Options.of(asked, f"model {model.name!r}: target_options: {name}")
    return Options()


def _tell_with_limits(described: DescribedModel, model: Model, options: Options) -> None:
    """Raise the faults of a description together with what the parts that `runtime:` names cannot compute."""
    for name in model.runtimes:
        if name.upper() in DEVICE_NAMES:
            described.network(options, device_named(name))


def parameters_of(checkpoint: Path, options: Options) -> Callable[[Sequence[Form]], Checkpoint]:
    """What reads a checkpoint's parameters once it is known what the description's layers need.

    A checkpoint that is not quantized gets the bits that the description states. Options may skip its first
    layers.
    MaceError: it has no more layers than are skipped.
    """

    def read(forms: Sequence[Form]) -> Checkpoint:
        stated = [form.stated for form in forms]
        # A description may have more layers than the checkpoint, which is told better later.
        while stated and stated[-1] is None:
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
        raise MaceError(
            f"model {model.name!r}", "neither a sample nor the shape of the input is stated", remedy
        )
    return np.random.default_rng(0).integers(-128, 127, port.shape[1:], endpoint=True)

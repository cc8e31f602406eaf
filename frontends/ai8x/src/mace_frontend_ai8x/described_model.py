"""Holds the files of a described network until a target has it read with its own options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_core.run.files import read_samples
from mace_frontend_ai8x.checkpoint import Checkpoint, Form, Settings, load_checkpoint
from mace_frontend_ai8x.description import AddLimitFaults, read_description
from mace_frontend_ai8x.network import Network
from mace_frontend_ai8x.options import NetworkOptions


@dataclass(frozen=True, eq=False)
class DescribedModel:
    """The files of a described network, which a graph carries as its origin.

    A target for the vendor's accelerators reads them again with its own options, and places every layer where
    the description says.
    sample: the first of the validation data; random data where the deployment file states only its shape.
    """

    description: Path
    checkpoint: Path
    sample: Array

    @classmethod
    def of(cls, model: Model) -> DescribedModel:
        """Return the files that a model of the deployment file names.

        MaceError if it names no checkpoint, or neither data nor the shape of the input.
        """
        if len(model.files) != 2:
            raise MaceError(
                f"model {model.name!r}", "has no checkpoint", "name the .pth.tar file under weight_file_path"
            )
        return cls(*model.files, _read_sample(model))

    def network(self, options: NetworkOptions, add_limit_faults: AddLimitFaults | None = None) -> Network:
        """Return the network: layers, and where the description places them.

        add_limit_faults: adds what the target's chip cannot compute, so that one message has all faults.
        MaceError with all faults of the description.
        """
        parameters = parameter_reader(self.checkpoint, options)
        return read_description(self.description, parameters, self.sample, options, add_limit_faults)


def parameter_reader(checkpoint: Path, options: NetworkOptions) -> Callable[[Sequence[Form]], Checkpoint]:
    """Return a function that reads a checkpoint's parameters once it is known what the layers need.

    A checkpoint that is not quantized gets the bits that the description states. Options may skip its first
    layers. The function raises MaceError if the checkpoint has no more layers than are skipped.
    """

    def read(forms: Sequence[Form]) -> Checkpoint:
        bits = [form.stated for form in forms]
        # The description may have more layers than the checkpoint. Bits of such layers would be a fault of
        # their own here; the reader of the description reports the missing layers by their names.
        while bits and bits[-1] is None:
            bits.pop()
        skipped = options.skip_checkpoint_layers
        parameters = load_checkpoint(checkpoint, Settings(bits=[None] * skipped + bits), options.ignore_bn)
        count = len(parameters.layers)
        if skipped and skipped >= count:
            problem = f"has {count} layers with weights, the first {skipped} are to be skipped"
            raise MaceError(checkpoint, problem, "lower skip-checkpoint-layers")
        return replace(parameters, layers=parameters.layers[skipped:])

    return read


def _read_sample(model: Model) -> Array:
    port = model.inputs[0] if model.inputs else Port("input")
    if port.data:
        return read_samples(port.data[0])
    if port.shape is None:
        remedy = (
            "name a .npy file under validation_inputs_data, or the shape under input_shapes, "
            "of the input_tensors `input`"
        )
        problem = "neither a sample nor the shape of the input is stated"
        raise MaceError(f"model {model.name!r}", problem, remedy)
    # A fixed seed: the sample is a part of the generated program, which must not change from build to build.
    return np.random.default_rng(0).integers(-128, 127, port.shape[1:], endpoint=True)

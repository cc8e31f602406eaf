"""Reads the vendor's own files as a model: a network description (YAML) and the checkpoint with its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np

from mace_core.api import Files, Frontend, PortNames, Reference
from mace_core.deployment import Model, Port
from mace_core.errors import MaceError
from mace_core.ir import Array, Graph
from mace_core.ops.op import Op
from mace_core.run.files import read_samples
from mace_frontend_ai8x.arithmetic import outputs
from mace_frontend_ai8x.checkpoint import Checkpoint, Form, Settings, load_checkpoint
from mace_frontend_ai8x.description import AddLimitFaults, read_description
from mace_frontend_ai8x.graph import as_any_graph, output_tensors
from mace_frontend_ai8x.network import Network
from mace_frontend_ai8x.options import NetworkOptions, names_files
from mace_frontend_ai8x.targets import list_described_targets, load_described_target


class Ai8x(Frontend):
    """Reads descriptions and checkpoints of ai8x-training and ai8x-synthesis.

    The graph computes what the accelerator computes.
    """

    name = "ai8x"
    suffixes = (".yaml", ".yml")
    order: ClassVar[str] = "NCHW"

    def load(self, files: Files, model: Model, ops: Mapping[str, Op]) -> Graph:
        """Return the network as integer arithmetic: i8 in, i8 or i32 out, in PyTorch's order of axes.

        The graph's origin is a `DescribedModel`, the hint of where each layer is placed: targets for the
        vendor's accelerators follow it, others pass it over.
        """
        described, options = DescribedModel.of(model), read_file_options(model)
        try:
            network = described.network(options)
        except MaceError:
            _raise_with_limits(described, model, options)
            raise
        return replace(as_any_graph(network), origin=described)

    def port_names(self, files: Files) -> PortNames:
        """Return its one input; the outputs are known with the network alone."""
        return ("input",), ()

    def reference(self, files: Files, model: Model) -> Reference:
        """Return the layers by the accelerator's arithmetic, in numpy."""
        network = DescribedModel.of(model).network(read_file_options(model))

        def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
            (data,) = inputs.values()
            sample = np.asarray(data, np.int64).reshape(network.sample.shape)
            computed = outputs(replace(network, sample=sample), NetworkOptions())
            results = [v for layer, v in zip(network.layers, computed, strict=True) if layer.output]
            tensors = zip(output_tensors(network), results, strict=True)
            return {t.name: value.reshape(t.shape).astype(t.dtype.numpy) for t, value in tensors}

        return Reference(run, "the accelerator's arithmetic in numpy")


@dataclass(frozen=True, eq=False)
class DescribedModel:
    """A placement hint: the network of a description, as the options of the target that asks have it read.

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
        return cls(*model.files, _read_sample(model))

    def network(self, options: NetworkOptions, add_limit_faults: AddLimitFaults | None = None) -> Network:
        """Return the network: layers, and where the description places them.

        add_limit_faults: adds what the target's chip cannot compute, so that one message tells of all faults.
        MaceError with all faults of the description.
        """
        return read_description(
            self.description,
            parameters_of(self.checkpoint, options),
            self.sample,
            options,
            add_limit_faults,
        )


def read_file_options(model: Model) -> NetworkOptions:
    """Return those options of the deployment file that say which layers of the files are the network.

    They stand among the options of the target that the description was written for, and hold whichever target
    computes the network.  Those of a target that `runtime:` names come first.
    """
    stated = model.keys.get("target_options", {})
    assert isinstance(stated, Mapping)
    installed = list_described_targets()
    for name in (*model.runtimes, *sorted(stated)):
        if name in stated and (name in installed or names_files(stated[name])):
            return NetworkOptions.of_files(stated[name], f"model {model.name!r}: target_options: {name}")
    return NetworkOptions()


def _raise_with_limits(described: DescribedModel, model: Model, options: NetworkOptions) -> None:
    """Raise the faults of a description together with what the targets that `runtime:` names cannot compute."""
    for name in model.runtimes:
        target = load_described_target(name)
        if target is not None:
            described.network(options, partial(target.add_limit_faults, options))


def parameters_of(checkpoint: Path, options: NetworkOptions) -> Callable[[Sequence[Form]], Checkpoint]:
    """Return what reads a checkpoint's parameters once it is known what the description's layers need.

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


def _read_sample(model: Model) -> Array:
    port = model.inputs[0] if model.inputs else Port("input")
    if port.data:
        return read_samples(port.data[0])
    if port.shape is None:
        remedy = (
            "name a .npy file under validation_inputs_data, or the shape under input_shapes, "
            "of the input_tensors `input`"
        )
        raise MaceError(
            f"model {model.name!r}", "neither a sample nor the shape of the input is stated", remedy
        )
    return np.random.default_rng(0).integers(-128, 127, port.shape[1:], endpoint=True)

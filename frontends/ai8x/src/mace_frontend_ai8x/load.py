"""Reads a description and its checkpoint as a graph, and as the numpy reference of that graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from mace_core.api import Reference
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Array, Graph
from mace_frontend_ai8x.arithmetic import outputs
from mace_frontend_ai8x.described_model import DescribedModel
from mace_frontend_ai8x.graph import as_any_graph, output_tensors
from mace_frontend_ai8x.options import NetworkOptions, names_files
from mace_frontend_ai8x.targets import list_described_targets, load_described_target


def load_graph(model: Model) -> Graph:
    """Return the network of a model as a graph, with the `DescribedModel` as its origin."""
    described, options = DescribedModel.of(model), read_file_options(model)
    try:
        network = described.network(options)
    except MaceError:
        # Only a faulty description is read a second time, so that a good one costs nothing.
        _raise_with_limits(described, model, options)
        raise
    return replace(as_any_graph(network), origin=described)


def make_reference(model: Model) -> Reference:
    """Return the layers of a model computed by the accelerator's arithmetic."""
    network = DescribedModel.of(model).network(read_file_options(model))

    def run(inputs: Mapping[str, Array]) -> dict[str, Array]:
        (data,) = inputs.values()
        sample = np.asarray(data, np.int64).reshape(network.sample.shape)
        computed = outputs(replace(network, sample=sample), NetworkOptions())
        results = [value for layer, value in zip(network.layers, computed, strict=True) if layer.output]
        tensors = zip(output_tensors(network), results, strict=True)
        return {
            tensor.name: value.reshape(tensor.shape).astype(tensor.dtype.numpy) for tensor, value in tensors
        }

    return Reference(run, "the accelerator's arithmetic in numpy")


def read_file_options(model: Model) -> NetworkOptions:
    """Return those options of the deployment file that say which layers of the files are the network.

    They stand among the options of the target that the description was written for, and hold for every target
    that computes the network: without them the files are another network, or none.
    """
    stated = model.keys.get("target_options", {})
    assert isinstance(stated, Mapping)
    installed = list_described_targets()
    # Options for several chips may contradict each other; those of a target in `runtime:` come first.
    for name in (*model.runtimes, *sorted(stated)):
        if name in stated and (name in installed or names_files(stated[name])):
            return NetworkOptions.of_files(stated[name], f"model {model.name!r}: target_options: {name}")
    return NetworkOptions()


def _raise_with_limits(described: DescribedModel, model: Model, options: NetworkOptions) -> None:
    """Raise the faults of a description together with what the targets in `runtime:` cannot compute.

    A frontend does not ask targets otherwise: this spares the user a second round, in which a corrected
    description turns out not to fit the chip.
    """
    for name in model.runtimes:
        target = load_described_target(name)
        if target is not None:
            described.network(options, partial(target.add_limit_faults, options))

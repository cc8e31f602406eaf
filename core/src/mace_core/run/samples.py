"""Arrays that people give, held against the tensors that they are for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mace_core.deployment import Port
from mace_core.errors import MaceError
from mace_core.ir import Array, Shape, Tensor
from mace_core.run.files import read_array

Samples = Mapping[str, Array]
"""Arrays by tensor name, each with a leading axis of samples."""


def fit_inputs(tensors: Sequence[Tensor], samples: Samples) -> dict[str, Array]:
    """The samples of every input as [samples, *shape], in its own element type.

    An array may have exactly the input's shape (one sample), a leading axis of samples, or that axis in place
    of a batch of one.
    Raises one MaceError with every fault: no data, data for nothing, another type or shape, different numbers
    of samples.
    """
    faults = [
        f"input {name!r}: the model has no such input; it has {_names(tensors)}"
        for name in samples
        if name not in _check_names(tensors)
    ]
    fitted: dict[str, Array] = {}
    for tensor in tensors:
        if tensor.name not in samples:
            faults.append(f"input {tensor.name!r}: no data given; give data for each of {_names(tensors)}")
            continue
        try:
            fitted[tensor.name] = fit(tensor, samples[tensor.name])
        except MaceError as error:
            faults.append(str(error))
    counts = {name: len(array) for name, array in fitted.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name!r} {count}" for name, count in counts.items())
        faults.append(f"inputs have different numbers of samples: {listed}; give as many for each")
    if faults:
        raise MaceError.of(faults)
    return fitted


def fit(tensor: Tensor, array: Array, side: str = "input") -> Array:
    """The samples of one tensor as [samples, *shape]; MaceError for another element type or shape.

    what: "input"; or "output", of which expected numbers may be of any type.
    """
    place, dtype = f"{side} {tensor.name!r}", tensor.dtype.numpy
    if side == "input" and array.dtype.newbyteorder("=") != dtype:
        problem = f"expected {dtype.name}{list(tensor.shape)}, found {array.dtype.name}{list(array.shape)}"
        raise MaceError(
            place,
            problem,
            f"convert the data: array.astype(numpy.{dtype.name}), or state its type under input_data_types",
        )
    count = samples_in(array.shape, tensor.shape)
    if count is None:
        expected = f"{dtype.name}{list(tensor.shape)}"
        problem = f"expected {expected} for each sample, found {array.dtype.name}{list(array.shape)}"
        raise MaceError(place, problem, "give that shape, with or without a leading axis of samples")
    if side == "input":
        array = np.ascontiguousarray(array, dtype)
    return array.reshape(count, *tensor.shape)


def samples_in(array_shape: Shape, shape: Shape) -> int | None:
    """Return how many samples of a shape an array holds; None if it does not consist of such samples.

    Of [1, 28, 28]: [1, 28, 28] is one, [5, 1, 28, 28] and [5, 28, 28] are five.
    """
    if array_shape == shape:
        return 1
    if array_shape[1:] == shape and array_shape:
        return array_shape[0]
    if shape[:1] == (1,) and array_shape[1:] == shape[1:] and array_shape:
        return array_shape[0]
    return None


def stored_samples(ports: Sequence[Port], tensors: Sequence[Tensor], side: str = "input") -> dict[str, Array]:
    """The validation data that the deployment file names, by tensor, each as [samples, *shape]."""
    stated = {(p.alias or p.name): p for p in ports}
    samples = {}
    for tensor in tensors:
        port = stated.get(tensor.name)
        if port and port.data:
            rounds = [fit(tensor, read_array(file, tensor, (port.name,)), side) for file in port.data]
            samples[tensor.name] = np.concatenate(rounds)
    return samples


def _check_names(tensors: Sequence[Tensor]) -> set[str]:
    return {t.name for t in tensors}


def _names(tensors: Sequence[Tensor]) -> str:
    return ", ".join(repr(t.name) for t in tensors) or "none"

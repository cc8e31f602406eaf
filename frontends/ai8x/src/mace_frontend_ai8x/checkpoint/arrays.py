"""Reads weights and biases from files of numpy arrays, one after the other, as the vendor's tests have them.

Layers without weights have no array.  A layer with narrower weights than its array takes their upper bits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_ai8x.checkpoint.parameters import Checkpoint, LayerParameters

SAVE_AGAIN = "write integers with numpy.save, one array after the other into the same file"

MAX_AXES = 6

HEADER = re.compile(
    rb"\x93NUMPY(\x01\x00..|\x02\x00....)"
    rb"\{'descr': '(?P<dtype>[<>|](i[1248]|u[124]))', 'fortran_order': (?P<fortran>True|False),"
    rb" 'shape': \((?P<shape>[\d, ]{0,120})\), \} *\n",
    re.DOTALL,
)
"""What numpy.save writes before the integers of an array: magic number, version, length and a dictionary."""


@dataclass(frozen=True)
class Form:
    """What a layer with weights needs.

    axes: of its weights: 4 for Conv2d and ConvTranspose2d, 3 for Conv1d, 2 for linear layers.
    bits: of its weights; binary: one bit that stands for -1 and +1.
    transposed: whether it is a transposed convolution, whose arrays are those of the plain convolution that
    the hardware runs.
    stated: the bits that the description asks for; None where it leaves them to the checkpoint.
    """

    axes: int
    bits: int = 8
    binary: bool = False
    transposed: bool = False
    stated: int | None = None


def load_arrays(weights: Path, forms: Sequence[Form], bias: Path | None = None) -> Checkpoint:
    """Read the weights of all layers that have any, in their order.

    An array of one axis more than its layer's weights holds those of several layers.  bias: a file of the
    biases' bytes in the same order.
    MaceError if a file cannot be read or is damaged, or the arrays do not fit the layers.
    """
    # The list is consumed from its front, because one array may hold the weights of several layers.
    arrays, layer_values = _read(weights), []
    for number, form in enumerate(forms):
        if not arrays:
            problem = f"has weights for {number} layers; {len(forms)} layers need them"
            raise MaceError(weights, problem, "add the arrays, or remove layers from the description")
        values = _squeeze(arrays[0], form.axes)
        if values.ndim == form.axes + 1 and len(values):
            arrays[:1] = [values[1:]] if len(values) > 1 else []
            values = values[0]
        elif values.ndim == form.axes:
            del arrays[0]
        else:
            problem = (
                f"array {number} has shape {list(arrays[0].shape)}; the layer's weights have {form.axes} axes"
            )
            raise MaceError(weights, problem, "order the arrays as the layers are")
        # The vendor's arrays are those of the plain convolution that the hardware runs; a model has the
        # kernel of the transposed one: mirrored, with input and output channels exchanged.
        if form.transposed:
            values = values[:, :, ::-1, ::-1].swapaxes(0, 1)
        layer_values.append(_narrow(values, form))
    biases = _read(bias) if bias else []
    unused = [
        f"{path}: the last {count} arrays belong to no layer, and are not used"
        for path, count in ((weights, len(arrays)), (bias, len(biases) - len(forms)))
        if count > 0
    ]
    return Checkpoint(
        notes=tuple(unused),
        layers=tuple(
            LayerParameters(str(i), values, biases[i].ravel() if i < len(biases) else None, form.bits)
            for i, (values, form) in enumerate(zip(layer_values, forms, strict=True))
        ),
    )


def _squeeze(values: Array, axes: int) -> Array:
    """Return the weights of a linear layer without the two axes of a kernel of one element."""
    return values[..., 0, 0] if axes == 2 and values.ndim > 3 and values.shape[-2:] == (1, 1) else values


def _narrow(values: Array, form: Form) -> Array:
    """Return the upper bits of weights that are wider than the layer's; a binary weight is the sign."""
    if form.binary:
        # As the hardware stores it: the bit is the sign, and zero counts as positive.
        return np.where(values < 0, -1, 1)
    return values >> max(0, _bits(values) - form.bits)


def _bits(values: Array) -> int:
    """Return the number of bits that all values fit into; at least 1, for -1 and 0."""
    bounds = int(values.min()), int(values.max())
    # One more for the sign; the complement, because -128 needs no more bits than 127.
    return max((~bound if bound < 0 else bound).bit_length() for bound in bounds) + 1


def _read(path: Path) -> list[Array]:
    """Return all arrays of a file as int64.

    MaceError if it cannot be read, is damaged, or has other arrays than those of 8-bit integers.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise MaceError(
            path, f"cannot be read: {error.strerror}", "name a file of numpy arrays (.npy)"
        ) from None
    arrays = list(_arrays(path, data))
    for number, values in enumerate(arrays):
        if not -128 <= values.min() <= values.max() <= 127:
            raise MaceError(
                path,
                f"array {number} has values from {values.min()} to {values.max()}, wider than 8 bits",
                SAVE_AGAIN,
            )
    return arrays


def _arrays(path: Path, data: bytes) -> Iterator[Array]:
    position = 0
    while position < len(data):
        if not (header := HEADER.match(data, position)):
            raise MaceError(path, f"holds no array of integers at byte {position}", SAVE_AGAIN)
        dtype = np.dtype(header["dtype"].decode())
        shape = [int(n) for n in re.findall(rb"\d+", header["shape"])]
        end = header.end() + prod(shape) * dtype.itemsize
        if end > len(data):
            raise MaceError(path, "is cut off", "copy or download it again")
        if len(shape) > MAX_AXES or not prod(shape):
            raise MaceError(path, f"holds an array of shape {shape}", SAVE_AGAIN)
        values = np.frombuffer(data[header.end() : end], dtype)
        yield values.reshape(shape, order="F" if header["fortran"] == b"True" else "C").astype(np.int64)
        position = end

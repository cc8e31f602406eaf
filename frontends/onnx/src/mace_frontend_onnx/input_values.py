"""Reads `input_values` of the deployment file: inputs of the model that always have the same value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.hints import Dim
from mace_core.importer import refuse_names
from mace_core.ir import Array, DType, Shape
from mace_frontend_onnx.input_shapes import declared_dims, declared_dtype, declared_types
from mace_frontend_onnx.model_file import OnnxFile


def fixed_values(file: OnnxFile, model: Model) -> dict[str, Array]:
    """Return the arrays that inputs of the file always have, in the inputs' own types and shapes.

    Raises MaceError for a name that is no input or is stated as an input as well, and for values that do not
    fit.
    """
    values = model.keys.get("input_values") or {}
    assert isinstance(values, Mapping)
    refuse_names(
        file.name, "input", [name for name in values if name not in file.inputs], file.inputs, file.inputs
    )
    types = declared_types(file.model.graph.input)
    stated = {port.name for port in model.inputs}
    faults, arrays = [], {}
    for name, value in values.items():
        if name in stated:
            text = f"input {name!r} is in input_values and in input_tensors; leave it out of one"
            faults.append(f"{file.name}: {text}")
            continue
        try:
            arrays[name] = _fit_value(value, declared_dtype(types[name]), declared_dims(types[name]))
        except ValueError as error:
            faults.append(f"{file.name}: input_values: {name!r}: {error}")
    if faults:
        raise MaceError.of(faults)
    return arrays


def _fit_value(value: object, dtype: DType, dims: Sequence[Dim] | None) -> Array:
    """Return one number for every element, or a list of a number for each, as an array of an input's shape.

    Raises ValueError for what does not fit.
    """
    is_list = isinstance(value, Sequence)
    text = f"{value!r} is no value of {dtype.numpy.name}; write numbers that the input can hold"
    numbers = np.asarray(value)
    try:
        with np.errstate(all="ignore"):
            array = numbers.astype(dtype.numpy)
    except (OverflowError, TypeError):
        raise ValueError(text) from None
    # A float may be rounded, as every weight is; an integer that changes is a mistake.
    is_exact = np.array_equal(array.astype(np.float64), numbers.astype(np.float64))
    if numbers.ndim > 1 or not (is_exact or dtype.is_float) or not np.isfinite(array).all():
        raise ValueError(text)
    shape = numbers.shape
    if dims is not None:
        shape = tuple(d if isinstance(d, int) else -1 for d in dims)
    if not is_list:
        return np.full(tuple(1 if d == -1 else d for d in shape), array)
    try:
        return array.reshape(_with_one_open_axis(shape))
    except ValueError:
        stated = ",".join("?" if d is None else str(d) for d in dims or ())
        problem = f"{numbers.size} numbers for shape [{stated}]"
        raise ValueError(f"{problem}; write one for all, or one for each element") from None


def _with_one_open_axis(shape: Shape) -> Shape:
    """Return a shape with one open axis (-1) at most: of several, all but the last are 1."""
    if shape.count(-1) <= 1:
        return shape
    return (*(1 if d == -1 else d for d in shape[:-1]), shape[-1])

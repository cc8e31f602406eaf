"""Computes a model by numpy as NNEF 1.0.5 defines its operations: the reference for validation.

It shares nothing with the handlers but the reader of files, so that one mistake is not made in both. It
computes in double precision, and is slow. Khronos's own interpreter needs PyTorch and has fewer operations.
"""

# Operands and attributes have the names of the specification: input, filter, transposeA.
# ruff: noqa: A001, A002, A006, N803, PLW0108

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from mace_core.api import Files, Reference
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Array
from mace_frontend_nnef.reference_window import WINDOWS
from mace_frontend_nnef.source import DTYPES, NnefSource, read
from mace_frontend_nnef.syntax import Name, NnefOperation, names_in

Compute = Callable[..., Any]


def reference(files: Files, model: Model) -> Reference:
    """Return a function from inputs to outputs by name; the deployment file may name other outputs."""
    source = read(files)
    names = [port.name for port in model.outputs] or list(source.graph.outputs)

    def run(arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        values = compute(source, arrays)
        return {name: values[name] for name in names}

    return Reference(run, f"NNEF 1.0 by numpy {np.__version__}")


def compute(source: NnefSource, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return by name every tensor that can be computed from these inputs; real numbers are float32.

    Inputs may be inner tensors of the graph: what computes them is then left out.
    """
    values: dict[str, Array] = {name: _widen(np.asarray(array)) for name, array in arrays.items()}
    for operation in source.graph.operations:
        names = operation.outputs
        is_computable = all(name in values for name in names_in(operation.inputs.values()))
        if operation.name == "external" or not is_computable or all(name in values for name in names):
            continue
        for name, array in zip(names, _results(source, operation, values), strict=True):
            if name not in arrays:
                values[name] = array
    return {name: _narrow(array) for name, array in values.items()}


def _widen(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def _narrow(array: Array) -> Array:
    return array.astype(np.float32) if array.dtype.kind == "f" else array


def _results(source: NnefSource, operation: NnefOperation, values: Mapping[str, Array]) -> Sequence[Array]:
    """Return the results of an operation; MaceError if nothing here computes it."""

    def operand(value: Any) -> Any:
        if isinstance(value, list):
            return [operand(item) for item in value]
        return values[value] if isinstance(value, Name) else np.asarray(value)

    kind = operation.dtype
    if operation.name == "variable":
        label, shape = operation.attribs["label"], tuple(operation.attribs["shape"])
        return [_widen(source.variable(str(label), shape, kind))]
    if operation.name == "constant":
        elements: Array = np.asarray(operation.attribs["value"], DTYPES[kind])
        shape = tuple(operation.attribs["shape"])
        is_one = elements.size == 1
        return [_widen(np.broadcast_to(elements, shape) if is_one else elements.reshape(shape))]
    compute_one = COMPUTE.get(operation.name)
    if compute_one is None:
        raise MaceError(
            source.file.name,
            f"operation {operation.name!r} has no reference",
            "validate against stored data instead",
        )
    operands = {name: operand(value) for name, value in operation.inputs.items()}
    if operation.name == "cast":
        return [_widen(operands["input"].astype(DTYPES[kind]))]
    # selu has an attribute `lambda`, which is a keyword of Python.
    attribs = {"lambda_" if key == "lambda" else key: value for key, value in operation.attribs.items()}
    results = compute_one(**operands, **attribs)
    return results if isinstance(results, tuple | list) else [np.asarray(results)]


def align_ranks(*arrays: Array) -> list[Array]:
    """Return arrays with axes of 1 appended, so that all have one rank (NNEF 1.0.5, section 4.1.1)."""
    rank = max(np.ndim(array) for array in arrays)
    return [np.reshape(array, (*np.shape(array), *(1,) * (rank - np.ndim(array)))) for array in arrays]


def _binary(function: Callable[[Array, Array], Array]) -> Compute:
    return lambda x, y: function(*align_ranks(x, y))


def _reduce(function: Callable[..., Array]) -> Compute:
    return lambda input, axes: function(input, axis=tuple(axes), keepdims=True)


def _select(condition: Array, true_value: Array, false_value: Array) -> Array:
    return np.where(*align_ranks(condition, true_value, false_value))


def _clamp(x: Array, a: Array, b: Array) -> Array:
    x, a, b = align_ranks(x, a, b)
    return np.maximum(np.minimum(x, b), a)


def _elu(x: Array, alpha: float) -> Array:
    return np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x)


def _prelu(x: Array, alpha: Array) -> Array:
    x, alpha = align_ranks(x, alpha)
    return np.where(x < 0, alpha * x, x)


def _erf(x: Array) -> Array:
    """Compute the error function by its series and its continued fraction (DLMF 7.6.1 and 7.9.2)."""
    # numpy has no erf. Below 3 the series needs 80 terms for double precision; above, the fraction needs 60.
    near, far = np.clip(np.abs(x), 0, 3), np.maximum(np.abs(x), 3)
    term = total = near.copy()
    for n in range(1, 80):
        term = -term * near**2 / n
        total = total + term / (2 * n + 1)
    fraction = np.zeros_like(far)
    for n in range(60, 0, -1):
        fraction = n / 2 / (far + fraction)
    tail = 1 - np.exp(-(far**2)) / np.sqrt(np.pi) / (far + fraction)
    return np.asarray(np.sign(x) * np.where(np.abs(x) < 3, total * 2 / np.sqrt(np.pi), tail))


def _quantize(x: Array, min: Array, max: Array, bits: int, **flags: bool) -> Array:
    x, low, high = align_ranks(x, min, max)
    steps = 2**bits - 1 - int(flags.get("signed", False) and flags.get("symmetric", False))
    inside = np.maximum(np.minimum(x, high), low)
    rounded = np.floor((inside - low) / (high - low) * steps + 0.5)
    return np.asarray(rounded / steps * (high - low) + low)


def _reshape(input: Array, shape: Sequence[int], axis_start: int, axis_count: int) -> Array:
    stop = input.ndim if axis_count == -1 else axis_start + axis_count
    sizes = [input.shape[axis_start + i] if size == 0 else size for i, size in enumerate(shape)]
    elements, stated = prod(input.shape[axis_start:stop]), prod(size for size in sizes if size != -1)
    middle = [elements // stated if size == -1 else size for size in sizes]
    return input.reshape(*input.shape[:axis_start], *middle, *input.shape[stop:])


def _slice(
    input: Array,
    axes: Sequence[int],
    begin: Sequence[int],
    end: Sequence[int],
    stride: Sequence[int],
) -> Array:
    slices = [slice(None)] * input.ndim
    for axis, first, last, step in zip(axes, begin, end, stride or [1] * len(axes), strict=True):
        slices[axis] = slice(first, None if last == 0 else last, step)
    return input[tuple(slices)]


def _split(value: Array, axis: int, ratios: Sequence[int]) -> list[Array]:
    unit = value.shape[axis] // sum(ratios)
    return np.split(value, np.cumsum(ratios)[:-1] * unit, axis=axis)


def _unstack(value: Array, axis: int) -> list[Array]:
    return [np.take(value, i, axis) for i in range(value.shape[axis])]


def _pad(input: Array, padding: Sequence[tuple[int, int]], border: str, value: float) -> Array:
    if border == "constant":
        return np.pad(input, padding, constant_values=value)
    modes = {"replicate": "edge", "reflect": "reflect", "reflect-even": "symmetric"}
    return np.asarray(np.pad(input, padding, mode=modes[border]))  # type: ignore[call-overload]


def _moments(input: Array, axes: Sequence[int]) -> tuple[Array, Array]:
    mean = input.mean(tuple(axes), keepdims=True)
    return mean, ((input - mean) ** 2).mean(tuple(axes), keepdims=True)


def _softmax(x: Array, axes: Sequence[int]) -> Array:
    powers = np.exp(x - x.max(tuple(axes), keepdims=True))
    return np.asarray(powers / powers.sum(tuple(axes), keepdims=True))


def _matmul(A: Array, B: Array, transposeA: bool, transposeB: bool) -> Array:
    return (np.swapaxes(A, -1, -2) if transposeA else A) @ (np.swapaxes(B, -1, -2) if transposeB else B)


def _batch_normalization(input: Array, epsilon: float, **factors: Array) -> Array:
    names = ("mean", "variance", "offset", "scale")
    x, mean, variance, offset, scale = align_ranks(input, *(factors[name] for name in names))
    return np.asarray(offset + scale * (x - mean) / np.sqrt(variance + epsilon))


def _normalization(length: Callable[[Array, tuple[int, ...]], Array]) -> Compute:
    return lambda input, axes, bias, epsilon: input / np.maximum(length(input, tuple(axes)) + bias, epsilon)


def _upsample_axis(x: Array, axis: int, factor: int, method: str) -> Array:
    size = x.shape[axis]
    indices = np.arange(size * factor)
    positions = {
        "symmetric": (indices + 0.5) / factor - 0.5,
        "asymmetric": indices / factor,
        "aligned": indices * (size - 1) / max(size * factor - 1, 1),
    }[method]
    positions = np.clip(positions, 0, size - 1)  # border "replicate"
    low = np.floor(positions).astype(int)
    high = np.minimum(low + 1, size - 1)
    share = (positions - low).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    return np.asarray(np.take(x, low, axis) * (1 - share) + np.take(x, high, axis) * share)


def _multilinear_upsample(input: Array, factor: Sequence[int], method: str, border: str) -> Array:
    for axis, one in enumerate(factor, 2):
        input = _upsample_axis(input, axis, one, method)
    return input


def _nearest_upsample(input: Array, factor: Sequence[int]) -> Array:
    for axis, one in enumerate(factor, 2):
        input = np.repeat(input, one, axis)
    return input


def _nearest_downsample(input: Array, factor: Sequence[int]) -> Array:
    return input[(slice(None), slice(None), *(slice(None, None, one) for one in factor))]


UNARY: Mapping[str, Compute] = MappingProxyType(
    {
        **{name: getattr(np, name) for name in ("exp", "log", "log2", "sin", "cos", "tan", "sinh", "cosh")},
        **{name: getattr(np, name) for name in ("tanh", "abs", "sign", "floor", "ceil", "sqrt")},
        **{
            name: getattr(np, f"arc{name[1:]}")
            for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")
        },
        "copy": np.copy,
        "neg": np.negative,
        "not": np.logical_not,
        "rcp": lambda x: 1 / x,
        "round": lambda x: np.floor(x + 0.5),
        "sqr": np.square,
        "rsqr": lambda x: x**-2.0,
        "rsqrt": lambda x: x**-0.5,
        "relu": lambda x: np.maximum(x, 0),
        "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
        "softplus": lambda x: np.logaddexp(x, 0),
        "gelu": lambda x: x * (1 + _erf(x / np.sqrt(2))) / 2,
        "silu": lambda x: x / (1 + np.exp(-x)),
    }
)

COMPUTE: Mapping[str, Compute] = MappingProxyType(
    {
        **{name: (lambda x, f=function: f(x)) for name, function in UNARY.items()},
        "add": _binary(np.add),
        "sub": _binary(np.subtract),
        "mul": _binary(np.multiply),
        "div": _binary(np.divide),
        "pow": _binary(np.power),
        "min": _binary(np.minimum),
        "max": _binary(np.maximum),
        "and": _binary(np.logical_and),
        "or": _binary(np.logical_or),
        "lt": _binary(np.less),
        "gt": _binary(np.greater),
        "le": _binary(np.less_equal),
        "ge": _binary(np.greater_equal),
        "eq": _binary(np.equal),
        "ne": _binary(np.not_equal),
        "max_reduce": _reduce(np.max),
        "min_reduce": _reduce(np.min),
        "mean_reduce": _reduce(np.mean),
        "any_reduce": _reduce(np.any),
        "all_reduce": _reduce(np.all),
        "sum_reduce": lambda input, axes, normalize: (np.mean if normalize else np.sum)(
            input, axis=tuple(axes), keepdims=True
        ),
        "argmax_reduce": lambda input, axes: np.argmax(input, axis=axes[0], keepdims=True),
        "argmin_reduce": lambda input, axes: np.argmin(input, axis=axes[0], keepdims=True),
        "moments": _moments,
        "select": _select,
        "clamp": _clamp,
        "elu": _elu,
        "selu": lambda x, alpha, lambda_: lambda_ * _elu(x, alpha),
        "prelu": _prelu,
        "leaky_relu": lambda x, alpha: np.where(x < 0, alpha * x, x),
        "softabs": lambda x, epsilon: np.sqrt(x**2 + epsilon),
        "softmax": _softmax,
        "add_n": lambda x: sum(align_ranks(*x)),
        "copy_n": lambda x, times: [x] * times,
        "cast": lambda input: input,
        "linear_quantize": _quantize,
        "min_max_linear_quantize": _quantize,
        "reshape": _reshape,
        "transpose": lambda input, axes: np.transpose(input, (*axes, *range(len(axes), input.ndim))),
        "squeeze": lambda input, axes: np.squeeze(input, tuple(axes)),
        "unsqueeze": lambda input, axes: np.expand_dims(input, tuple(axes)),
        "concat": lambda values, axis: np.concatenate(values, axis),
        "split": _split,
        "stack": lambda values, axis: np.stack(values, axis),
        "unstack": _unstack,
        "slice": _slice,
        "tile": lambda input, repeats: np.tile(input, repeats),
        "pad": _pad,
        "gather": lambda input, indices, axis: np.take(input, indices, axis),
        "matmul": _matmul,
        "linear": lambda input, filter, bias: input @ filter.T + bias,
        "batch_normalization": _batch_normalization,
        "l1_normalization": _normalization(lambda x, axes: np.abs(x).sum(axes, keepdims=True)),
        "l2_normalization": _normalization(lambda x, axes: np.sqrt((x**2).sum(axes, keepdims=True))),
        "multilinear_upsample": _multilinear_upsample,
        "nearest_upsample": _nearest_upsample,
        "nearest_downsample": _nearest_downsample,
        **WINDOWS,
    }
)
"""Operation -> the function that computes it from operands and attributes by their names in NNEF."""

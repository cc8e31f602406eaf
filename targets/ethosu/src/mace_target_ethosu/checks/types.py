"""Checks element types and quantization."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mace_target_ethosu.checks.check import Check, Limits
from mace_target_ethosu.operators import OperatorView, TensorView


def has_types(operator: OperatorView, limits: Limits) -> str | None:
    """Check the type of every feature map."""
    return _first(operator.feature_maps, lambda t: t.dtype not in limits["types"], "is {0.dtype}")


def has_input(operator: OperatorView, limits: Limits) -> str | None:
    """Check that there is a feature map to read."""
    computed = [t for t in operator.feature_inputs if t.data is None]
    return None if computed else f"{operator.code} reads constants alone"


def has_no_bits(operator: OperatorView, limits: Limits) -> str | None:
    """Check that no feature map has elements of so many bits."""
    return _first(operator.feature_maps, lambda t: t.bits == limits["bits"], "is {0.dtype}")


def has_ifm_type(operator: OperatorView, limits: Limits) -> str | None:
    """Check the type of the first input."""
    return _first((operator.ifm,), lambda t: t.dtype not in limits["types"], "is {0.dtype}")


def keeps_type(operator: OperatorView, limits: Limits) -> str | None:
    """Check that input and result have one type, of those named."""
    if fault := has_ifm_type(operator, limits):
        return fault
    return _first((operator.ofm,), lambda t: t.dtype != operator.ifm.dtype, "is {0.dtype}, unlike the input")


def has_parameter_types(operator: OperatorView, limits: Limits) -> str | None:
    """Check that paddings are integers of 32 or 64 bits."""
    return _first(operator.parameters, lambda t: t.dtype not in ("INT32", "INT64"), "is {0.dtype}")


def is_quantized(operator: OperatorView, limits: Limits) -> str | None:
    """Check that feature maps and weights have scales."""
    return _first(_computed_with(operator), lambda t: not t.scales, "has no scale")


def has_positive_scales(operator: OperatorView, limits: Limits) -> str | None:
    """Check that no scale is zero or negative."""
    return _first(_computed_with(operator), lambda t: any(s <= 0 for s in t.scales), "has a scale of 0")


def has_one_scale(operator: OperatorView, limits: Limits) -> str | None:
    """Check that no tensor has a scale for each channel."""
    tensors = (*_computed_with(operator), *filter(None, (operator.bias,)))
    return _first(tensors, lambda t: len(t.scales) > 1, "has a scale for each channel")


def has_zero_points(operator: OperatorView, limits: Limits) -> str | None:
    """Check zero points as Ethos-U55 and U65 want them."""
    return _first(operator.feature_maps, _breaks_u55, "has a zero point that its type does not allow")


def has_ifm_zero_points(operator: OperatorView, limits: Limits) -> str | None:
    """Check zero points of inputs as Ethos-U85 wants them."""
    return _first(operator.feature_inputs, _breaks_u85_input, "has a zero point that its type does not allow")


def has_ofm_zero_points(operator: OperatorView, limits: Limits) -> str | None:
    """Check zero points of results as Ethos-U85 wants them."""
    return _first(operator.outputs, _breaks_u85_output, "has a zero point that its type does not allow")


def keeps_quantization(operator: OperatorView, limits: Limits) -> str | None:
    """Check that inputs are quantized as the result is."""
    expected = (operator.ofm.scales, operator.ofm.zero_points)
    return _first(
        operator.feature_inputs,
        lambda t: (t.scales, t.zero_points) != expected,
        "is quantized otherwise than the result",
    )


def _computed_with(operator: OperatorView) -> tuple[TensorView, ...]:
    # Without the bias: Vela demands quantization parameters of inputs, outputs and weights.
    return (*operator.feature_maps, *filter(None, (operator.weights,)))


def _breaks_u55(tensor: TensorView) -> bool:
    if tensor.dtype == "INT32":
        return any(tensor.zero_points)
    return tensor.dtype.startswith("UINT") and any(z < 0 for z in tensor.zero_points)


def _breaks_u85_input(tensor: TensorView) -> bool:
    # Vela's table for inputs; every type that it does not name must have the zero point 0.
    ranges = {"INT8": range(-128, 128), "UINT8": range(256), "UINT16": (0, 32768)}
    allowed = ranges.get(tensor.dtype, (0,))
    return any(z not in allowed for z in tensor.zero_points)


def _breaks_u85_output(tensor: TensorView) -> bool:
    if tensor.dtype.startswith("UINT"):
        return any(z not in range(256) and z != 32768 for z in tensor.zero_points)
    return any(z not in range(-128, 128) for z in tensor.zero_points)


def _first(tensors: Iterable[TensorView], breaks: Callable[[TensorView], bool], clause: str) -> str | None:
    """Return the clause about the first tensor that breaks a constraint."""
    for tensor in tensors:
        if breaks(tensor):
            return f"{tensor.name!r} {clause.format(tensor)}"
    return None


CHECKS: tuple[Check, ...] = (
    has_types,
    has_input,
    has_no_bits,
    has_ifm_type,
    keeps_type,
    has_parameter_types,
    is_quantized,
    has_positive_scales,
    has_one_scale,
    has_zero_points,
    has_ifm_zero_points,
    has_ofm_zero_points,
    keeps_quantization,
)

"""Checks windows, strides, paddings and factors of operators on images, NHWC."""

from __future__ import annotations

import tflite

from mace_target_ethosu.checks.check import Check, Limits
from mace_target_ethosu.operators import OperatorView


def has_strides(operator: OperatorView, limits: Limits) -> str | None:
    """Check that strides lie in a range."""
    strides = _strides(operator)
    if all(limits["min"] <= stride <= limits["max"] for stride in strides):
        return None
    return f"its strides are {strides[0]} and {strides[1]}"


def has_strides_or_is_valid(operator: OperatorView, limits: Limits) -> str | None:
    """Check that larger strides come without dilation and padding."""
    strides = _strides(operator)
    if all(stride <= limits["max"] for stride in strides):
        return None
    dilations = _dilations(operator)
    if dilations == (1, 1) and not _is_padded(operator):
        return None
    return f"its strides are {strides[0]} and {strides[1]}, with padding or dilation"


def has_average_window(operator: OperatorView, limits: Limits) -> str | None:
    """Check the window of an average, which is smaller with padding."""
    height, width = _window(operator)
    if _is_padded(operator):
        too_large = max(height, width) > limits["padded"]
        return f"its window is {height} x {width}, with padding" if too_large else None
    return has_max_window(operator, limits)


def has_max_window(operator: OperatorView, limits: Limits) -> str | None:
    """Check the window of a pool without padding."""
    height, width = _window(operator)
    if height * width <= limits["product"] and height <= limits["height"]:
        return None
    return f"its window is {height} x {width}"


def resizes_by_powers(operator: OperatorView, limits: Limits) -> str | None:
    """Check the factors of a resize on Ethos-U55 and U65."""
    (in_h, in_w), (out_h, out_w) = operator.ifm.shape[1:3], operator.ofm.shape[1:3]
    # Vela's sentence leaves out images of one pixel and resizes that change nothing.
    if (in_h, in_w) == (1, 1) or operator.ifm.shape == operator.ofm.shape:
        return None
    factors = [_factor(operator, *sizes) for sizes in ((in_h, out_h), (in_w, out_w))]
    if factors[0] != factors[1]:
        # One axis of 1 that stays 1 takes the factor of the other.
        scaled = [factor for factor, size in zip(factors, (out_h, out_w), strict=True) if size != 1]
        ones = [(in_h, out_h), (in_w, out_w)].count((1, 1))
        if len(scaled) != 1 or not ones:
            return f"its factors are {factors[0]:g} and {factors[1]:g}"
        factors = scaled
    allowed = limits["half_pixel" if operator.option("HalfPixelCenters") else "factors"]
    return None if factors[0] in allowed else f"its factor is {factors[0]:g}"


def has_one_alignment(operator: OperatorView, limits: Limits) -> str | None:
    """Check that a resize has one rule of where samples lie."""
    both = operator.option("AlignCorners") and operator.option("HalfPixelCenters")
    return "it has align_corners and half_pixel_centers" if both else None


def has_resize_factor(operator: OperatorView, limits: Limits) -> str | None:
    """Check the largest factor of a resize on Ethos-U85."""
    limit = limits["aligned" if operator.option("AlignCorners") else "max"]
    largest = max(_factors(operator))
    return None if largest <= limit else f"its factor is {largest:g}"


def resizes_by_power_of_two(operator: OperatorView, limits: Limits) -> str | None:
    """Check that factors are integer powers of two, on Ethos-U85."""
    for factor in _factors(operator):
        if factor != int(factor) or int(factor) & (int(factor) - 1):
            return f"its factor is {factor:g}"
    return None


def has_transpose_conv_shape(operator: OperatorView, limits: Limits) -> str | None:
    """Check the result's height and width of a transposed convolution."""
    assert operator.weights is not None
    kernel, strides = operator.weights.shape[1:3], _strides(operator)
    extra = [0, 0] if _is_padded(operator) else [k - s for k, s in zip(kernel, strides, strict=True)]
    sizes = operator.ifm.shape[1:3]
    expected = tuple(size * s + e for size, s, e in zip(sizes, strides, extra, strict=True))
    actual = operator.ofm.shape[1:3]
    return (
        None
        if actual == expected
        else f"its result is {actual[0]} x {actual[1]}, not {expected[0]} x {expected[1]}"
    )


def has_transpose_conv_strides(operator: OperatorView, limits: Limits) -> str | None:
    """Check the strides of a transposed convolution."""
    assert operator.weights is not None
    strides, kernel = _strides(operator), operator.weights.shape[1:3]
    height, width = operator.ifm.shape[1:3]
    is_row = height == 1 and kernel[0] == 1
    is_column = width == 1 and kernel[1] == 1
    # Vela writes strides as W x H; here the height stands first.
    allowed = (
        strides in ((1, 1), (2, 2)) or (strides == (1, 2) and is_row) or (strides == (2, 1) and is_column)
    )
    return None if allowed else f"its strides are {strides[0]} and {strides[1]}"


def _strides(operator: OperatorView) -> tuple[int, int]:
    """Return the strides in height and width; 1 for operators without, such as a fully connected layer."""
    try:
        height, width = operator.option("StrideH"), operator.option("StrideW")
    except AttributeError:  # its table of options has no strides
        return 1, 1
    # None is the answer of an operator without any table of options.
    return height or 1, width or 1


def _dilations(operator: OperatorView) -> tuple[int, int]:
    try:
        return operator.option("DilationHFactor"), operator.option("DilationWFactor")
    except AttributeError:
        return 1, 1


def _window(operator: OperatorView) -> tuple[int, int]:
    return operator.option("FilterHeight"), operator.option("FilterWidth")


def _is_padded(operator: OperatorView) -> bool:
    return bool(operator.option("Padding") == tflite.Padding.SAME)


def _factors(operator: OperatorView) -> list[float]:
    return [
        _factor(operator, i, o) for i, o in zip(operator.ifm.shape[1:3], operator.ofm.shape[1:3], strict=True)
    ]


def _factor(operator: OperatorView, size: int, result: int) -> float:
    # Distances between the outermost pixels; a single pixel has none.
    if operator.option("AlignCorners") and size > 1:
        return (result - 1) / (size - 1)
    return result / size


CHECKS: tuple[Check, ...] = (
    has_strides,
    has_strides_or_is_valid,
    has_average_window,
    has_max_window,
    resizes_by_powers,
    has_one_alignment,
    has_resize_factor,
    resizes_by_power_of_two,
    has_transpose_conv_shape,
    has_transpose_conv_strides,
)

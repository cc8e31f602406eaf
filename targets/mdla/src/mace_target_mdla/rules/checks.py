"""Checks whether a node keeps to a rule: the checks of every operator, and the table of all checks.

Each check returns what breaks the rule, as the beginning of a sentence, or "" for a node that keeps to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from mace_core.ir import Tensor
from mace_target_mdla.operation import TfliteOperation, storage_class
from mace_target_mdla.rules import operator_checks as special
from mace_target_mdla.rules.table import Limits

Check = Callable[[TfliteOperation, Limits], str]
FLOATS = ("f16", "f32")


def check_always(operation: TfliteOperation, limits: Limits) -> str:
    """Report every node, for what the operator costs in any case."""
    return operation.operator


def check_activation_type(operation: TfliteOperation, limits: Limits) -> str:
    """Compare the data types of operands that are no constants, and of results, with `allowed`."""
    for tensor in (*operation.activations, *operation.outputs):
        kind = storage_class(tensor)
        if kind not in limits["allowed"]:
            return f"{tensor.name} is {kind}"
    return ""


def check_activation_per_channel(operation: TfliteOperation, limits: Limits) -> str:
    """Report an activation with several scales."""
    for tensor in (*operation.activations, *operation.outputs):
        if _has_channel_scales(tensor):
            return f"{tensor.name} has a scale for each channel"
    return ""


def check_weight_per_channel(operation: TfliteOperation, limits: Limits) -> str:
    """Report a constant with several scales, unless the operator is one of `allowed`."""
    if operation.operator in limits["allowed"]:
        return ""
    for tensor in operation.inputs:
        if operation.is_constant(tensor) and _has_channel_scales(tensor):
            return f"{tensor.name} has a scale for each channel"
    return ""


def check_weight_type(operation: TfliteOperation, limits: Limits) -> str:
    """Compare the types of activation and filter with the pairs in `allowed`, but for hybrid operators."""
    x, w = operation.inputs[:2]
    activation, weight = storage_class(x), storage_class(w, is_constant=True)
    # Other activations and hybrid operators break rules of their own, which say more.
    if activation not in limits["allowed"] or _is_hybrid(activation, weight):
        return ""
    if weight in limits["allowed"][activation]:
        return ""
    return f"{w.name} is {weight} and {x.name} is {activation}"


def check_hybrid(operation: TfliteOperation, limits: Limits) -> str:
    """Report quantized weights beside an activation of floats."""
    x, w = operation.inputs[:2]
    activation, weight = storage_class(x), storage_class(w, is_constant=True)
    return f"{w.name} is {weight} and {x.name} is {activation}" if _is_hybrid(activation, weight) else ""


def check_max_rank(operation: TfliteOperation, limits: Limits) -> str:
    """Compare the number of axes with `max`, or with that of the operator in `more`."""
    limit = limits.get("more", {}).get(operation.operator, limits["max"])
    for tensor in (*operation.inputs, *operation.outputs):
        if len(tensor.shape) > limit:
            return f"{tensor.name} has {len(tensor.shape)} axes"
    return ""


def check_max_dimension(operation: TfliteOperation, limits: Limits) -> str:
    """Compare every dimension of activations and results but the batch with `max`."""
    for tensor in (*operation.activations, *operation.outputs):
        # The pages limit height, width and channels here, and the batch by a number of its own.
        axes = tensor.shape[1:] if _has_batch(tensor) else tensor.shape
        if max(axes, default=0) > limits["max"]:
            return f"{tensor.name} has a dimension of {max(axes)}"
    return ""


def check_max_batch(operation: TfliteOperation, limits: Limits) -> str:
    """Compare the batch of operands and results with `max`, but for operators of `except`."""
    if operation.operator in limits["except"]:
        return ""
    for tensor in (*operation.activations, *operation.outputs):
        if _has_batch(tensor) and tensor.shape[0] > limits["max"]:
            return f"{tensor.name} has a batch of {tensor.shape[0]}"
    return ""


def check_channel_alignment(operation: TfliteOperation, limits: Limits) -> str:
    """Report results whose channels are more than `small` and no multiple of `step`."""
    step = limits["step"]
    for tensor in operation.outputs:
        # The guide's layouts are those of NHWC tensors (line 66).
        channels = tensor.shape[-1] if len(tensor.shape) >= 4 else 0
        if channels > limits["small"] and channels % step:
            return f"{tensor.name} has {channels} channels, which are stored as {-(-channels // step) * step}"
    return ""


def check_few_channels(operation: TfliteOperation, limits: Limits) -> str:
    """Report operands of at most `max` channels."""
    for tensor in operation.activations:
        if len(tensor.shape) >= 4 and tensor.shape[-1] <= limits["max"]:
            return f"{tensor.name} has {tensor.shape[-1]} channels"
    return ""


def check_computed_operand(operation: TfliteOperation, limits: Limits) -> str:
    """Report the operand of number `operand` unless it is a constant."""
    tensor = operation.graph.inputs_of(operation.node)[limits["operand"]]
    return f"{tensor.name} is no constant" if tensor and not operation.is_constant(tensor) else ""


def _has_batch(tensor: Tensor) -> bool:
    """Tell whether the first axis is a batch; of tensors with fewer axes no source says which is."""
    return len(tensor.shape) >= 4


def _has_channel_scales(tensor: Tensor) -> bool:
    return tensor.quant is not None and len(tensor.quant.scale) > 1


def _is_hybrid(activation: str, weight: str) -> bool:
    return activation in FLOATS and weight not in FLOATS


CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "activation_per_channel": check_activation_per_channel,
        "activation_type": check_activation_type,
        "always": check_always,
        "batch_among": special.check_batch_among,
        "broadcast": special.check_broadcast,
        "channel_alignment": check_channel_alignment,
        "computed_operand": check_computed_operand,
        "dilation": special.check_dilation,
        "downscale": special.check_downscale,
        "few_channels": check_few_channels,
        "group": special.check_group,
        "hybrid": check_hybrid,
        "max_batch": check_max_batch,
        "max_dimension": check_max_dimension,
        "max_pad": special.check_max_pad,
        "max_rank": check_max_rank,
        "pad_axes": special.check_pad_axes,
        "padded_filter": special.check_padded_filter,
        "scale_product": special.check_scale_product,
        "shared_operand": special.check_shared_operand,
        "strided_axes": special.check_strided_axes,
        "weight_per_channel": check_weight_per_channel,
        "weight_type": check_weight_type,
    }
)
"""Checks by the names that tables call them."""

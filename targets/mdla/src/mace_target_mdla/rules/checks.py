"""Checks whether a node keeps to a rule. Each returns what it found, or "" for a node that keeps to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mace_core.ir import Tensor
from mace_target_mdla.operation import TfliteOperation, storage_class
from mace_target_mdla.rules.table import Limits

Check = Callable[[TfliteOperation, Limits], str]


def check_activation_type(operation: TfliteOperation, limits: Limits) -> str:
    """Compare the data types of operands that are no constants, and of results, with `allowed`."""
    for tensor in (*operation.activations, *operation.outputs):
        kind = storage_class(tensor)
        if kind not in limits["allowed"]:
            return f"{tensor.name} is {kind}"
    return ""


def check_max_rank(operation: TfliteOperation, limits: Limits) -> str:
    """Compare the number of axes with `max`, or with that of the operator in `more`."""
    limit = limits.get("more", {}).get(operation.operator, limits["max"])
    for tensor in (*operation.inputs, *operation.outputs):
        if len(tensor.shape) > limit:
            return f"{tensor.name} has {len(tensor.shape)} axes"
    return ""


def check_max_dimension(operation: TfliteOperation, limits: Limits) -> str:
    """Compare every dimension but the batch of tensors of 4 or more axes with `max`."""
    for tensor in (*operation.inputs, *operation.outputs):
        axes = tensor.shape[1:] if _has_batch(operation, tensor) else tensor.shape
        if max(axes, default=0) > limits["max"]:
            return f"{tensor.name} has a dimension of {max(axes)}"
    return ""


def check_max_batch(operation: TfliteOperation, limits: Limits) -> str:
    """Compare the batch of operands and results with `max`, but for operators of `except`."""
    if operation.operator in limits.get("except", ()):
        return ""
    for tensor in (*operation.activations, *operation.outputs):
        if _has_batch(operation, tensor) and tensor.shape[0] > limits["max"]:
            return f"{tensor.name} has a batch of {tensor.shape[0]}"
    return ""


def _has_batch(operation: TfliteOperation, tensor: Tensor) -> bool:
    return len(tensor.shape) >= 4 and not operation.is_constant(tensor)


CHECKS: Mapping[str, Check] = {
    name.removeprefix("check_"): check
    for name, check in sorted(globals().items())
    if name.startswith("check_")
}
"""Checks by the names that tables call them."""

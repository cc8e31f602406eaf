"""What lowerings of this package share: limits and multipliers as kernels read them, and refusals."""

from __future__ import annotations

from collections.abc import Sequence

from mace_core.ir import DType, Node, Tensor
from mace_core.lowering import Lowering, Refused
from mace_core.program import Arg
from mace_target_cpu.quantized.rounding import refuse_rule, split_factor
from mace_target_cpu.quantized.storage import Scale, result

MULTIPLIER = (("multiplier", "i32"), ("shift", "i32"))
LIMITS = (("low", "i32"), ("high", "i32"), ("z_zero", "i32"))
"""Arguments of kernels: the range of the result in steps from its zero point."""


def limits(y: Tensor) -> dict[str, Arg]:
    """Return the arguments of LIMITS: all that a tensor can store."""
    args = result(y)
    low, high = args["low"], args["high"]
    assert isinstance(low, float)
    assert isinstance(high, float)
    return {"low": int(low), "high": int(high), "z_zero": Scale.from_tensor(y).zero}


def multiplier(factor: float) -> dict[str, Arg]:
    """Return the arguments of MULTIPLIER."""
    fixed, shift = split_factor(factor)
    return {"multiplier": fixed, "shift": shift}


def need_alike(node: Node, lowering: Lowering, dtypes: Sequence[DType]) -> tuple[Tensor, ...]:
    """Return all tensors of a node; Refused unless they are quantized with elements of one accepted type."""
    tensors = tuple(lowering.tensors[name] for name in (*node.inputs, *node.outputs) if name)
    if (
        len({t.dtype for t in tensors}) != 1
        or tensors[0].dtype not in dtypes
        or not all(t.quant for t in tensors)
    ):
        types = ", ".join(t.dtype.value if t.quant else f"plain {t.dtype.value}" for t in tensors)
        raise refuse_rule(lowering, f"{node.op.name} of {types} is not imitated")
    return tensors


def need_one_storage(node: Node, lowering: Lowering, tensors: Sequence[Tensor]) -> None:
    """Refused unless all tensors have one scale and zero point, as the kernels of this op assume."""
    if len({t.storage for t in tensors}) != 1:
        raise refuse_rule(lowering, f"{node.op.name} of tensors with different scales is not imitated")


__all__ = ["LIMITS", "MULTIPLIER", "Refused", "limits", "multiplier", "need_alike", "need_one_storage"]

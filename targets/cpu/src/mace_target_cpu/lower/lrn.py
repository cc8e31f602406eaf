"""LRN: a window of squares moved along the channels of every pixel."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from mace_core.ir import Node
from mace_core.lowering import Lower, Lowering
from mace_core.ops.lrn import LRNAttributes
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS, MAX_LANES
from mace_target_cpu.lower.softmax import MATH, ROW, chunk
from mace_target_cpu.lower.types import need_type

FIELDS = (
    ("rows", "i64"),
    ("channels", "i32"),
    ("size", "i32"),
    ("alpha", "f32"),
    ("beta", "f32"),
    ("bias", "f32"),
    ("chunk", "i32"),
    ("tasks", "i32"),
)
ROOTS: Mapping[float, str] = {0.5: "lrn_half_f32", 0.75: "lrn_f32", 1.0: "lrn_one_f32"}
"""Powers that need no logarithm, and their kernels."""


def lrn(node: Node, lowering: Lowering) -> None:
    """Lower LRN to a kernel made for its power."""
    x = lowering.tensors[node.inputs[0]]
    attrs = node.attributes(LRNAttributes)
    size, alpha, beta, bias = attrs.size, attrs.alpha, attrs.beta, attrs.bias
    need_type(node, x)
    channels, rows = x.shape[-1], prod(x.shape[:-1])
    kernel = Kernel(
        ROOTS.get(beta, "lrn_power_f32"), KERNELS / "lrn.c.in", FIELDS, {"beta": _root(beta)}, (MATH, ROW)
    )
    args = {
        "rows": rows,
        "channels": channels,
        "size": size,
        "alpha": alpha / size,
        "beta": beta,
        "bias": bias,
    }
    # Squares with zeros on both sides, and the end of a vector behind them.
    scratch = 4 * (channels + size + 2 * MAX_LANES)
    lowering.call(
        node,
        Call(
            kernel,
            {**args, **chunk(rows, channels * size)},
            node.inputs,
            node.outputs,
            scratch=scratch,
            inplace=True,
        ),
    )


def _root(beta: float) -> float:
    """Return the template's `beta`: 0 for powers without roots, so that they share a kernel."""
    return beta if beta in ROOTS else 0.0


LOWERINGS: Mapping[str, Lower] = {"LRN": lrn}

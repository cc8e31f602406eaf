"""TopK: a heap for every row."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from mace_core.emit.text import Code
from mace_core.ir import Node
from mace_core.lowering import Lower, Lowering
from mace_core.ops.topk import TopKAttributes
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.strided import MOVE, chunks
from mace_target_cpu.lower.types import c_type

FIELDS = (("n", "i64"), ("step", "i64"), ("k", "i64"), ("rows", "i64"), ("grain", "i64"))

LARGEST, SMALLEST = "{0} > {1}", "{0} < {1}"
NAN_FIRST, NAN_LAST = "({0} != {0} && {1} == {1})", "({1} != {1} && {0} == {0})"
"""Whether {0} comes before {1}; NaN is larger than every number."""


def topk(node: Node, lowering: Lowering) -> None:
    """Rows are what lies before and after the axis."""
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    if y.elements == 0:
        return
    attrs = node.attributes(TopKAttributes)
    axis, largest = attrs.axis % len(x.shape), attrs.largest
    order = LARGEST if largest else SMALLEST
    # NaN counts as larger than every number, as in numpy's sort.
    if x.dtype.is_float:
        order += f" || {NAN_FIRST if largest else NAN_LAST}"
    params = {
        "ctype": c_type(x),
        "before": Code(order.format("p", "q")),
        "after": Code(order.format("q", "p")),
    }
    n, k, step = x.shape[axis], y.shape[axis], prod(x.shape[axis + 1 :])
    kernel = Kernel(
        f"topk_{'largest' if largest else 'smallest'}_{x.dtype.value}",
        KERNELS / "topk.c.in",
        FIELDS,
        params,
        (MOVE,),
    )
    rows = chunks(prod(x.shape[:axis]) * step, n * x.dtype.size)
    lowering.call(
        node, Call(kernel, {"n": n, "step": step, "k": k, **rows}, node.inputs, node.outputs, scratch=4 * k)
    )


LOWERINGS: Mapping[str, Lower] = {"TopK": topk}

"""ReverseSequence: one run of bytes for every step of every sequence."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from mace_core.ir import Node
from mace_core.lowering import Lower, Lowering
from mace_core.ops.reverse_sequence import ReverseSequenceAttributes
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.gather import index_type
from mace_target_cpu.lower.strided import MOVE, chunks

NAMES = ("first", "middle", "last", "steps", "time_last", "bytes", "rows", "grain")


def reverse_sequence(node: Node, lowering: Lowering) -> None:
    """X as [outer, first, middle, last, run], first and last being batch and time in either order."""
    x, lengths = (lowering.tensors[t] for t in node.inputs)
    if x.elements == 0:
        return
    attrs, rank = node.attributes(ReverseSequenceAttributes), len(x.shape)
    batch, time = attrs.batch_axis % rank, attrs.time_axis % rank
    # One kernel for batch before time and time before batch.
    low, high = sorted((batch, time))
    bytes_ = prod(x.shape[high + 1 :]) * x.dtype.size
    args = {
        "first": x.shape[low],
        "middle": prod(x.shape[low + 1 : high]),
        "last": x.shape[high],
        "steps": x.shape[time],
        "time_last": int(time == high),
        "bytes": bytes_,
        **chunks(prod(x.shape[: high + 1]), bytes_),
    }
    params = {"itype": index_type(lengths)}
    fields = tuple((n, "i64") for n in NAMES)
    kernel = Kernel(
        f"reverse_sequence_{lengths.dtype.value}", KERNELS / "reverse_sequence.c.in", fields, params, (MOVE,)
    )
    lowering.call(node, Call(kernel, args, node.inputs, node.outputs))


LOWERINGS: Mapping[str, Lower] = {"ReverseSequence": reverse_sequence}

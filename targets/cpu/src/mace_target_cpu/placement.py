"""Convolutions that write their channels into the result of the Concat behind them."""

from __future__ import annotations

import re
from dataclasses import replace

from mace_core.program import Call, Program

FLOAT_BYTES = 4

PLACED = re.compile(r"conv(_lines\d+|_winograd\d)?_f32|conv_bf16")
"""Names of kernels that write into longer rows if their parameters say so; none with an epilogue."""


def place(call: Call, joint: Call, program: Program) -> Call | None:
    """Return a convolution whose rows lie in those of a Concat of channels; None for anything else."""
    if not PLACED.fullmatch(call.kernel.name) or joint.kernel.name != "concat":
        return None
    # The table of `lower/concat.py`: the bytes of each run, then where it begins.
    lengths, starts = program.weights[joint.reads[-1]].make()
    part = list(joint.reads).index(call.writes[0])
    # A longer run holds several pixels: another axis is joined.
    if lengths[part] != FLOAT_BYTES * call.args["results"]:
        return None
    width = joint.args["width"]
    assert isinstance(width, int)
    kernel = replace(
        call.kernel,
        name=f"{call.kernel.name}_part",
        fields=(*call.kernel.fields, ("width", "i64"), ("offset", "i64")),
        params={**call.kernel.params, "is_part": True},
    )
    args = {**call.args, "width": width // FLOAT_BYTES, "offset": int(starts[part]) // FLOAT_BYTES}
    return replace(call, kernel=kernel, args=args)

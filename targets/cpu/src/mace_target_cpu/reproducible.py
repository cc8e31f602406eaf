"""Which kernels give floats the same bits at every level and on every processor: `numerics: reproducible`.

Those whose results are each computed in one order, whatever the number of lanes or tiles is, by operations
that IEEE 754 defines: sums, products, quotients, roots, and the functions of math.h.in that are made of
them. Compiled without fused multiply-adds, they leave nothing to a level. A kernel that is not listed is
refused.
"""

from __future__ import annotations

import re

from mace_core.program import Call

ELEMENTWISE = (
    "batch_norm.c.in",
    "batch_norm_fold.c.in",
    "binary.c.in",
    "dequantize.c.in",
    "finish.c.in",
    "quantize.c.in",
    "unary.c.in",
)
"""An element of the result depends on one of each operand."""

ORDERED = (
    "col2im.c.in",
    "conv.c.in",
    "conv_depthwise.c.in",
    "conv_halves.c.in",
    "conv_lines.c.in",
    "conv_transpose.c.in",
    "conv_winograd.c.in",
    "cumsum.c.in",
    "matmul.c.in",
    "matmul_stored.c.in",
    "norm_rows.c.in",
    "pool.c.in",
    "reduce.c.in",
    "reduce_rows.c.in",
    "reduce_runs.c.in",
    "resize.c.in",
    "rms_norm.c.in",
    "softmax_columns.c.in",
    "softmax_rows.c.in",
)
"""Sums in ascending order of what is added, or of row.h.in, whose 32 sums are the same at every level."""

MOVES = (
    "arg.c.in",
    "cast.c.in",
    "concat.c.in",
    "copy.c.in",
    "copy_elements.c.in",
    "copy_runs.c.in",
    "copy_tiles.c.in",
    "gather.c.in",
    "gather_elements.c.in",
    "gather_nd.c.in",
    "gather_stored.c.in",
    "half.c.in",
    "lookup.c.in",
    "max_pool_indices.c.in",
    "onehot.c.in",
    "pack.c.in",
    "gemm_pack.c.in",
    "im2col.c.in",
    "reverse_sequence.c.in",
    "scatter_elements.c.in",
    "scatter_nd.c.in",
    "topk.c.in",
    "trilu.c.in",
    "where.c.in",
)
"""Elements are moved, chosen or converted."""

INTEGERS = (
    "average_fixed_point.c.in",
    "binary_quantized.c.in",
    "conv_depthwise_byte_strips.c.in",
    "conv_depthwise_bytes.c.in",
    "conv_depthwise_lines.c.in",
    "conv_depthwise_quantized.c.in",
    "conv_depthwise_strips.c.in",
    "conv_quantized.c.in",
    "conv_winograd_quantized.c.in",
    "curve.c.in",
    "matmul_integer.c.in",
    "matmul_integer_plain.c.in",
    "matmul_quantized.c.in",
    "quantize_wide.c.in",
    "softmax_quantized.c.in",
    "table.c.in",
)
"""Stored integers, whose bits are the same at every level by `single-rounding`."""

LISTED = frozenset((*ELEMENTWISE, *ORDERED, *MOVES, *INTEGERS))

LIBRARY = ("sin", "cos", "tan", "sinh", "cosh", "exp", "log", "pow", "erf")
"""Beginnings of names of the C library's functions whose last bit differs from one library to another."""


def why_it_varies(call: Call) -> str | None:
    """Return why a call may have other bits at another level; None if it has the same at all."""
    kernel = call.kernel
    template = kernel.template.name
    if template not in LISTED:
        return (
            f"kernel {kernel.name} adds in an order that depends on the level, or nobody has shown otherwise"
        )
    if "is_bf16" in kernel.params:
        return f"kernel {kernel.name} adds products of bfloat16 in pairs where the level has tiles of them"
    if template == "pool.c.in" and kernel.params.get("kind") == "lp":
        return f"kernel {kernel.name} calls powf of the C library"
    expressions = " ".join(str(kernel.params.get(key, "")) for key in ("scalar", "step", "final", "vector"))
    for name in _list_functions(expressions):
        return f"kernel {kernel.name} calls {name} of the C library, whose last bit differs between libraries"
    return None


def _list_functions(expressions: str) -> list[str]:
    """Return the functions of the C library in C expressions that have no exact result."""
    names = re.findall(r"\b([a-z]\w*)\(", expressions)
    return [name for name in names if name.removeprefix("a").startswith(LIBRARY)]

"""The kernels of weights that a library stores in half precision, without their zeros, or as integers."""

from __future__ import annotations

from dataclasses import replace

from mace_core.compact_weights import FIELDS, INTEGER_FIELDS, WideningKernels, integer_args
from mace_core.integer_recovery import IntegerForm
from mace_core.program import Call, Kernel
from mace_target_cpu.epilogue import list_steps, render_finish
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.gemm import GEMM, GEMM_TILES
from mace_target_cpu.lower.igemm import INTEGER
from mace_target_cpu.lower.matmul import MATMUL
from mace_target_cpu.lower.strided import MOVE
from mace_target_cpu.lower.types import HALF_BITS

EXPAND = KERNELS / "expand_sparse.c.in"

GATHER = "gather.c.in"

STORED = (INTEGER, KERNELS / "stored.h.in")
"""Helpers of kernels that read weights as integers."""

MAX_COLUMNS = 64
"""The widest tile of all levels: columns of which a task widens the weights at a time."""


FEW_ROWS = 4
"""Rows of a product up to which integers are widened in registers: their sums fill the registers then."""


def _widen_integers(bits: int) -> Kernel:
    template = KERNELS / "widen_integers.c.in"
    return Kernel(f"widen_i{bits}", template, INTEGER_FIELDS, {"bits": bits}, (MOVE, *STORED))


def read_integers(call: Call, position: int, form: IntegerForm) -> Call | None:
    """Return a product with a matrix, or a Gather from a table, that reads integers; None for other calls."""
    template = call.kernel.template.name
    if template == MATMUL.template.name and position == 1:
        return _multiply_by_integers(call, form)
    if template == GATHER and position == 0:
        return _gather_integers(call, form)
    return None


def _multiply_by_integers(call: Call, form: IntegerForm) -> Call | None:
    kernel = call.kernel
    if (form.depth, form.lanes) != (call.args["depth"], call.args["panel"]):
        return None
    suffix = kernel.name.removeprefix(MATMUL.name)
    name = f"matmul_i{form.bits}_f32{suffix}"
    params = {**kernel.params, "bits": form.bits, "few": FEW_ROWS}
    if "steps" in params:
        params["finish"] = render_finish(name, list_steps(kernel))
    fields = (*kernel.fields, ("span", "i64"))
    helpers = (*GEMM, GEMM_TILES, *STORED)
    added = (helper for helper in kernel.helpers if helper not in helpers)
    product = Kernel(name, KERNELS / "matmul_stored.c.in", fields, params, (*helpers, *added))
    rows = call.args["rows"]
    assert isinstance(rows, int)
    floats = max(MAX_COLUMNS, form.lanes) * form.depth
    scratch = 4 * floats if rows > FEW_ROWS else 0
    args = {**call.args, "span": form.block}
    return replace(call, kernel=product, args=args, scratch=call.scratch + scratch)


def _gather_integers(call: Call, form: IntegerForm) -> Call | None:
    args = call.args
    elements = form.lanes if form.outer == 1 else form.depth * form.lanes
    count = form.depth if form.outer == 1 else form.outer
    # Along another axis than the first, a row of the table is a part of what an index names.
    if (args["n"], args["count"], args["bytes"]) != (args["rows"], count, 4 * elements):
        return None
    kernel = call.kernel
    fields = (*kernel.fields, *((name, "i64") for name in ("outer", "depth", "lanes", "span")))
    name = f"gather_i{form.bits}_{kernel.name.removeprefix('gather_')}"
    params = {**kernel.params, "bits": form.bits}
    gather = Kernel(name, KERNELS / "gather_stored.c.in", fields, params, (*kernel.helpers, *STORED))
    return replace(call, kernel=gather, args={**args, **integer_args(form)})


WIDENING = WideningKernels(
    f16=Kernel("widen_f16", KERNELS / "widen_f16.c.in", FIELDS, helpers=(HALF_BITS,)),
    sparse=Kernel("expand_sparse_f32", EXPAND, FIELDS, {"half": False}),
    sparse_f16=Kernel("expand_sparse_f16", EXPAND, FIELDS, {"half": True}, (HALF_BITS,)),
    integers_4=_widen_integers(4),
    integers_8=_widen_integers(8),
    read_integers=read_integers,
)

"""Pools over 1 to 3 spatial axes."""

from __future__ import annotations

from collections.abc import Mapping

from mace_core.emit.text import Code
from mace_core.ir import DType, Node
from mace_core.lowering import Lower, Lowering, Refused
from mace_core.ops.pool import AveragePoolAttributes, LpPoolAttributes, PoolAttributes
from mace_core.program import Arg, Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.conv import GEOMETRY, geometry, spatial
from mace_target_cpu.lower.types import C_TYPES, CAST, need_type, operands

POOL = KERNELS / "pool.c.in"

LEAST: Mapping[DType, tuple[str, str]] = {
    DType.F32: ("float", "-INFINITY"),
    DType.F64: ("double", "-INFINITY"),
    DType.I8: ("int8_t", "-128"),
    DType.U8: ("uint8_t", "0"),
    DType.I16: ("int16_t", "INT16_MIN"),
    DType.I32: ("int32_t", "INT32_MIN"),
    DType.I64: ("int64_t", "INT64_MIN"),
}
"""C type, and the value that every other exceeds."""


def _window_args(node: Node, lowering: Lowering) -> dict[str, Arg]:
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    return geometry(x, y, node.attributes(PoolAttributes).windows(len(x.shape) - 2))


def max_pool(node: Node, lowering: Lowering) -> None:
    """Lower MaxPool of the types in LEAST."""
    dtype = lowering.tensors[node.inputs[0]].dtype
    if dtype not in LEAST:
        known = ", ".join(t.value for t in LEAST)
        raise Refused(f"MaxPool of {dtype.value}; there are kernels for {known}", code="dtype", remedy=CAST)
    # A window that sees only padding gives the start value, the lowest that the type has.
    ctype, lowest = LEAST[dtype]
    params = {
        "ctype": Code(ctype),
        "start": Code(f"({lowest})"),
        "kind": Code("max"),
        "bytes": dtype.size,
    }
    kernel = Kernel(f"max_pool_{dtype.value}", POOL, GEOMETRY, params)
    lowering.call(node, Call(kernel, _window_args(node, lowering), node.inputs, node.outputs))


def average_pool(node: Node, lowering: Lowering) -> None:
    """Lower AveragePool of floats of 32 or 64 bits."""
    dtype = lowering.tensors[node.inputs[0]].dtype
    if dtype is not DType.F64:
        need_type(node, *operands(node, lowering))
    params = {
        "ctype": C_TYPES[dtype],
        "start": 0,
        "kind": Code("average"),
        "bytes": dtype.size,
    }
    kernel = Kernel(
        f"average_pool_{dtype.value}", POOL, (*GEOMETRY, ("after", "i32[3]"), ("count_pad", "i32")), params
    )
    attrs = node.attributes(AveragePoolAttributes)
    after, count_pad = attrs.pads_after, attrs.count_pad
    args = _window_args(node, lowering) | {"after": spatial(after, 0), "count_pad": bool(count_pad)}
    lowering.call(node, Call(kernel, args, node.inputs, node.outputs))


def lp_pool(node: Node, lowering: Lowering) -> None:
    """Lower LpPool of f32."""
    need_type(node, *operands(node, lowering))
    p = node.attributes(LpPoolAttributes).p
    params = {"ctype": Code("float"), "start": 0, "kind": Code("lp"), "bytes": 4}
    kernel = Kernel("lp_pool_f32", POOL, (*GEOMETRY, ("p", "i32")), params)
    lowering.call(node, Call(kernel, _window_args(node, lowering) | {"p": p}, node.inputs, node.outputs))


LOWERINGS: dict[str, Lower] = {"MaxPool": max_pool, "AveragePool": average_pool, "LpPool": lp_pool}

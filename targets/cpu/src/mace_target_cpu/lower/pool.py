"""Pooling over windows."""

from __future__ import annotations

from collections.abc import Mapping

from mace_core.ir import Node
from mace_core.kernel_target import Lower
from mace_core.program import Kernel, Lowering
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.conv import need_floats, three

FIELDS = (
    ("in", "i32[4]"),
    *((name, "i32[3]") for name in ("out", "kernel", "stride", "pad", "pad_after", "dilation")),
    ("images", "i32"),
    ("count_pad", "i32"),
)
MATH, POWER = KERNELS / "math.h.in", KERNELS / "power.h.in"

MAX = {"initial": "-INFINITY", "step": "vf_select((v > total) | (v != v), v, total)", "final": ""}
MEAN = {"initial": "0.0f", "step": "total + v", "final": "total /= vf_set(count);"}
NORMS: Mapping[int, Mapping[str, str]] = {
    1: {"initial": "0.0f", "step": "total + vf_abs(v)", "final": ""},
    2: {"initial": "0.0f", "step": "total + v * v", "final": "total = vf_sqrt(total);"},
}


def pool(node: Node, to: Lowering) -> None:
    """MaxPool, AveragePool, LpPool."""
    need_floats(node, to)
    x, y = to.shape(node.inputs[0]), to.shape(node.outputs[0])
    kernel, attrs = _kernel(node), node.attrs
    args = {
        "in": (*three(x[1:-1], 1), x[-1]),
        "out": three(y[1:-1], 1),
        "kernel": three(attrs["kernel"], 1),
        "stride": three(attrs["strides"], 1),
        "pad": three(attrs["pads_before"], 0),
        "pad_after": three(attrs["pads_after"], 0),
        "dilation": three(attrs["dilations"], 1),
        "images": x[0],
        "count_pad": int(bool(attrs.get("count_pad", False))),
    }
    to.call(node, kernel, args, node.inputs, node.outputs)


def _kernel(node: Node) -> Kernel:
    template = KERNELS / "pool.c.in"
    if node.op.name == "MaxPool":
        return Kernel("maxpool_f32", template, FIELDS, MAX)
    if node.op.name == "AveragePool":
        return Kernel("averagepool_f32", template, FIELDS, MEAN)
    p = node.attrs["p"]
    assert isinstance(p, int)
    general = {
        "initial": "0.0f",
        "step": f"total + vf_exp({p}.0f * vf_log(vf_abs(v)))",
        "final": f"total = vf_exp(vf_log(total) / {p}.0f);",
    }
    return Kernel(f"lppool_{p}_f32", template, FIELDS, NORMS.get(p, general), (MATH,))


LOWERINGS: Mapping[str, Lower] = dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), pool)

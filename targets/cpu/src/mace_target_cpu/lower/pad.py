"""Pad, by a table of source offsets for each axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mace_core.ir import Array, DType, Node
from mace_core.kernel_target import Lower
from mace_core.program import Kernel, Lowering, Refused
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.move import dense

RANK = 6
FIELDS = (("fill", "i64"), ("dims", "i32[6]"), ("start", "i32[6]"))


def take(node: Node, to: Lowering, tables: Sequence[Array], fill: float = 0.0) -> None:
    """y[i...] = x[sum over the axes of table[i]]; -1 in a table stands for `fill`."""
    if len(tables) > RANK:
        raise Refused(f"{len(tables)} axes; the kernel loops over {RANK}")
    lead = [np.zeros(1, np.int32)] * (RANK - len(tables))
    whole = [*lead, *(t.astype(np.int32) for t in tables)]
    data = np.concatenate(whole)
    starts = np.cumsum([0, *(len(t) for t in whole)])[:-1]
    dtype = to.tensors[node.inputs[0]].dtype
    kernel = Kernel(f"take_{8 * dtype.size}", KERNELS / "take.c.in", FIELDS, {"bits": 8 * dtype.size})
    name = to.weight(f"{node.name}.tables", data.shape, "i4", lambda: data)
    args = {"fill": _bits(fill, dtype), "dims": tuple(len(t) for t in whole), "start": tuple(map(int, starts))}
    to.call(node, kernel, args, [node.inputs[0], name], node.outputs)


def _bits(value: float, dtype: DType) -> int:
    """The value's bytes as an integer of the same size."""
    number = np.array([value]).astype(dtype.numpy)
    return int(number.view(f"i{dtype.size}")[0])


MODES: Mapping[str, str] = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}


def pad(node: Node, to: Lowering) -> None:
    """Every mode of numpy.pad that the op has."""
    shape, mode, value = to.shape(node.inputs[0]), node.attrs["mode"], node.attrs["value"]
    before, after = node.attrs["before"], node.attrs["after"]
    assert isinstance(before, tuple)
    assert isinstance(after, tuple)
    assert isinstance(value, int | float)
    tables = []
    for dim, step, ahead, behind in zip(shape, dense(shape), before, after, strict=True):
        own = np.arange(dim) * step
        how = {"mode": MODES[str(mode)]} if mode != "constant" else {"constant_values": -1}
        tables.append(np.pad(own, (ahead, behind), **how))
    take(node, to, tables, float(value))


LOWERINGS: Mapping[str, Lower] = {"Pad": pad}

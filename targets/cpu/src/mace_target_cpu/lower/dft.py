"""DFT: by the factors of its length; and Det."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from mace_core.ir import Array, Node
from mace_core.lowering import Lower, Lowering
from mace_core.ops.dft import DFTAttributes
from mace_core.program import Call, Kernel
from mace_target_cpu.isa import KERNELS
from mace_target_cpu.lower.gather import ROWS
from mace_target_cpu.lower.strided import MOVE, chunks
from mace_target_cpu.lower.types import need_type

FACTORS = 32
"""More than any length below 2 ** 32 has."""

SIZES = ("inner", "count", "parts", "length", "results", "kept")
FIELDS = (
    *((n, "i64") for n in SIZES),
    ("factor", f"i32[{FACTORS}]"),
    *((n, "i32") for n in ("factors", "hermitian")),
    *((n, "f32") for n in ("sign", "scale")),
    *ROWS,
)


NEXT_FACTOR = {4: 2, 2: 3}
"""After 4 comes 2, for at most one is left; behind 3 the odd numbers."""


def factors(n: int) -> tuple[int, ...]:
    """Return the factors of a length: fours as far as they go, then the primes."""
    radices, p = [], 4
    while n > 1:
        if n % p == 0:
            radices.append(p)
            n //= p
        else:
            p = NEXT_FACTOR.get(p, p + 2)
            # What has no factor up to its root is a prime itself.
            p = p if p * p <= n else n
    return tuple(radices)


def dft(node: Node, lowering: Lowering) -> None:
    """Lower DFT: rows lie along the axis; the turns by every fraction of a circle are constants."""
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    need_type(node, x)
    if y.elements == 0:
        return
    attrs = node.attributes(DFTAttributes)
    axis, length = attrs.axis % len(x.shape), attrs.length
    inner, inverse = prod(x.shape[axis + 1 : -1]), attrs.inverse
    radices = factors(length)

    def make() -> Array:
        # In double precision, then rounded: angles near 2 pi lose digits in floats.
        turns = -2 * np.pi * np.arange(length) / length
        return np.stack([np.cos(turns), np.sin(turns)], -1).astype(np.float32)

    args = {
        "inner": inner,
        "count": x.shape[axis],
        "parts": x.shape[-1],
        "length": length,
        "results": y.shape[axis],
        "kept": y.shape[-1],
        "factor": (*radices, *(0,) * (FACTORS - len(radices))),
        "factors": len(radices),
        "hermitian": int(inverse and attrs.onesided),
        "sign": -1.0 if inverse else 1.0,
        "scale": 1 / length if inverse else 1.0,
        **chunks(prod(x.shape[:axis]) * inner, 8 * length * max(1, sum(radices))),
    }
    turns = lowering.weight(f"{y.name}.turns", (length, 2), "f4", make)
    kernel = Kernel("dft_f32", KERNELS / "dft.c.in", FIELDS, {}, (MOVE,))
    lowering.call(node, Call(kernel, args, [x.name, turns], [y.name], scratch=16 * length))


def det(node: Node, lowering: Lowering) -> None:
    """Lower Det, one matrix after another."""
    x, y = lowering.tensors[node.inputs[0]], lowering.tensors[node.outputs[0]]
    need_type(node, x)
    n = x.shape[-1]
    if y.elements == 0:
        return
    kernel = Kernel("det_f32", KERNELS / "det.c.in", (("n", "i64"), *ROWS), {}, (MOVE,))
    lowering.call(
        node,
        Call(kernel, {"n": n, **chunks(y.elements, 8 * n**3)}, node.inputs, node.outputs, scratch=8 * n * n),
    )


LOWERINGS: Mapping[str, Lower] = {"DFT": dft, "Det": det}

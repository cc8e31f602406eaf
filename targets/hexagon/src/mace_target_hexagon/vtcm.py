"""The memory of the DSP's vector units as fast memory of a plan: its size, and which calls gain from it.

Vector loads from VTCM (vector tightly coupled memory) need no cache, so that nothing evicts what lies there.
Scalar loads from it do without the first-level cache, too, and are slower than from ordinary memory. So a
tensor lies there only if all kernels that read it do so by vectors. Source: Hexagon V66 HVX Programmer's
Reference Manual, "HVX local memory: VTCM".
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from mace_core.ir import DType
from mace_core.part import FastMemory, MemorySpace
from mace_core.program import Call
from mace_target_cpu.quantized.conv import CONV
from mace_target_cpu.quantized.storage import CODES
from mace_target_hexagon.isa import HVX, KERNELS

DEFAULT_KB: Mapping[str, int] = {
    "hexagon-v66": 256,
    "hexagon-v68": 2048,
    "hexagon-v69": 2048,
    "hexagon-v73": 2048,
}
"""KB that a model may take of the DSP's VTCM, by ABI.

All that v66 has (SM8150), and a part of the 4 MB or more of later ones, because others want some, too.
"""

MAX_KB = 16384


def describe_vtcm(kb: int) -> FastMemory | None:
    """Return the memory of a DSP that may give so many KB; None for 0."""
    if not kb:
        return None
    # A register of HVX has 128 bytes.
    return FastMemory(MemorySpace("vtcm", 128, 128, capacity=kb * 1024), reads_by_vectors)


def reads_by_vectors(call: Call) -> bool:
    """Tell whether a call reads its tensors by vector loads alone, where it is made with vectors at all."""
    if not call.is_made_at(HVX.name):
        return True
    hvx_templates = {path.name for path in HVX.replaces} | {path.name for path in KERNELS.iterdir()}
    if call.kernel.template.name in hvx_templates:
        return True
    # Convolutions copy int8 as unsigned bytes by vectors; uint8 may be read in place, by scalar loads.
    if call.kernel.template.name != CONV.name or call.args["x_type"] != CODES[DType.I8]:
        return False
    kernel = call.args["kernel"]
    assert isinstance(kernel, tuple)
    return bool(call.args["strip"]) or math.prod(kernel) == 1

"""What a graph and the levels of a library need for `arithmetic: f16`."""

from __future__ import annotations

from collections.abc import Sequence

from mace_core.errors import MaceError
from mace_core.ir import DType, Graph
from mace_core.levels import Level
from mace_target_arm.isa import AARCH64
from mace_target_cpu.isa import CpuLevel

PLACE = "target_options: arm: arithmetic"


def need_half_sums(graph: Graph, abi: str, levels: Sequence[Level]) -> None:
    """Raise MaceError where `arithmetic: f16` would do nothing: for such levels, or for such a graph.

    Processors of 32 bits compute in floats silently: one deployment file may be for both.
    """
    if abi not in AARCH64.abis:
        return
    if not any(isinstance(level, CpuLevel) and level.half_sums for level in levels):
        names = ", ".join(str(level.name) for level in levels)
        problem = f"no level of the library ({names}) adds numbers of half precision"
        raise MaceError(PLACE, problem, "write cpu_features: [fp16, dotprod], or arithmetic: f32")
    products = [node for node in graph.nodes if node.op.name in ("Conv", "MatMul")]
    types = {graph.tensors[node.outputs[0]].dtype for node in products}
    if DType.F32 in types and DType.F16 not in types:
        problem = "f16 sums products of tensors in half precision, and the model's are floats"
        raise MaceError(PLACE, problem, "convert the model to half precision, or write arithmetic: f32")

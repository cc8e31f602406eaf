"""The levels of the CPU target: tiles that its kernels can be compiled for, panels that they can read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mace_core.errors import PluginError
from mace_core.ir import DType
from mace_core.kernel_target import KernelTarget
from mace_core.testing.compiled import case
from mace_target_cpu import Cpu
from mace_target_cpu.isa import GENERIC, VECTOR, X86, CpuLevel, Packing


@pytest.mark.parametrize("level", [*X86, *GENERIC], ids=lambda level: str(level.name))
def test_a_panel_holds_whole_tiles_and_a_tile_whole_registers(level: CpuLevel) -> None:
    assert level.panel % level.columns == 0
    assert level.columns % level.lanes == 0


@pytest.mark.parametrize("numbers", [(4, 6, 16), (4, 12, 16), (8, 16, 24)])
def test_a_level_whose_kernels_would_read_beside_their_panel_is_refused(numbers: tuple[int, int, int]) -> None:
    lanes, columns, panel = numbers
    with pytest.raises(PluginError, match=r"level odd: panels of .* do not divide each other; let a panel hold whole tiles"):
        CpuLevel("odd", (), "", VECTOR, lanes=lanes, rows=4, columns=columns, panel=panel)


def test_lowerings_pack_for_the_panel_of_the_level() -> None:
    assert Cpu().parameters(replace(X86[0], panel=32)) == Packing(32)
    assert Cpu().parameters(None) == Packing(16)


def test_a_target_that_borrows_lowerings_without_their_parameters_is_told_so() -> None:
    class Borrower(KernelTarget):
        name = "borrower"
        runtime = "cpu"
        lowerings = Cpu().lowerings

        def levels(self, abi: str) -> tuple[CpuLevel, ...]:
            return GENERIC

    graph = case("product", "MatMul", [np.zeros((2, 3), np.float32), np.zeros((3, 4), np.float32)], constants=(1,))
    assert graph.tensors["y0"].dtype is DType.F32
    with pytest.raises(PluginError, match=r"parameters\(\) returns no Packing; derive the target from mace_target_cpu.Cpu"):
        Borrower().refuses(graph.nodes[0], graph)

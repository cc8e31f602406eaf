"""Transposed bytes, and joined ones of other scales, on HVX."""

from __future__ import annotations

from pathlib import Path

import pytest
from emulated import assert_equal
from test_halves import draw

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph, Quant, Storage
from mace_core.testing.compiled import merge

FLAGS = ("-O1", "-s")
I8 = Storage(DType.I8, Quant.of(0.05, -3))
FINER = Storage(DType.I8, Quant.of(0.031, 7))


def move(name: str, op: str, shape: tuple[int, ...], **attrs: object) -> Graph:
    """Return an op that moves the elements of one tensor."""
    builder = Builder(name)
    x = builder.input("x", I8.dtype, shape, I8.quant)
    return builder.finish(builder.add(op, [x], attrs, outputs=[builder.reserve_output("y", I8)]))


def join(name: str, channels: tuple[int, int]) -> Graph:
    """Return a Concat whose second operand has another scale than its result."""
    builder = Builder(name)
    operands = [
        builder.input(f"x{i}", I8.dtype, (1, 3, 5, count), storage.quant)
        for i, (count, storage) in enumerate(zip(channels, (I8, FINER), strict=True))
    ]
    outputs = [builder.reserve_output("y", I8)]
    return builder.finish(builder.add("Concat", operands, {"axis": 3}, outputs=outputs))


CASES = (
    move("channels_first", "Transpose", (1, 9, 7, 70), perm=(0, 3, 1, 2)),
    move("channels_last", "Transpose", (2, 33, 5, 8), perm=(0, 2, 3, 1)),
    move("matrix", "Transpose", (64, 96), perm=(1, 0)),
    move("odd_matrix", "Transpose", (37, 131), perm=(1, 0)),
    move("colors", "Transpose", (1, 19, 17, 3), perm=(0, 3, 1, 2)),
    move("to_colors", "Transpose", (1, 3, 19, 17), perm=(0, 2, 3, 1)),
    move("narrow", "Transpose", (5, 6), perm=(1, 0)),
    move("heads", "Transpose", (1, 9, 4, 32), perm=(0, 2, 1, 3)),
    move("depth_to_space", "DepthToSpace", (1, 3, 5, 24), block=2),
    move("space_to_depth", "SpaceToDepth", (1, 6, 4, 9), block=2),
    join("scales", (24, 33)),
)


@pytest.mark.slow
@pytest.mark.emulator
def test_moved_bytes_are_those_of_the_cpu(tmp_path: Path) -> None:
    graph = merge("moves", CASES)
    assert_equal(graph, draw(graph, extremes=False), tmp_path, ("hvx", "plain"), FLAGS)

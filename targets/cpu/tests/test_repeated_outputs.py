"""Models that list a tensor twice among their outputs, as files of TensorFlow Lite do: each output is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from mace_core.emit import code
from mace_core.testing.compiled import case, compile_graphs, plan_graph
from mace_target_cpu import Cpu


def test_every_output_of_the_same_name_is_written(tmp_path: Path) -> None:
    graph = case("twice", "Relu", [np.zeros((1, 4), np.float32)])
    graph = replace(graph, outputs=("y0", "y0", "y0"))
    files = code.library("net", [plan_graph(Cpu(), graph)], Cpu().levels("host")).files
    program = files["net_twice_program.c"]
    assert isinstance(program, str)
    assert "memcpy(out[1], out[0], 16)" in program
    assert "memcpy(out[2], out[0], 16)" in program
    compile_graphs(Cpu(), [graph], tmp_path)

"""Test doubles of the vendor's compilers, and small files to compile. Every double stamps what it writes."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import numpy as np

from mace_core.graph_builder import Builder
from mace_core.ir import DType, Graph
from mace_target_mdla.options import MdlaOptions
from mace_target_mdla.socs import find_soc
from mace_tflite_writer import write_tflite

FAKE = Path(__file__).parent / "compilers/fake_ncc.py"


def graph(dtype: DType = DType.F32) -> Graph:
    builder = Builder("small")
    x = builder.input("x", dtype, (1, 4))
    return builder.finish([builder.one("Add", [x, builder.weight("w", np.ones((1, 4), dtype.numpy))])])


FLOATS = write_tflite(graph())
INTEGERS = write_tflite(graph(DType.I32))


def install_fake(folder: Path) -> Path:
    """Return a program in a folder that runs the test double."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "ncc-tflite"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{FAKE}" "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def options(generation: str = "3.0", soc: str = "", **others: str) -> MdlaOptions:
    found = find_soc(soc, "test") if soc else None
    return MdlaOptions(found.generation if found else generation, found, **others)  # type: ignore[arg-type]

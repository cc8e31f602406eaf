"""Products of sums with floats are rounded in integers as the float unit rounds them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from emulated import require_compiler

from mace_core.emit.render import render
from mace_target_hexagon.isa import HVX, KERNELS

PROBE = Path(__file__).parent / "probe" / "scale_probe.c"


@pytest.mark.slow
@pytest.mark.emulator
def test_640000_products_are_rounded_as_floats_are(tmp_path: Path) -> None:
    compiler = require_compiler()
    (tmp_path / "hvx.h").write_text(render(KERNELS / "hvx.h.in", level=HVX))
    (tmp_path / "scale_probe.c").write_text(PROBE.read_text())
    command = [*compiler.cc, *compiler.flags, *compiler.program, "-O2", "-s", "scale_probe.c", "-o", "probe"]
    subprocess.run(command, cwd=tmp_path, check=True)
    run = subprocess.run(["qemu-hexagon", "probe"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert run.stdout == "0 products differ; 1 ties; 1 doubts\n0 copies differ\n"

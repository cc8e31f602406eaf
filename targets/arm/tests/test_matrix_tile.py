"""The inner loop of the matrix product for 64-bit ARM, as the zig toolchain compiles it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from mace_core.emit import code
from mace_core.plan import plan_calls
from mace_core.registry import Registry
from mace_core.run.files import write_all
from mace_core.testing.compiled import case
from mace_core.testing.requirements import require
from mace_target_arm import Arm

ABI = "arm64-v8a"


@pytest.mark.slow
def test_the_inner_loop_of_the_tile_keeps_all_sums_in_registers(tmp_path: Path) -> None:
    registry = Registry.load()
    if "zig" not in registry.toolchains:
        require("toolchain zig is not installed: pip install mace-toolchain-zig")
    toolchain = registry.toolchains["zig"]
    require(toolchain.missing(ABI))
    compiler = toolchain.compiler(ABI)
    factors = [np.ones(shape, np.float32) for shape in ((64, 64), (64, 64))]
    program = Arm().lower(case("product", "MatMul", factors, constants=(1,)))
    sources = code.library("tile", [plan_calls(program)], Arm().levels(ABI))
    write_all(tmp_path, sources.files)
    (kernels,) = [name for name in sources.files if name.endswith("_kernels_neon.c")]
    command = [*compiler.cc, *compiler.flags, "-O3", "-S", kernels, "-o", "tile.s"]
    subprocess.run(command, cwd=tmp_path, check=True)
    loop = inner_loop((tmp_path / "tile.s").read_text(), "gemm_6x4")
    # Four steps of 24 multiply-adds; of 22 registers that are loaded, 6 hold rows and 16 weights.
    assert loop.count("fmla") == 96
    assert len(re.findall(r"\bq\d+", loop)) <= 22
    assert "[sp" not in loop
    assert not re.search(r"\bmov\s+v\d+", loop)


def inner_loop(assembly: str, function: str) -> str:
    """Return the part between two labels of a function that has the most multiply-adds."""
    # The compiler's comments name registers too: which variable lies where, for debuggers.
    assembly = re.sub(r"//.*", "", assembly)
    body = assembly[assembly.index(f"\n{function}:") :]
    body = body[: body.index(".Lfunc_end")]
    return max(re.split(r"\n\.LBB\w+:", body), key=lambda part: part.count("fmla"))

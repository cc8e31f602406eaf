"""A real model on processors that this machine is not, and for systems that it does not have: built by zig, executed, validated."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from small_project import MACE, ROOT, quick_environment, run

from mace_core.registry import Registry
from mace_core.testing.requirements import require

pytestmark = [pytest.mark.slow, pytest.mark.emulator]
SAMPLES = 3


@pytest.mark.parametrize("abi", ["amd64", "riscv64", "x86", "x86_64"])
def test_digits_are_validated(abi: str, tmp_path: Path) -> None:
    """Programs are static: those for Android's x86 and x86_64 need no Android."""
    zig = Registry.load().toolchains["zig"]
    require(zig.missing(abi))
    runner = zig.runner(abi)
    assert runner is not None
    require(runner.missing())
    folder = tmp_path / "digits"
    shutil.copytree(ROOT / "models" / "digits", folder, ignore=shutil.ignore_patterns("builds"))
    for name in ("test_inputs.npy", "test_outputs.npy"):
        np.save(folder / name, np.load(folder / name)[:SAMPLES])
    environment = quick_environment(tmp_path)
    run([*MACE, "build", "digits.yml", "--target", abi], folder, environment)
    assert "passed" in run([*MACE, "validate", "digits.yml", "--target", abi], folder, environment)
    library = (folder / f"builds/digits/lib/{abi}/libdigits.so").read_bytes()
    assert (b"GLIBC" in library) == (abi in ("amd64", "riscv64"))

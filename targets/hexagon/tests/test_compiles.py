"""Everything compiles for the processors and DSPs that nothing here executes."""

from __future__ import annotations

from pathlib import Path

import pytest
from dsp_session import small_graph
from emulated import require_compiler
from test_random_networks import merge_networks

from mace_core.api import Compiler
from mace_core.run.compile import check_syntax, shared_library
from mace_core.testing.compiled import generate_library, load_registry, with_quick_flags
from mace_core.testing.probe_program import generate_session
from mace_core.testing.requirements import require
from mace_target_hexagon.processor import Hvx

EM_ARM, EM_AARCH64 = 40, 183


def find_compiler(abi: str) -> Compiler:
    toolchain = load_registry().find_toolchain(abi)
    require(toolchain.missing(abi))
    return toolchain.compiler(abi)


@pytest.mark.exhaustive
@pytest.mark.parametrize("version", [68, 69, 73])
def test_kernels_compile_for_versions_that_qemu_refuses(version: int, tmp_path: Path) -> None:
    """With warnings as errors, at both levels: HVX, and plain C."""
    require_compiler()
    abi = f"hexagon-v{version}"
    sources = generate_library([Hvx()], [merge_networks(range(4))], abi)
    kernels = [name for name in sources.files if "_kernels_" in name]
    assert any("hvx" in name for name in kernels)
    assert any("plain" in name for name in kernels)
    check_syntax(sources, find_compiler(abi), tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("abi", "machine"), [("arm64-v8a", EM_AARCH64), ("armeabi-v7a", EM_ARM)])
def test_a_library_for_android_links_with_the_driver(abi: str, machine: int, tmp_path: Path) -> None:
    compiler = find_compiler(abi)
    sources = generate_session(small_graph(), f"{abi}+hexagon")
    library = shared_library(with_quick_flags(sources, compiler), compiler, tmp_path, ("-O0",))
    head = library.read_bytes()
    assert int.from_bytes(head[18:20], "little") == machine
    assert b"libcdsprpc.so" in head, "the driver looks for it"
    assert b"m_hexagon" in head, "the DSP library that a session opens"

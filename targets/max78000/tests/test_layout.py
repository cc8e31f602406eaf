"""Which files a project has, and which of them a tool compiles for either core."""

from __future__ import annotations

import pytest

from mace_target_max78000.firmware.layout import header, headers, layout, own_sources, sources
from mace_target_max78000.options import Options

BARE = "board/bare/"


def files(**asked: object) -> set[str]:
    return set(layout(Options.of(asked, "here")))


def test_files_of_a_project() -> None:
    """The board layer of the RISC-V core, its start and its linker script come with a program for it only."""
    plain, riscv, softmax = files(), files(riscv=True), files(softmax=True)
    assert {"main.c", "cnn.c", "cnn.h", "weights.h", "sampledata.h", "sampleoutput.h"} <= plain
    assert riscv - plain >= {"main_riscv.c"}
    assert {name for name in riscv - plain if "riscv" not in name} == set()
    assert plain - riscv == set()
    assert "softmax.c" in softmax
    assert "softmax.c" not in plain
    assert not any(name.endswith(".in") for name in plain | riscv)


@pytest.mark.parametrize(
    ("riscv_program", "riscv_core", "own"),
    [
        (False, False, {"main.c", "cnn.c"}),
        (False, True, set()),
        (True, False, {"main.c"}),
        (True, True, {"main_riscv.c", "cnn.c"}),
    ],
)
def test_what_is_compiled_for_either_core(riscv_program: bool, riscv_core: bool, own: set[str]) -> None:
    paths = files(riscv=riscv_program)
    result = sources(paths, riscv_core)
    assert set(own_sources(paths, riscv_core)) == own
    board = {name for name in result if name.startswith(BARE)}
    assert set(result) == own | board
    assert board
    assert all(name.endswith(".c") for name in board)
    assert any("cortex" in name for name in board) is not riscv_core
    assert list(own_sources(paths, riscv_core)) == sorted(own)
    # The Cortex-M4 is meant where nothing is said.
    assert sources(paths) == sources(paths, False)
    assert own_sources(paths) == own_sources(paths, False)


def test_headers() -> None:
    assert headers(["b.h", "a.c", "board/x.h", "h"]) == ("b.h", "board/x.h")
    assert header(Options.of({"api_filename": "net.c"}, "here")) == "net.h"

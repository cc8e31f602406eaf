"""The files of a project, and what is no firmware."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from project_images import (
    Build,
    Recorder,
    image_of,
    network_of,
    strict,
)

from mace_core.errors import MaceError
from mace_core.registry import Registry
from mace_core.run.files import write_all
from mace_core.testing.requirements import require
from mace_target_max78000.device import MAX78000
from mace_target_max78000.emulator.command import run_firmware
from mace_target_max78000.firmware import emit_project
from mace_target_max78000.firmware.layout import build_firmware
from mace_target_max78000.image import Write
from mace_target_max78000.options import Options


def test_nothing_but_the_network_changes_a_project() -> None:
    first, second = (emit_project(image_of(MAX78000), network_of(), Options(), "A\n  B") for _ in range(2))
    assert first == second
    assert {
        "cnn.c",
        "cnn.h",
        "main.c",
        "weights.h",
        "sampledata.h",
        "sampleoutput.h",
        "Makefile",
        "log.txt",
    } <= set(first)
    assert not any(str(Path.home()) in str(text) or str(Path.cwd()) in str(text) for text in first.values())
    assert " * A\n *   B\n */" in str(first["cnn.h"])
    assert str(first["main.c"]).endswith("/*\n * A\n *   B\n */\n")


@pytest.mark.exhaustive
@pytest.mark.slow
def test_row_memories_are_cleared(quick_build: Build) -> None:
    accelerator = Recorder()
    assert run_firmware(
        quick_build(image_of(MAX78000), network_of(), Options(init_tram=True)), MAX78000, accelerator
    ).passed
    cleared = {a for a, v, _ in accelerator.writes if v == 0}
    for quadrant in (0, 1):
        for processor in range(16):
            first = MAX78000.tram + quadrant * MAX78000.quadrant_pitch + processor * MAX78000.tram_pitch
            assert cleared.issuperset(range(first, first + 4 * MAX78000.tram_words, 4))
    assert not any(
        MAX78000.tram + 2 * MAX78000.quadrant_pitch <= a < MAX78000.kernels + 2 * MAX78000.quadrant_pitch
        for a in cleared
    )


def test_macros_are_the_users() -> None:
    files = emit_project(
        image_of(MAX78000), network_of(), Options.of({"define": "FAST LEVEL=2"}, "options"), ""
    )
    assert "\nDEFINES := -DFAST -DLEVEL=2\n" in str(files["Makefile"])


def test_a_code_of_weights_is_loaded_in_one_way() -> None:
    with pytest.raises(MaceError, match="table_driven: its weights are in a code"):
        emit_project(image_of(MAX78000), network_of(), Options(table_driven=True, mexpress=False), "")


def test_names_of_files_are_the_users() -> None:
    names = {"c": "app.c", "api": "net.c", "weight": "w.h", "sample": "in.h", "sample_output": "out.h"}
    options = Options.of({f"{name}_filename": file for name, file in names.items()}, "options")
    files = emit_project(image_of(MAX78000), network_of(), options, "")
    assert {"app.c", "net.c", "net.h", "w.h", "in.h", "out.h"} <= set(files)
    assert '#include "net.h"\n#include "in.h"\n#include "out.h"' in str(files["app.c"])
    assert '#include "net.h"\n#include "w.h"' in str(files["net.c"])


def test_left_out() -> None:
    files = emit_project(image_of(MAX78000), network_of(), Options(unload=False, known_answer=False), "")
    assert "sampleoutput.h" not in files
    assert "cnn_unload" not in str(files["main.c"]) + str(files["cnn.h"]) + str(files["cnn.c"])
    assert "check_output" not in str(files["main.c"])


@pytest.mark.slow
def test_a_network_that_never_ends(quick_build: Build) -> None:
    image = replace(image_of(MAX78000), start=(Write(MAX78000.control_register(1, 0), 1),))
    with pytest.raises(MaceError, match="waits for an interrupt that never comes"):
        run_firmware(quick_build(image, network_of(), Options()), MAX78000, Recorder())


@pytest.mark.slow
def test_a_warning_of_a_compiler_stops_no_build(tmp_path: Path) -> None:
    """Compilers that we have never seen have warnings of their own; our tests refuse all that they warn of."""
    toolchain = Registry.load().toolchains["zig"]
    require(toolchain.missing("cortex-m4"))
    files = emit_project(image_of(MAX78000), network_of(), Options(), "")
    warned = {**files, "main.c": str(files["main.c"]) + "\nstatic int unused_variable;\n"}
    compiler = toolchain.compiler("cortex-m4")
    assert build_firmware(warned, compiler, tmp_path / "plain")
    with pytest.raises(MaceError, match="unused_variable"):
        build_firmware(warned, strict(compiler), tmp_path / "strict")


def test_what_is_no_firmware() -> None:
    with pytest.raises(MaceError, match="no ELF file"):
        run_firmware(b"hello", MAX78000, Recorder())
    with pytest.raises(MaceError, match=r"is for EM_X86_64; build it for cortex-m4|is for EM_AARCH64"):
        run_firmware(Path(sys.executable).resolve().read_bytes(), MAX78000, Recorder())


def test_make_builds_it(tmp_path: Path) -> None:
    require(Registry.load().toolchains["arm-none-eabi"].missing("cortex-m4"))
    require(None if shutil.which("make") else "make is not in PATH: apt-get install make")
    write_all(tmp_path, emit_project(image_of(MAX78000), network_of(), Options(softmax=True, timer=0), ""))
    subprocess.run(
        ["make", "-s"], cwd=tmp_path, check=True, capture_output=True, env={"PATH": os.environ["PATH"]}
    )
    assert run_firmware((tmp_path / "build/cnn.elf").read_bytes(), MAX78000, Recorder()).passed

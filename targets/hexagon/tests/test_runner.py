"""Programs whose library calls a DSP run beside the emulated one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from dsp_session import small_graph

from mace_core.errors import MaceError
from mace_core.run.compile import program
from mace_core.run.reference import execute
from mace_core.run.runners import Native, Qemu
from mace_core.testing.compiled import build_device_libraries, host, random_inputs
from mace_core.testing.probe_program import generate_session
from mace_core.testing.requirements import require
from mace_target_hexagon.emulator import EmulatedDsp, runner
from mace_target_hexagon.emulator.runner import BesideDsp
from mace_target_hexagon.target import Hexagon


def test_a_machine_with_a_dsp_needs_no_emulated_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "find_library", lambda name: "libcdsprpc.so" if name == "cdsprpc" else None)
    assert Hexagon().runner() is None
    monkeypatch.setattr(runner, "find_library", lambda name: None)
    assert isinstance(Hexagon().runner(), BesideDsp)


@pytest.mark.parametrize("head", [b"#!/bin/sh\n", b"\x7fELF" + bytes(14) + b"\xa4\x00"])
def test_what_is_no_program_of_a_known_processor_is_refused(head: bytes, tmp_path: Path) -> None:
    """A script; a program for Hexagon (e_machine 164), which stands beside no other processor."""
    file = tmp_path / "mace_run"
    file.write_bytes(head + bytes(40))
    with pytest.raises(MaceError, match="is no program of a processor that is emulated here"):
        BesideDsp().command(file, [])


def test_a_missing_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MaceError, match="cannot be read"):
        BesideDsp().command(tmp_path / "mace_run", [])


def test_a_cache_that_others_can_change_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require(BesideDsp().missing())
    (tmp_path / "hexagon").mkdir()
    (tmp_path / "hexagon").chmod(0o777)
    monkeypatch.setenv("MACE_CACHE", str(tmp_path))
    command = Native().command(Path("/proc/self/exe"), [])
    with pytest.raises(MaceError, match="can be changed by others"):
        BesideDsp().command(Path(command[0]), [])


def test_a_program_of_another_processor_finds_its_c_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bin/CHOICE; its DSP libraries are in lib/CHOICE."""
    monkeypatch.setattr(runner, "_make_emulator", lambda name: EmulatedDsp(tmp_path, tmp_path / name))
    monkeypatch.setattr(Qemu, "command", lambda self, program, words: [self.processor, str(program), *words])
    monkeypatch.setattr(runner, "processor", lambda: "another")
    monkeypatch.setattr(runner, "linux", Qemu)
    file = tmp_path / "bin/arm64+hexagon/mace_run"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"\x7fELF" + bytes(14) + b"\xb7\x00" + bytes(40))
    words = BesideDsp().command(file, ["--output=."])
    assert words[0] == "env"
    assert words[-5:] == ["aarch64", "-L", "/usr/aarch64-linux-gnu", str(file), "--output=."]
    libraries = f"{tmp_path}/lib/arm64+hexagon;{file.parent}"
    assert f"ADSP_LIBRARY_PATH={libraries}" in words


@pytest.mark.slow
@pytest.mark.emulator
def test_a_program_computes_beside_the_emulated_dsp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require(BesideDsp().missing())
    monkeypatch.setenv("MACE_CACHE", str(tmp_path / "cache"))
    graph = small_graph()
    sources = generate_session(graph, "host+hexagon")
    build_device_libraries(sources, tmp_path)
    path = program("mace_run", sources, host(), tmp_path, ("-O0",))
    inputs = random_inputs(graph)
    (tmp_path / "x.bin").write_bytes(inputs["x"].tobytes())
    for _ in range(2):
        # The second time with the programs that the first has kept.
        command = BesideDsp().command(path, [f"--output={tmp_path}", str(tmp_path / "x.bin")])
        subprocess.run(command, check=True)
        for i, (name, expected) in enumerate((name, execute(graph, inputs)[name]) for name in graph.outputs):
            actual = np.fromfile(tmp_path / f"output_{i}.bin", np.float32).reshape(expected.shape)
            assert (actual == expected).all(), name
    assert len(list((tmp_path / "cache/hexagon").iterdir())) == 1

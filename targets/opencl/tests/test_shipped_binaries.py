"""What devices compiled, shipped in the library: used where it fits, and compiled again with a word where it does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from cuda_toolkit import CUBIN, PTX, write_toolkit
from stub_session import ProbeSession, build_probe, build_stub, stub_graph

from mace_core.api import BuildConfig, Region
from mace_core.compilation import Compilation, compile_graph
from mace_core.compiled_entry import CompiledEntry
from mace_core.deployment import Deployment, Model
from mace_core.errors import MaceError
from mace_core.part import BlobBody
from mace_core.registry import Registry
from mace_core.run.device_binaries import BinaryCollector, DeviceBinaries
from mace_core.run.tuning_job import TuningJob
from mace_target_opencl.options import OpenclOptions
from mace_target_opencl.target import Opencl

FRESH = "compiled here: the library has no kernels for this device and driver"


def compile_stub(target: Opencl, folder: Path) -> tuple[BlobBody, tuple[str, ...]]:
    """Return the body of the part of `stub_graph`, and what the build says of it."""
    region = Region(target, stub_graph())
    part = target.compile(region, BuildConfig("host", "host+opencl", Model("m", (folder / "m.onnx",))))
    assert isinstance(part.body, BlobBody)
    return part.body, part.notes


@pytest.mark.exhaustive
def test_a_library_with_binaries_needs_no_compiler(tmp_path: Path) -> None:
    entry = tmp_path / "stub.bin"
    probe = build_probe(tmp_path / "source")
    assert probe.run(ProbeSession(cache_file=str(entry))).find("stored") == [""]
    target = Opencl(OpenclOptions(binaries=(str(entry),)))
    shipped = build_probe(tmp_path / "shipped", target=target)
    log = shipped.run(FAIL="clCreateProgramWithSource:1:-5")
    assert log.find("open") == ["0"]
    assert log.find("run") == ["0", "0"]
    assert not any(FRESH in part for part in log.find("part"))
    # No option of a session changes what the device compiles.
    log = shipped.run(ProbeSession(options="opencl.device=gpu;opencl.kernel_us=0"))
    assert not any(FRESH in part for part in log.find("part"))
    # For another driver it is compiled from source, and so for a driver that does not take the binary.
    for log in (shipped.run(DRIVER="1.1"), shipped.run(FAIL="clCreateProgramWithBinary:1:-42")):
        assert log.find("open") == ["0"]
        assert log.find("run") == ["0", "0"]
        assert all(FRESH in part for part in log.find("part"))


def test_only_binaries_of_the_part_are_shipped(tmp_path: Path) -> None:
    body, notes = compile_stub(Opencl(), tmp_path)
    assert (body.compiled, notes) == ((), ())
    for name, text in (("own.bin", body.digest), ("other.bin", "0" * 64)):
        (tmp_path / name).write_bytes(b"MACEKERN" + text.encode() + b"rest")
    target = Opencl(OpenclOptions(binaries=("own.bin", "other.bin")))
    shipped, notes = compile_stub(target, tmp_path)
    assert shipped == replace(body, compiled=((tmp_path / "own.bin").read_bytes(),))
    assert notes == ()
    stale, notes = compile_stub(Opencl(OpenclOptions(binaries=("other.bin",))), tmp_path)
    assert stale.compiled == ()
    assert notes == (
        "opencl0: none of the 1 binaries is of its kernels; devices compile them, until mace tune writes new ones",
    )


def test_files_that_cannot_be_used_are_named_together(tmp_path: Path) -> None:
    (tmp_path / "text.bin").write_text("no kernels")
    target = Opencl(OpenclOptions(binaries=("absent.bin", "text.bin", "a\0b")))
    with pytest.raises(MaceError) as error:
        compile_stub(target, tmp_path)
    text = str(error.value)
    assert "'absent.bin' cannot be read" in text
    assert "'text.bin' holds no compiled kernels; write it by mace tune" in text
    assert "'a\\x00b' cannot be read" in text


@pytest.mark.parametrize("value", ["a.bin", [1], {"a": 1}])
def test_binaries_are_a_list_of_files(value: object) -> None:
    with pytest.raises(MaceError, match=r"binaries: .* is not allowed; write a list of files"):
        OpenclOptions.of({"binaries": value}, "here")  # type: ignore[dict-item]


def collect_stub(folder: Path, patch: pytest.MonkeyPatch, fault: str = "") -> DeviceBinaries:
    """Return what is collected of the stand-in for OpenCL, whose compiler writes PTX.

    fault: of the stand-in, while it loads what is assembled.
    """
    (folder / "kernels.ptx").write_bytes(PTX)
    for name, value in {"QUIET": "1", "BINARY": str(folder / "kernels.ptx"), "FAIL": fault}.items():
        patch.setenv(f"OPENCL_STUB_{name}", value)
    patch.setenv("LD_LIBRARY_PATH", str(build_stub(folder / "vendor")))
    registry = Registry.load()
    choice = registry.select("host+opencl")[0]
    model = Model("m", ())
    job = TuningJob(Deployment("lib", (model,)), choice, registry)
    compiled = compile_graph(model, stub_graph(), Compilation(choice, registry))
    built = job.build([compiled], job.find_runner(model), folder / "library")
    targets = [region.target for region in compiled.regions]
    return BinaryCollector.of(built, "m", targets, folder, lambda step: None).collect()


@pytest.mark.exhaustive
def test_ptx_is_assembled_and_loaded_by_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_HOME", str(write_toolkit(tmp_path)))
    binaries = collect_stub(tmp_path, monkeypatch)
    ((key, content),) = binaries.entries.items()
    entry = CompiledEntry.read(content, key)
    assert (entry.driver, entry.code) == ("opencl", CUBIN)
    assert binaries.notes == (f"{key} is assembled for the device, which loads it without compiling",)
    # A driver that does not take it is the only one who knows: PTX stays.
    (tmp_path / "refused").mkdir()
    refused = collect_stub(tmp_path / "refused", monkeypatch, "clCreateProgramWithBinary:1:-42")
    ((key, content),) = refused.entries.items()
    assert CompiledEntry.read(content, key).code == PTX
    assert refused.notes == (
        f"{key}: the device does not take it assembled, so it stays as the driver wrote it",
    )


@pytest.mark.exhaustive
def test_without_ptxas_the_files_have_ptx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mace_target_opencl.ptx.find_ptxas", lambda: None)
    binaries = collect_stub(tmp_path, monkeypatch)
    ((key, content),) = binaries.entries.items()
    assert CompiledEntry.read(content, key).code == PTX
    (note,) = binaries.notes
    assert note.startswith("ptxas: is neither on PATH nor in the folder bin of CUDA_HOME or CUDA_PATH")

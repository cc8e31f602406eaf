"""`mace_benchmark --compiled=FOLDER`, by which `mace tune` lets a device compile each kernel once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from opencl_device import require_device

from mace_core.deployment import load_deployment
from mace_core.generation import generate
from mace_core.job import Job
from mace_core.registry import Registry
from mace_core.run.built_library import BuiltLibrary
from mace_core.run.compile import link
from mace_core.run.runners import Native
from mace_core.testing.compiled import host, with_quick_flags

pytestmark = [pytest.mark.device, pytest.mark.exhaustive]

DIGITS = Path(__file__).parents[3] / "models" / "digits" / "digits.yml"


def test_what_a_device_compiled_is_taken_from_the_folder_the_next_time(tmp_path: Path) -> None:
    require_device()
    registry = Registry.load()
    (choice,) = registry.select("host+opencl")
    generated = generate(Job(load_deployment(DIGITS), choice), registry)
    manifests = [m for m in generated.sources.manifests if m.joins_library or m.name == "mace_benchmark"]
    sources = with_quick_flags(replace(generated.sources, manifests=tuple(manifests)))
    link(sources, host(), tmp_path, ())
    compiled = tmp_path / "compiled"
    compiled.mkdir()
    built = BuiltLibrary(tmp_path, Native(), generated.report, compiled=compiled)
    (device,) = {*built.time("digits", rounds=1).devices}
    assert device.startswith("opencl: ")
    (entry,) = compiled.iterdir()
    kernels, written = entry.read_bytes(), entry.stat().st_mtime_ns
    built.time("digits", rounds=1)
    assert entry.stat().st_mtime_ns == written, "nothing is compiled"
    # What was cut short is compiled again.
    entry.write_bytes(kernels[:-7])
    built.time("digits", rounds=1)
    assert len(entry.read_bytes()) == len(kernels)

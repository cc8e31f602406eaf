"""Generated C and the runtime under the address and undefined-behaviour sanitizers, on the shipped and on the real models."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from manifest import MODELS, entries
from stored_weights import write_models

from mace_core.api import Compiler
from mace_core.deployment import load_deployment
from mace_core.generation import generate
from mace_core.ir import Array, Tensor
from mace_core.job import Job
from mace_core.registry import Registry
from mace_core.run.built_library import BuiltLibrary
from mace_core.run.compile import program
from mace_core.run.runners import Native
from mace_core.testing.requirements import require

ROOT = Path(__file__).parents[1]
FLAGS = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@pytest.fixture(autouse=True)
def no_leak_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """mace_run keeps its memory until it ends, by design.

    The library itself allocates nothing that it could leak.
    """
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0")


def clean(deployment: Path, folder: Path) -> None:
    """Build with the sanitizers and run every model on random input, with one thread and with three.

    A finding ends the program.
    """
    require(None if shutil.which("gcc") else "gcc is not installed: apt-get install gcc")
    registry = Registry.load()
    result = generate(Job(load_deployment(deployment), registry.select("host")[0]), registry)
    gcc = Compiler(("gcc",), ("ar",))
    tool = program("mace_run", result.sources, gcc, folder, FLAGS)
    built = BuiltLibrary(tool.parent, Native(), result.report)
    rng = np.random.default_rng(0)
    for name in result.report.models:
        inputs = {t.name: numbers(rng, t) for t in built.model(name)["inputs"]}
        for threads in (1, 3):
            actual = built.run(name, inputs, threads)
            assert all(np.isfinite(a).all() for a in actual.values()), name


def numbers(rng: np.random.Generator, tensor: Tensor) -> Array:
    """One sample: all that stored integers can be, small ones where they count or name something, else numbers from -1 to 1."""
    shape = (1, *tensor.shape)
    if tensor.quant:
        ends = np.iinfo(tensor.dtype.numpy)
        return rng.integers(ends.min, ends.max, shape, endpoint=True).astype(tensor.dtype.numpy)
    if not tensor.dtype.is_float:
        return rng.integers(0, 2, shape).astype(tensor.dtype.numpy)
    return rng.uniform(-1, 1, shape).astype(tensor.dtype.numpy)


@pytest.mark.exhaustive
def test_digits(tmp_path: Path) -> None:
    clean(ROOT / "models/digits/digits.yml", tmp_path)


@pytest.mark.exhaustive
def test_weights_as_stored(tmp_path: Path) -> None:
    clean(write_models(tmp_path, "as-stored"), tmp_path / "built")


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.skipif(not any(entries()), reason=f"no models in {MODELS}; MACE_MODELS names another folder")
def test_real_models(tmp_path: Path) -> None:
    (tmp_path / "real.yml").write_text("library_name: real\nmodels:\n" + "".join(e.yaml() for e in entries()))
    clean(tmp_path / "real.yml", tmp_path)

"""A built model beside its framework: what is missing is told before anything runs, and rounds are timed in turn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.ir import Array, DType, Tensor
from mace_core.registry import Registry
from mace_core.run import compare_speed as module
from mace_core.run.compare_speed import WARMUP, compare_speed

MODEL = Model("m", (Path("m.onnx"),))


@pytest.fixture
def library(tmp_path: Path) -> Path:
    (tmp_path / "net/lib/host").mkdir(parents=True)
    (tmp_path / "net/lib/host/libnet.so").touch()
    return tmp_path / "net"


def stand_in(monkeypatch: pytest.MonkeyPatch, fast_reference: Any, calls: list[str]) -> None:
    """A library and a framework that note their calls."""

    def ours(given: dict[str, Array]) -> None:
        calls.append("ours")

    frontend = SimpleNamespace(
        name="acme", needs="acme[all]", fast_reference=lambda files, model: fast_reference
    )
    framework = SimpleNamespace(frontend=frontend, convert_inputs=lambda inputs: {"theirs": inputs["x"]})
    monkeypatch.setattr(module.Framework, "of", lambda model, registry: framework)
    built = SimpleNamespace(inputs=[Tensor("x", DType.F32, (2,))], outputs=[], run=ours, arena_bytes=0)
    monkeypatch.setattr(module.native, "load", lambda file, name: {"m": built})


def test_a_library_that_is_not_built_is_told(tmp_path: Path) -> None:
    (choice,) = Registry.load().select("host")
    with pytest.raises(MaceError, match=r"libnet\.so: is not built; run: mace build \.\.\. --target host"):
        compare_speed(tmp_path / "net", choice, MODEL, Registry.load(), 1)


def test_a_framework_that_is_not_installed_is_told(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, None, [])
    (choice,) = Registry.load().select("host")
    with pytest.raises(
        MaceError, match=r"the framework behind 'acme' is not installed; pip install 'acme\[all\]'"
    ):
        compare_speed(library, choice, MODEL, Registry.load(), 1)


def test_both_sides_run_in_turn_and_warm_rounds_do_not_count(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    class Peer:
        runtime = "acme 1.0"

        def __call__(self, given: dict[str, Array]) -> None:
            assert given["theirs"].dtype == np.float32
            calls.append("theirs")

    stand_in(monkeypatch, Peer(), calls)
    (choice,) = Registry.load().select("host")
    timing = compare_speed(library, replace(choice), MODEL, Registry.load(), 3)
    assert calls == ["ours", "theirs"] * (WARMUP + 3)
    assert (len(timing.ns), len(timing.framework_ns)) == (3, 3)
    assert (timing.model, timing.framework, timing.target) == ("m", "acme 1.0", "host")

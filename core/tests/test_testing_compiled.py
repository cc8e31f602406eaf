"""How the tests of kernels compile the libraries that they load."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mace_core.api import GeneratedFiles
from mace_core.manifest import Manifest, Unit
from mace_core.testing import compiled


@pytest.mark.parametrize(("asked", "flag"), [("", "-O0"), ("-O1", "-O1")])
def test_only_kernels_of_the_best_level_are_optimized(
    asked: str, flag: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(compiled.OPTIMIZATION, raising=False)
    if asked:
        monkeypatch.setenv(compiled.OPTIMIZATION, asked)
    units = (
        Unit("cases.c"),
        Unit("cases_cpu_kernels_avx2.c", ("-O3", "-mavx2")),
        Unit("cases_cpu_kernels_sse2.c", ("-O3",)),
        Unit("cases_dsp_kernels_generic.c", ("-O3",)),
        Unit("cases_net_program.c"),
    )
    seen: dict[str, tuple[str, ...]] = {}

    def record(sources: GeneratedFiles, _compiler: Any, _folder: Path, flags: tuple[str, ...]) -> Path:
        seen.update({unit.source: (*unit.flags, *flags) for m in sources.manifests for unit in m.units})
        return tmp_path

    monkeypatch.setattr(compiled, "shared_library", record)
    monkeypatch.setattr(compiled.native, "load", lambda *_: {})
    compiled.load_library(
        GeneratedFiles({}, (Manifest("cases", generated=tuple(unit.source for unit in units), units=units),)),
        tmp_path,
    )
    assert seen == {
        "cases.c": ("-O0",),
        "cases_cpu_kernels_avx2.c": ("-O3", "-mavx2", flag),
        "cases_cpu_kernels_sse2.c": ("-O3", "-O0"),
        "cases_dsp_kernels_generic.c": ("-O3", flag),
        "cases_net_program.c": ("-O0",),
    }

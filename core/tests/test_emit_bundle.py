"""A bundle: several programs in one translation unit, whose files are known before the programs are."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from mace_core.api import Stream
from mace_core.emit.code import HEADERS, RUNTIME, bundle, bundle_manifest
from mace_core.graph_builder import Builder
from mace_core.ir import DType
from mace_core.levels import Level
from mace_core.plan import Plan
from mace_core.run.files import write_all
from mace_core.testing.compiled import host, plan_graph
from mace_target_cpu import Cpu
from mace_target_cpu.isa import GENERIC

LEVELS = {"cpu": GENERIC}


class Plain(Cpu):
    """The CPU's kernels in plain C."""

    def levels(self, abi: str) -> tuple[Level, ...]:
        return GENERIC


def product(name: str, factor: float) -> Plan:
    builder = Builder(name)
    x = builder.input("x", DType.F32, (4,))
    w = builder.weight("w", np.full(4, factor, np.float32))
    return plan_graph(Plain(), builder.finish([builder.one("Mul", [x, w])]))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_files_do_not_depend_on_how_many_programs_there_are(count: int) -> None:
    written = bundle("lib", [product(f"p{i}", i) for i in range(count)], LEVELS)
    (manifest,) = written.manifests
    assert manifest == bundle_manifest("lib", LEVELS)
    assert {*written.files} == {*manifest.generated}
    assert not {*HEADERS} & {*manifest.generated}, "they come with the library of models"


def test_programs_find_their_weights_in_one_file() -> None:
    programs = [product(f"p{i}", i + 1) for i in range(3)]
    written = bundle("lib", programs, LEVELS)
    weights = np.frombuffer(bytes(written.files["lib_regions_weights.bin"]), np.float32)  # type: ignore[arg-type]
    assert weights.reshape(3, -1)[:, :4].tolist() == [[1] * 4, [2] * 4, [3] * 4]
    unit = str(written.files["lib_regions_program.c"])
    for number in range(3):
        assert f"\nconst mace_model lib_p{number}_program = {{" in unit
        assert f"w + {number * 64}" in unit


@pytest.mark.slow
@pytest.mark.parametrize("count", [0, 2])
def test_a_bundle_compiles_without_warnings(count: int, tmp_path: Path) -> None:
    written = bundle("lib", [product(f"p{i}", i) for i in range(count)], LEVELS)
    headers = {name: (RUNTIME / name).read_text(encoding="utf-8") for name in HEADERS}
    write_all(tmp_path, {**headers, **written.files})
    compiler = host()
    for unit in written.manifests[0].units:
        words = [*compiler.cc, *compiler.flags, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wa,-I."]
        words += ["-c", unit.source, "-o", unit.object]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_other_weights_make_another_source() -> None:
    """Compilers that keep objects by the text of their source would else keep the weights of the build before."""
    first, second = (bytes(_source_of(product("p", factor))) for factor in (1, 2))
    assert first != second
    assert b'.incbin "lib_regions_weights.bin"' in first
    assert first == bytes(_source_of(product("p", 1)))


def _source_of(plan: Plan) -> Stream:
    source = bundle("lib", [plan], LEVELS).files["lib_regions_weights.S"]
    assert isinstance(source, Stream)
    return source

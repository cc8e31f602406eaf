from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest

from mace_core.testing.compiled import host
from mace_core.testing.headers import precompiled_headers

SOURCE = "#include <immintrin.h>\nint unit;\n"


def test_a_unit_reads_the_header_in_its_precompiled_form(tmp_path: Path) -> None:
    command = (*host().cc, *host().flags, "-std=gnu11", "-O1", "-fPIC")
    flags = precompiled_headers(SOURCE, command)
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("only compilers for x86 have immintrin.h")
    (tmp_path / "unit.c").write_text(SOURCE)
    words = [*command, *flags, "-Winvalid-pch", "-Werror", "-H", "-c", "unit.c", "-o", "unit.o"]
    compiled = subprocess.run(words, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert compiled.stderr.startswith("! "), "a precompiled header is marked so, others by dots"
    assert precompiled_headers(SOURCE, command) == flags, "precompiled once"


def test_a_unit_without_the_header_is_compiled_as_before() -> None:
    assert precompiled_headers("#include <math.h>\n", host().cc) == ()


def test_a_compiler_that_cannot_precompile_reads_the_header_itself() -> None:
    assert precompiled_headers(SOURCE, (*host().cc, "-no-such-flag")) == ()

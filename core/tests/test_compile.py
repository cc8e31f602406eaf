"""Checks of a compiler: what its commands say reaches the user."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mace_core.api import GeneratedFiles
from mace_core.errors import MaceError
from mace_core.manifest import Manifest, Unit
from mace_core.run.compile import check_link, check_syntax
from mace_core.toolchain import Compiler

REFUSE = "import sys; sys.exit('cannot find -lm' if '-o' in sys.argv else 0)"


def test_what_the_linker_says_is_an_error(tmp_path: Path) -> None:
    compiler = Compiler(cc=(sys.executable, "-c", REFUSE), ar=("ar",))
    with pytest.raises(MaceError, match="cannot find -lm"):
        check_link(compiler, tmp_path)


def test_what_the_compiler_says_of_a_unit_is_an_error(tmp_path: Path) -> None:
    refuse = "import sys; sys.exit('expected ; in bad.c' if 'bad.c' in sys.argv else 0)"
    compiler = Compiler(cc=(sys.executable, "-c", refuse), ar=("ar",))
    library = Manifest("m", generated=("good.c", "bad.c"), units=(Unit("good.c"), Unit("bad.c")))
    sources = GeneratedFiles({"good.c": "int good;\n", "bad.c": "int bad\n"}, (library,))
    with pytest.raises(MaceError, match=r"expected ; in bad\.c"):
        check_syntax(sources, compiler, tmp_path)


def test_a_program_that_links_is_no_error(tmp_path: Path) -> None:
    check_link(Compiler(cc=(sys.executable, "-c", "pass"), ar=("ar",)), tmp_path)
    assert (tmp_path / "nothing.c").read_text(encoding="utf-8") == "int main(void) { return 0; }\n"

"""What is said, and what the compiler makes of vectors."""

import re
import subprocess
from pathlib import Path

import pytest

from mace_core.errors import MaceError
from mace_core.testing.requirements import require
from mace_core.testing.toolchain import PROBE
from mace_toolchain_gnu import Gnu


def test_names_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (
        Gnu().missing("arm64")
        == "aarch64-linux-gnu-gcc is not in PATH: apt-get install gcc-aarch64-linux-gnu"
    )
    with pytest.raises(MaceError, match=r"not ready for armhf.*apt-get install gcc-arm-linux-gnueabihf"):
        Gnu().compiler("armhf")


def test_tells_the_version_of_glibc() -> None:
    require(Gnu().missing("arm64"))
    assert re.match(r"glibc 2\.\d+ ", Gnu().compiler("arm64").libc)


@pytest.mark.parametrize("kind", ["shared", "program"])
def test_leaves_denormals_alone(kind: str, tmp_path: Path) -> None:
    require(Gnu().missing("armhf"))
    compiler = Gnu().compiler("armhf")
    command = [*compiler.cc, *compiler.flags, *getattr(compiler, kind), "-###", "probe.o"]
    message = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stderr
    assert "crtbegin" in message
    assert "crtfastmath" not in message


@pytest.mark.parametrize(
    ("abi", "instruction"), [("armhf", r"\bvm(la|ul)\.f32\s+q"), ("arm64", r"\bfm(la|ul)\s+v\d+\.4s")]
)
def test_multiplies_four_floats_at_once(abi: str, instruction: str, tmp_path: Path) -> None:
    require(Gnu().missing(abi))
    compiler = Gnu().compiler(abi)
    (tmp_path / "kernel.c").write_text((PROBE / "kernel.c").read_text())
    subprocess.run([*compiler.cc, *compiler.flags, "-O2", "-S", "kernel.c"], cwd=tmp_path, check=True)
    assert re.search(instruction, (tmp_path / "kernel.s").read_text())

"""Which compiler is taken, and what is said where there is none."""

from pathlib import Path

import pytest

from mace_core.errors import MaceError
from mace_toolchain_host import Host


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in PATH, and neither CC nor AR."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("AR", raising=False)
    return tmp_path


def _install(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text("")
        (folder / name).chmod(0o755)


def test_nothing_installed() -> None:
    reason = Host().missing("host")
    assert reason is not None
    assert "pip install mace-toolchain-zig" in reason
    with pytest.raises(MaceError, match="toolchain host: is not ready; no C compiler in PATH"):
        Host().compiler("host")


def test_no_archiver(path: Path) -> None:
    _install(path, "gcc")
    assert "apt-get install binutils" in (Host().missing("host") or "")


def test_first_of_the_usual_names(path: Path) -> None:
    _install(path, "clang", "gcc", "llvm-ar")
    assert Host().missing("host") is None
    assert (Host().compiler("host").cc, Host().compiler("host").ar) == (("gcc",), ("llvm-ar",))


def test_environment_comes_first(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(path, "gcc", "ccache", "ar")
    monkeypatch.setenv("CC", "ccache gcc -m64")
    assert Host().compiler("host").cc == ("ccache", "gcc", "-m64")
    monkeypatch.setenv("CC", "tcc")
    assert "CC=tcc is not in PATH" in (Host().missing("host") or "")

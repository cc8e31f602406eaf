"""Runners, and the policy for tools that are not there."""

from pathlib import Path

import pytest

from mace_core.errors import MaceError
from mace_core.run import runners
from mace_core.testing.requirements import REQUIRE_TOOLS, require


def _install(folder: Path, name: str) -> str:
    tool = folder / name
    tool.write_text("")
    tool.chmod(0o755)
    return str(tool)


@pytest.mark.parametrize("suffix", ["", "-static"])
def test_qemu_takes_either_package(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    tool = _install(tmp_path, f"qemu-aarch64{suffix}")
    runner = runners.Qemu("aarch64")
    assert runner.missing() is None
    assert runner.command(tmp_path / "p", ["--a"]) == [tool, str(tmp_path / "p"), "--a"]


def test_qemu_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert runners.Qemu("arm").missing() == "qemu-arm is not in PATH: apt-get install qemu-user"
    with pytest.raises(MaceError, match="p: qemu-arm is not in PATH; apt-get install qemu-user"):
        runners.Qemu("arm").command(tmp_path / "p", [])


@pytest.mark.parametrize(
    ("system", "machine", "native"),
    [("linux", "aarch64", True), ("linux", "x86_64", False), ("darwin", "arm64", False)],
)
def test_native_only_on_linux_of_the_same_processor(
    system: str, machine: str, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert isinstance(runners.linux("aarch64"), runners.Native) == native


def test_require(monkeypatch: pytest.MonkeyPatch) -> None:
    require(None)
    monkeypatch.delenv(REQUIRE_TOOLS, raising=False)
    with pytest.raises(pytest.skip.Exception, match="no qemu"):
        require("no qemu: install it")
    monkeypatch.setenv(REQUIRE_TOOLS, "1")
    with pytest.raises(pytest.fail.Exception, match="MACE_REQUIRE_TOOLS=1, and no qemu"):
        require("no qemu: install it")
    with pytest.raises(pytest.skip.Exception, match="ANDROID_NDK_HOME"):
        require("no NDK: set ANDROID_NDK_HOME")

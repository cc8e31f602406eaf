"""The command lines, on a folder that looks like an NDK."""

import sys
from pathlib import Path

import pytest

from mace_core.errors import MaceError
from mace_toolchain_ndk import VARIABLES, Ndk

MACHINES = [
    ("linux", "linux-x86_64", ""),
    ("darwin", "darwin-x86_64", ""),
    ("win32", "windows-x86_64", ".exe"),
]


@pytest.fixture(autouse=True)
def _no_ndk(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)


def _install(root: Path, tag: str, suffix: str) -> Path:
    tools = root / "toolchains" / "llvm" / "prebuilt" / tag / "bin"
    tools.mkdir(parents=True)
    for name in ("clang", "llvm-ar"):
        (tools / f"{name}{suffix}").touch()
    return tools


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("variable", VARIABLES)
def test_tools_of_each_machine(
    variable: str, machine: tuple[str, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system, tag, suffix = machine
    tools = _install(tmp_path, tag, suffix)
    monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.setattr(sys, "platform", system)
    assert Ndk().missing("arm64-v8a") is None
    compiler = Ndk().compiler("arm64-v8a")
    assert compiler.cc == (str(tools / f"clang{suffix}"),)
    assert compiler.ar == (str(tools / f"llvm-ar{suffix}"),)


def test_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(tmp_path, "linux-x86_64", "")
    monkeypatch.setenv(VARIABLES[0], str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    assert Ndk().compiler("arm64-v8a").flags == ("--target=aarch64-linux-android21",)
    assert "-Wl,-z,max-page-size=16384" in Ndk().compiler("arm64-v8a").shared
    assert Ndk().compiler("x86_64").flags == ("--target=x86_64-linux-android21",)
    assert "-Wl,-z,max-page-size=16384" in Ndk().compiler("x86_64").shared
    assert Ndk().compiler("x86").flags == ("--target=i686-linux-android21", "-mstackrealign")
    armv7 = Ndk().compiler("armeabi-v7a")
    assert armv7.flags == ("--target=armv7a-linux-androideabi21", "-mfpu=neon", "-mfloat-abi=softfp")
    assert armv7.program == ()
    assert Ndk().runner("arm64-v8a") is None


def test_no_ndk() -> None:
    assert "set ANDROID_NDK_HOME" in (Ndk().missing("arm64-v8a") or "")
    with pytest.raises(MaceError, match="toolchain ndk: is not ready for armeabi-v7a; no Android NDK"):
        Ndk().compiler("armeabi-v7a")


def test_wrong_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLES[1], str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    reason = Ndk().missing("arm64-v8a") or ""
    assert reason.startswith(f"ANDROID_NDK_ROOT={tmp_path} has no ")
    assert "set ANDROID_NDK_HOME" in reason


def test_machine_without_an_ndk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLES[0], str(tmp_path))
    monkeypatch.setattr(sys, "platform", "sunos5")
    assert "tools for sunos5" in (Ndk().missing("arm64-v8a") or "")

"""What is taken of the SDK's environment, and what is said where it is not set."""

from pathlib import Path

import pytest
from yocto_double import SYSROOT, set_environment

from mace_core.errors import MaceError
from mace_toolchain_neuropilot import VARIABLES, Neuropilot


@pytest.fixture
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    set_environment(tmp_path, monkeypatch)
    return tmp_path


@pytest.mark.usefixtures("unset")
def test_without_an_environment_it_says_what_to_source() -> None:
    reason = "no Yocto SDK: CC, AR, TARGET_PREFIX, SDKTARGETSYSROOT not set; install the SDK"
    assert str(Neuropilot().missing("arm64")).startswith(reason)
    with pytest.raises(MaceError, match="toolchain neuropilot: is not ready for arm64; no Yocto SDK"):
        Neuropilot().compiler("arm64")


@pytest.mark.usefixtures("sdk")
def test_the_command_line_has_what_the_system_needs() -> None:
    compiler = Neuropilot().compiler("arm64")
    assert compiler.cc == ("aarch64-poky-linux-gcc",)
    assert compiler.ar == ("aarch64-poky-linux-ar",)
    assert compiler.flags == (
        "-mbranch-protection=standard",
        "-fstack-protector-strong",
        f"--sysroot={SYSROOT}",
        "-mcpu=generic",
    )
    assert compiler.hosted
    assert compiler.program == ()


@pytest.mark.usefixtures("sdk")
def test_a_compiler_without_a_sysroot_gets_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "aarch64-poky-linux-gcc")
    assert Neuropilot().compiler("arm64").flags == (f"--sysroot={SYSROOT}", "-mcpu=generic")


@pytest.mark.usefixtures("sdk")
@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("TARGET_PREFIX", "arm-poky-linux-gnueabi-", "is no SDK for 64-bit ARM"),
        ("TARGET_PREFIX", "aarch64-none-elf-", "is no SDK for 64-bit ARM"),
        ("CC", "gcc", "CC is 'gcc', not aarch64-poky-linux-"),
        ("AR", "ar", "AR is 'ar', not aarch64-poky-linux-"),
        ("CC", "aarch64-poky-linux-clang", "aarch64-poky-linux-clang is not in PATH"),
        ("SDKTARGETSYSROOT", "/no/such/folder", "SDKTARGETSYSROOT=/no/such/folder is no folder"),
        ("SDKTARGETSYSROOT", " ", "SDKTARGETSYSROOT not set"),
    ],
)
def test_an_environment_of_another_system_is_told(
    name: str, value: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert reason in str(Neuropilot().missing("arm64"))


@pytest.mark.usefixtures("sdk")
def test_a_command_line_with_an_open_quote_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "aarch64-poky-linux-gcc 'open")
    reason = str(Neuropilot().missing("arm64"))
    assert reason.startswith("CC or AR: is no command line: ")
    assert "; source the SDK's environment-setup" in reason


@pytest.mark.usefixtures("sdk")
def test_programs_run_with_the_system_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    emulator = tmp_path / "qemu-aarch64"
    emulator.write_text("")
    emulator.chmod(0o755)
    command = Neuropilot().runner("arm64").command(tmp_path / "program", ["--help"])
    assert command == [str(emulator), "-L", str(SYSROOT), str(tmp_path / "program"), "--help"]

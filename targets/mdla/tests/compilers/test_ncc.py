"""ncc-tflite: where it is looked for, what is asked of it, and what its answers lead to."""

from __future__ import annotations

from pathlib import Path

import pytest
from compiler_doubles import FLOATS, INTEGERS, install_fake, options

from mace_core.errors import MaceError
from mace_target_mdla.compilers.ncc import NccCompiler
from mace_target_mdla.network import NetworkKind

pytestmark = pytest.mark.slow  # each case starts a process three times


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    return install_fake(tmp_path / "bin")


def test_the_command_has_what_the_help_advertises(fake: Path) -> None:
    compiled = NccCompiler(options("2.0"), fake, None).compile(FLOATS, "m")
    assert compiled.command == (
        "ncc-tflite", "--arch=mdla2.0", "--relax-fp32", "-d", "network.dla", "network.tflite",
    )  # fmt: skip
    assert compiled.kind is NetworkKind.DLA
    assert compiled.content == b"MACE-TEST-DOUBLE " + " ".join(compiled.command[1:]).encode()
    assert compiled.version == "ncc-tflite 6.3.3 MACE-TEST-DOUBLE"


def test_integers_need_no_half_precision(fake: Path) -> None:
    compiled = NccCompiler(options("1.5"), fake, None).compile(INTEGERS, "m")
    assert compiled.command[1:3] == ("--arch=mdla1.5", "-d")


def test_an_option_that_the_help_does_not_have_is_left_out(
    fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NCC", "strict")
    assert "--relax-fp32" not in NccCompiler(options(), fake, None).compile(FLOATS, "m").command


@pytest.mark.parametrize(
    ("mode", "fault"),
    [
        ("old", r"does not compile for mdla3\.0; it knows mdla1\.5, mdla2\.0: install the SDK of this chip"),
        ("nameless", r"--version tells no version: 'no number'"),
        ("fails", r"ERROR: cannot parse the model"),
        ("silent", r"wrote no network"),
    ],
)
def test_a_compiler_that_cannot_is_told(
    mode: str, fault: str, fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_NCC", mode)
    with pytest.raises(MaceError, match=fault) as error:
        NccCompiler(options("3.0"), fake, None).compile(FLOATS, "m: region mdla0")
    assert "; " in str(error.value)


@pytest.mark.parametrize("inner", ["host/bin", "neuron_sdk/host/bin"])
def test_the_sdk_is_asked_before_the_path(inner: str, tmp_path: Path) -> None:
    expected = install_fake(tmp_path / "sdk" / inner)
    other = install_fake(tmp_path / "other")
    environment = {"NEUROPILOT_SDK": str(tmp_path / "sdk"), "PATH": str(other.parent)}
    assert NccCompiler.of(options(), environment).program == expected
    assert NccCompiler.of(options(), {"PATH": str(other.parent)}).program == other
    assert NccCompiler.of(options(ncc=str(other)), environment).program == other


def test_an_sdk_without_the_compiler_is_told(tmp_path: Path) -> None:
    other = install_fake(tmp_path / "other")
    environment = {"NEUROPILOT_SDK": str(tmp_path), "PATH": str(other.parent)}
    fault = NccCompiler.of(options(), environment).find_fault()
    assert fault == (
        f"NEUROPILOT_SDK is {tmp_path}, which has no host/bin/ncc-tflite or neuron_sdk/host/bin/ncc-tflite"
    )


def test_a_compiler_of_another_sdk_is_refused(tmp_path: Path) -> None:
    sdk = tmp_path / "neuropilot-sdk-basic-8.0.11"
    program = install_fake(sdk / "host/bin")
    with pytest.raises(MaceError, match=r"belong to the SDK 8\.0\.11 \(inferred: .*\); set NEUROPILOT_SDK"):
        NccCompiler(options(), program, sdk).compile(FLOATS, "m")

"""Every ABI has its own name, and what other tools call it is answered with ours."""

from __future__ import annotations

import pytest

from mace_core.errors import MaceError
from mace_core.registry import Registry

ANDROID = {"arm64-v8a", "armeabi-v7a", "x86_64", "x86"}
LINUX = {"amd64", "arm64", "armhf", "riscv64"}


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry.load()


def test_names_say_which_system(registry: Registry) -> None:
    for abi, toolchains in registry.abis().items():
        for toolchain in toolchains:
            words = toolchain.abis[abi]
            assert words.startswith("Android") == (abi in ANDROID), f"{toolchain.name}: {abi}: {words}"
            assert words.startswith("Linux") == (abi in LINUX), f"{toolchain.name}: {abi}: {words}"


def test_who_meant_linux_is_told_its_name(registry: Registry) -> None:
    (choice,) = registry.select("x86_64")
    assert "amd64" in choice.toolchain.abis["x86_64"]


OTHER_NAMES = {
    "linux-x86_64": "amd64",
    "x64": "amd64",
    "aarch64": "arm64",
    "RISCV": "riscv64",
    "i686": "x86",
    "android-x86_64": "x86_64",
}


@pytest.mark.parametrize(("name", "usual"), OTHER_NAMES.items())
def test_other_names_are_answered_with_ours(registry: Registry, name: str, usual: str) -> None:
    with pytest.raises(MaceError, match=f"that ABI is called '{usual}' here"):
        registry.select(name)

"""What is said where the compiler is absent."""

from pathlib import Path

import pytest

from mace_core.errors import MaceError
from mace_toolchain_arm_none_eabi import ArmNoneEabi


def test_names_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert (
        ArmNoneEabi().missing("cortex-m4")
        == "arm-none-eabi-gcc is not in PATH: apt-get install gcc-arm-none-eabi"
    )
    with pytest.raises(MaceError, match=r"not ready for cortex-m4.*apt-get install gcc-arm-none-eabi"):
        ArmNoneEabi().compiler("cortex-m4")

"""What is taken of an SDK, and the message where there is none."""

from pathlib import Path

import pytest
from sdk_stand_in import make_sdk, set_sdk

from mace_core.errors import MaceError
from mace_toolchain_hexagon_sdk import HexagonSdk, HexagonSimulator

ABI = "hexagon-v68"


@pytest.fixture
def sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_sdk(tmp_path, ("8.9.1", "8.10.0", "8.7.06"))
    set_sdk(tmp_path, monkeypatch)
    return tmp_path


def test_without_an_sdk_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEXAGON_SDK_ROOT", raising=False)
    monkeypatch.delenv("DEFAULT_HEXAGON_TOOLS_ROOT", raising=False)
    assert str(HexagonSdk().missing(ABI)).startswith("no Hexagon SDK: HEXAGON_SDK_ROOT not set; install it")
    assert HexagonSdk().runner(ABI) is None
    with pytest.raises(MaceError, match="toolchain hexagon-sdk: is not ready for hexagon-v68"):
        HexagonSdk().compiler(ABI)


def test_a_folder_that_is_no_sdk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_sdk(tmp_path, monkeypatch)
    assert "set it to the folder of an SDK" in str(HexagonSdk().missing(ABI))
    (tmp_path / "tools/HEXAGON_Tools/8.7.06/Tools").mkdir(parents=True)
    reason = str(HexagonSdk().missing(ABI))
    assert reason.startswith("no hexagon-clang, hexagon-llvm-ar in ")
    assert "install the Hexagon tools" in reason


def test_the_newest_compiler_is_taken_by_its_numbers(sdk: Path) -> None:
    compiler = HexagonSdk().compiler(ABI)
    folder = sdk / "tools/HEXAGON_Tools/8.10.0/Tools/bin"
    assert compiler.cc == (str(folder / "hexagon-clang"),)
    assert compiler.ar == (str(folder / "hexagon-llvm-ar"),)
    assert compiler.flags == ("-mv68", "-mhvx", "-mhvx-length=128b", "-G0")
    assert compiler.libc == "the C library of the Hexagon tools 8.10.0"


def test_the_compiler_that_is_set_comes_first(sdk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = sdk / "tools/HEXAGON_Tools/8.9.1"
    monkeypatch.setenv("DEFAULT_HEXAGON_TOOLS_ROOT", str(tools))
    assert HexagonSdk().compiler(ABI).cc == (str(tools / "Tools/bin/hexagon-clang"),)


def test_programs_run_in_the_simulator(sdk: Path, tmp_path: Path) -> None:
    runner = HexagonSdk().runner(ABI)
    assert isinstance(runner, HexagonSimulator)
    assert "install the simulator" in str(runner.missing())
    with pytest.raises(MaceError, match="hello: cannot be simulated"):
        runner.command(tmp_path / "hello", [])
    simulator = sdk / "tools/HEXAGON_Tools/8.10.0/Tools/bin/hexagon-sim"
    simulator.write_text("")
    command = runner.command(tmp_path / "hello", ["3"])
    assert command == [str(simulator), "-mv68", "--simulated_returnval", str(tmp_path / "hello"), "--", "3"]

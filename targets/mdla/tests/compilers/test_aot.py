"""LiteRT's ahead-of-time path: its own code and the vendor's plugin, with a test double of the vendor's SDK."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from compiler_doubles import FLOATS, options

from mace_core.errors import MaceError
from mace_core.testing.requirements import require
from mace_target_mdla.compilers import aot, compile_network
from mace_target_mdla.compilers.aot import CHIPS, AotCompiler
from mace_target_mdla.compilers.dispatch import read_dispatched
from mace_target_mdla.network import NetworkKind
from mace_target_mdla.options import MdlaOptions
from mace_target_mdla.socs import Soc

SOURCE = Path(__file__).parent / "sdk_double.c"


@pytest.fixture
def sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An SDK whose library takes every operation; returns the folder of its libraries."""
    require(None if shutil.which("gcc") else "gcc is not installed")
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
    subprocess.run(["gcc", *flags, SOURCE, "-o", libraries / "libneuron_adapter.so"], check=True)
    package = tmp_path / "packages/ai_edge_litert_sdk_mediatek"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        f"from pathlib import Path\n\ndef path_to_sdk_libs(version):\n    return Path({str(libraries)!r})\n"
    )
    monkeypatch.syspath_prepend(str(package.parent))
    yield libraries
    sys.modules.pop(package.name, None)  # LiteRT has imported it


@pytest.mark.slow
def test_litert_compiles_with_the_vendors_plugin(sdk: Path) -> None:
    compiler = AotCompiler(options(soc="MT8188"))
    assert compiler.find_fault() is None
    compiled = compiler.compile(FLOATS, "m")
    assert compiled.content.rstrip(b"\0") == b"MACE-TEST-DOUBLE 1 operations"
    assert compiled.kind is NetworkKind.COMPILED
    assert (compiled.tool, compiled.sdk) == ("ai-edge-litert", "8.2.31")
    assert compiled.command == ("ai_edge_litert.aot.aot_compile", "target=MediaTek_MT8188")
    with pytest.raises(MaceError, match="ai-edge-litert is a test double"):
        compile_network(FLOATS, options(soc="MT8188"), "m")


@pytest.mark.slow
def test_what_litert_logs_is_told(sdk: Path) -> None:
    (sdk / "libneuron_adapter.so").unlink()
    with pytest.raises(MaceError) as error:
        AotCompiler(options(soc="MT8188")).compile(FLOATS, "m: region mdla0")
    text = str(error.value)
    assert text.startswith("m: region mdla0: LiteRT does not compile it: ERROR: ")
    assert "Failed to load NeuronAdapter shared library" in text
    assert "/tmp" not in text, "the log is read and removed"


@pytest.mark.parametrize(
    ("soc", "fault"), [("MT8195", "does not compile for MT8195"), ("", "only a generation")]
)
def test_a_chip_that_the_wheel_does_not_know_is_told(soc: str, fault: str) -> None:
    assert fault in str(AotCompiler(options("2.0", soc)).find_fault())


def test_versions_that_do_not_belong_together_are_told(sdk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aot, "version", lambda name: "0.2.0" if name == aot.SDK else "2.1.0")
    fault = AotCompiler(options(soc="MT8188")).find_fault()
    assert fault == (
        "ai-edge-litert-sdk-mediatek 0.2.0 and ai-edge-litert 2.1.0 do not belong together "
        "(inferred: no source says that both share a major version): "
        "install both in one major version"
    )


def test_a_chip_that_litert_does_not_know_is_told(sdk: Path) -> None:
    newest = MdlaOptions("3.0", Soc("MT8196", (), "3.0", 1, {}))
    assert "MT8196" in CHIPS
    assert "does not know MT8196: pip install --upgrade" in str(AotCompiler(newest).find_fault())


def test_a_file_with_operators_left_is_refused() -> None:
    with pytest.raises(
        MaceError, match="m: the vendor's compiler makes 0 networks of it and leaves 1 operators"
    ):
        read_dispatched(FLOATS, "m")


@pytest.mark.slow
def test_damaged_files_are_refused(sdk: Path) -> None:
    """No byte of the vendor's part of the file makes anything but a network or a MaceError."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = aot._compile(FLOATS, "MT8188", Path(folder), "m")
    whole = read_dispatched(file, "m")
    start = file.index(struct.pack("<I", len(whole.content)) + whole.content) - 164
    for position in range(max(start, 0), len(file)):
        for value in (0, 1, 0x7F, 0xFF):
            damaged = file[:position] + bytes([value]) + file[position + 1 :]
            try:
                assert read_dispatched(damaged, "m").content
            except MaceError:
                continue
    for size in range(start, len(file), 7):
        with pytest.raises(MaceError):
            read_dispatched(file[:size], "m")

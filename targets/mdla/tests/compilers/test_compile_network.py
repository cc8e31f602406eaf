"""Which compiler is taken, and that no test double passes for one."""

from __future__ import annotations

from pathlib import Path

import pytest
from compiler_doubles import FLOATS, graph, install_fake, options

from mace_core.api import BlobBody, BuildConfig, Region
from mace_core.deployment import Model
from mace_core.errors import MaceError
from mace_core.graph_builder import Builder
from mace_core.ir import DType, Quant
from mace_target_mdla import compilers
from mace_target_mdla.compilers import Compiled, compile_network
from mace_target_mdla.compilers.compiled import VendorCompiler
from mace_target_mdla.compilers.ncc import NccCompiler
from mace_target_mdla.network import NetworkKind
from mace_target_mdla.target import Mdla


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEUROPILOT_SDK", raising=False)
    monkeypatch.setenv("PATH", "")


@pytest.mark.usefixtures("nothing_installed")
def test_without_a_compiler_the_device_compiles() -> None:
    assert compile_network(FLOATS, options(soc="MT8188"), "m") is None
    assert compile_network(FLOATS, options(compiler="none"), "m") is None


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("aot", r"m: compiler: aot: ai-edge-litert-sdk-mediatek is not installed: pip install"),
        ("ncc", r"m: compiler: ncc: ncc-tflite is not in PATH, and NEUROPILOT_SDK is not set; install it"),
    ],
)
def test_a_compiler_that_is_named_must_be_there(name: str, fault: str) -> None:
    with pytest.raises(MaceError, match=fault):
        compile_network(FLOATS, options(soc="MT8188", compiler=name), "m")


def test_a_test_double_is_refused_wherever_it_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = install_fake(tmp_path / "sdk-6.3/host/bin")
    asked = [options(ncc=str(program)), options(ncc=str(program), compiler="ncc")]
    for chosen in asked:
        with pytest.raises(MaceError, match="m: ncc-tflite is a test double, which compiles nothing"):
            compile_network(FLOATS, chosen, "m")
    monkeypatch.setenv("NEUROPILOT_SDK", str(tmp_path / "sdk-6.3"))
    with pytest.raises(MaceError, match="test double"):
        compile_network(FLOATS, options(), "m")


class Ready(VendorCompiler):
    """Stands for a compiler of the vendor that works."""

    name = "ncc"

    def find_fault(self) -> str | None:
        return None

    def compile(self, tflite: bytes, place: str) -> Compiled:
        return Compiled(b"network", NetworkKind.DLA, "ncc-tflite", "6.3.3", ("ncc-tflite", "-d"), "6.3")


def test_a_part_tells_what_compiled_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NccCompiler, "of", lambda _: Ready())
    target = Mdla(options(compiler="ncc"))
    part = target.compile(Region(target, graph()), BuildConfig("host", "host", Model("m", ())))
    assert isinstance(part.body, BlobBody)
    assert b"network" in part.body.code
    assert part.body.built_by == "ncc-tflite 6.3.3 of SDK 6.3"
    assert part.figures.details == {
        "tool": "ncc-tflite",
        "version": "6.3.3",
        "sdk": "6.3",
        "command": "ncc-tflite -d",
        "bytes": 7,
    }


@pytest.mark.usefixtures("nothing_installed")
@pytest.mark.parametrize(("quant", "notes"), [(None, 1), (Quant.of(0.5), 0)], ids=["floats", "integers"])
def test_a_part_of_floats_notes_their_precision(quant: Quant | None, notes: int) -> None:
    builder = Builder("m")
    x = builder.input("x", DType.I8 if quant else DType.F32, (1, 4, 4, 4), quant)
    if quant:
        builder.reserve_output("y", builder.tensors[x].storage)
    target = Mdla(options(generation="3.0"))
    region = Region(target, builder.finish([builder.one("Relu", [x], outputs=["y"])]))
    part = target.compile(region, BuildConfig("host", "host", Model("m", ())))
    assert len(part.notes) == notes
    assert all("32 bits are computed with 16" in note for note in part.notes)


def test_auto_takes_the_newest_that_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    class Newer(Ready):
        name = "aot"

        def compile(self, tflite: bytes, place: str) -> Compiled:
            return Compiled(b"newer", NetworkKind.COMPILED, "ai-edge-litert", "2.1", ())

    monkeypatch.setattr(NccCompiler, "of", lambda _: Ready())
    monkeypatch.setattr(compilers, "AotCompiler", lambda _: Newer())
    compiled = {
        name: compile_network(FLOATS, options(compiler=name), "m") for name in ("auto", "ncc", "none")
    }
    assert {name: c and c.content for name, c in compiled.items()} == {
        "auto": b"newer",
        "ncc": b"network",
        "none": None,
    }

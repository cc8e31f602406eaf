"""Real runs of SCons: what is rebuilt and what is not, identical bytes, and the messages for mistakes."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from small_project import ROOT, SCONS, quick_environment, run, write_deployment, write_model

SCONSCRIPT = """
Import("mace_library", "mace_test", "mace_package")
one = mace_library(name="one", deployment="one.yml")
two = mace_library(name="two", deployment="two.yml")
mace_test(library=one)
mace_package(name="both", libraries=[one, two])
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Two libraries, the first with validation data."""
    folder = tmp_path / "project"
    (folder / "models").mkdir(parents=True)
    shutil.copy(ROOT / "SConstruct", folder)
    (folder / "models/SConscript").write_text(SCONSCRIPT)
    for name in ("one", "two"):
        write_deployment(folder / "models", name)
    return folder


def scons(folder: Path, *arguments: str, status: int = 0, **environment: str) -> str:
    return run([*SCONS, *arguments], folder, quick_environment(folder) | environment, status)


def acted(log: str) -> list[str]:
    """The lines that tell of work."""
    verbs = ("generating", "compiling", "archiving", "linking", "checking")
    return [line for line in log.splitlines() if line.startswith(verbs)]


def products(folder: Path) -> dict[str, bytes]:
    """Everything that a user takes from the builds folder."""
    kept = ("include", "lib", "bin", "model", "src")
    files = [p for part in kept for p in sorted((folder / "builds").glob(f"*/{part}/**/*")) if p.is_file()]
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


@pytest.mark.exhaustive
def test_only_what_changed_is_rebuilt(project: Path) -> None:
    scons(project)
    assert acted(scons(project)) == []
    write_model(project / "models/two.onnx", 2.0)
    log = acted(scons(project))
    assert any(line.startswith("generating two") for line in log)
    assert "linking builds/two/lib/host/libtwo.so" in log
    assert not [line for line in log if "generating one" in line or "builds/one" in line]
    assert not [line for line in log if "kernels" in line], "the kernels' C is the same"


@pytest.mark.exhaustive
def test_another_plugin_version_generates_anew_and_compiles_only_what_changed(project: Path) -> None:
    scons(project)
    code = "import mace_core.fingerprint as f; f.version = lambda name: '99'"
    again = f"{code}; import SCons.Script.Main as m, sys; sys.argv = ['scons']; m.main()"
    log = run([sys.executable, "-c", again], project, quick_environment(project))
    assert "generating one" in log
    assert not [line for line in acted(log) if line.startswith("compiling")]


@pytest.mark.exhaustive
def test_what_a_killed_linker_wrote_is_not_taken_for_the_library(project: Path) -> None:
    """Also where the inputs are again those of the library that lay there before."""
    library = project / "builds/one/lib/host/libone.so"
    scons(project)
    expected = library.read_bytes()
    environment = quick_environment(project)
    compiler = Path(environment["CC"])
    usual = compiler.read_text()
    half = f'case "$*" in *-shared*) echo half > {library}; kill -9 $$;; esac'
    compiler.write_text(usual.replace("exec", f"{half}\nexec"))
    write_model(project / "models/one.onnx", 2.0)
    assert "killed by SIGKILL" in run(SCONS, project, environment, status=2)
    write_model(project / "models/one.onnx", 1.0)
    scons(project)
    assert library.read_bytes() == expected


@pytest.mark.exhaustive
def test_signatures_without_space_give_the_right_library_later(project: Path) -> None:
    library = project / "builds/one/lib/host/libone.so"
    scons(project)
    expected = library.read_bytes()
    full = project / "builds/.sconsign.tmp"
    full.symlink_to("/dev/full")
    write_model(project / "models/one.onnx", 2.0)
    log = scons(project, status=2)
    assert "builds: cannot be written: No space left on device" in log
    assert "Traceback" not in log
    full.unlink()
    write_model(project / "models/one.onnx", 1.0)
    assert "everything is built again" in scons(project)
    assert library.read_bytes() == expected


@pytest.mark.exhaustive
def test_two_folders_give_the_same_bytes(project: Path, tmp_path: Path) -> None:
    other = tmp_path / "some/where/else"
    shutil.copytree(project, other)
    scons(project)
    scons(project, "package")
    scons(other)
    scons(other, "package")
    assert products(project)
    assert products(project) == products(other)
    assert (project / "builds/both.tar.gz").read_bytes() == (other / "builds/both.tar.gz").read_bytes()


@pytest.mark.exhaustive
def test_check_tells_and_fails_where_the_numbers_are_wrong(project: Path) -> None:
    assert "passed" in scons(project, "-Q", "check")
    np.save(project / "models/y.npy", np.arange(32, dtype=np.float32).reshape(1, 2, 4, 4))
    assert "FAILED" in scons(project, "-Q", "check", status=2)


@pytest.mark.slow
@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("target=hots",), "mace: target=hots: no ABI 'hots'; did you mean 'host'?"),
        (("target=host+npx",), "mace: target=host+npx: no target 'npx'; choose one of "),
        (("tarket=host",), "mace: tarket=: no such option; the options are target=, toolchain=, builds="),
        (("toolchain=icc",), "mace: toolchain: no toolchain 'icc'; choose one of "),
    ],
)
def test_mistakes_on_the_command_line(project: Path, arguments: tuple[str, ...], said: str) -> None:
    log = scons(project, "-Q", *arguments, status=2)
    assert said in log
    assert "Traceback" not in log


@pytest.mark.slow
def test_a_missing_model_is_one_message_with_its_line(project: Path) -> None:
    (project / "models/one.onnx").unlink()
    log = scons(project, "-Q", status=2)
    assert "one.yml:4: model_file_path: no such file" in log
    assert "Traceback" not in log


@pytest.mark.slow
def test_a_model_that_cannot_be_converted_leaves_nothing_behind(project: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Nonsense", ["x"], ["y"], "what", domain="nowhere")],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
    )
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("nowhere", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), project / "models/one.onnx")
    log = scons(project, "-Q", status=2)
    assert "Nonsense" in log
    assert "what" in log
    assert "Traceback" not in log
    assert not [p for p in (project / "builds").rglob("*") if p.is_file() and p.name != ".sconsign.dblite"]

"""Names of files and folders are only names: no shell, no SCons and no compiler driver reads anything into them."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import onnx
import pytest
from small_project import MACE, ROOT, SCONS, quick_environment, run, write_deployment

ODD_FOLDERS = (
    "$HOME x",
    "a;touch pwned;b",
    "it's",
    "a&b",
    'quo"te',
    "ünï",
    "new\nline",
    "-x",
    "@at",
    "back`touch pwned`",
    "$(touch pwned)",
    "com,ma",
    "100%",
    "#hash",
    "*?[a]",
    "back\\slash",
    "a=b",
    "t\tab",
)
CODE_OF_SCONS = "weights${__import__('os').system('touch pwned')}.bin"
ODD_BUILDS = "out $(touch pwned);${__import__('os').system('touch pwned')} `touch pwned`"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A model with a data file of a hostile name, below folders with every odd name at once."""
    folder = tmp_path.joinpath(*ODD_FOLDERS)
    folder.mkdir(parents=True)
    write_deployment(folder, "one")
    model = onnx.load(folder / "one.onnx")
    onnx.save(
        model, folder / "one.onnx", save_as_external_data=True, location=CODE_OF_SCONS, size_threshold=0
    )
    assert (folder / CODE_OF_SCONS).is_file()
    return folder


def executed(folder: Path) -> list[Path]:
    """Files that a name of a file, executed as code, would have made."""
    return list(folder.rglob("pwned"))


@pytest.mark.exhaustive
@pytest.mark.slow
def test_mace_build_and_validate_below_odd_folders(checkout: Path, tmp_path: Path) -> None:
    environment = quick_environment(tmp_path)
    log = run([*MACE, "build", "one.yml", "--builds", ODD_BUILDS], checkout, environment)
    assert f"linking {ODD_BUILDS}/one/bin/host/mace_run" in log
    assert "passed" in run([*MACE, "validate", "one.yml", "--builds", ODD_BUILDS], checkout, environment)
    assert executed(tmp_path) == []


@pytest.mark.exhaustive
def test_an_own_sconstruct_below_odd_folders(checkout: Path, tmp_path: Path) -> None:
    models = checkout / "models $HOME"
    models.mkdir()
    checkout.joinpath("SConstruct").write_text(
        (ROOT / "SConstruct").read_text().replace("models/", "models $HOME/")
    )
    (models / "SConscript").write_text(
        'Import("mace_library", "mace_test", "mace_package")\n'
        'one = mace_library(name="one", deployment="../one.yml")\n'
        'mace_test(library=one)\nmace_package(name="pack", libraries=[one])\n'
    )
    arguments = ["-Q", "-j2", f"builds={ODD_BUILDS}", "check", "package"]
    assert "passed" in run([*SCONS, *arguments], checkout, quick_environment(tmp_path))
    with tarfile.open(checkout / ODD_BUILDS / "pack.tar.gz") as packed:
        assert "one/lib/host/libone.a" in packed.getnames()
    assert executed(tmp_path) == []


@pytest.mark.slow
def test_a_strangers_folder_brings_no_code_of_its_own(tmp_path: Path) -> None:
    """What lies in a downloaded folder is not executed, whatever Python and SCons would take for theirs."""
    folder = tmp_path / "downloaded"
    (folder / "site_scons").mkdir(parents=True)
    write_deployment(folder, "one")
    plant = f"open({str(tmp_path / 'pwned')!r}, 'w').close()\n"
    (folder / "site_scons/site_init.py").write_text(plant)
    for module in ("SCons", "ziglang", "onnx", "json", "sitecustomize"):
        (folder / f"{module}.py").write_text(plant)
    run([shutil.which("mace") or "mace", "build", "one.yml"], folder, quick_environment(tmp_path))
    assert executed(tmp_path) == []

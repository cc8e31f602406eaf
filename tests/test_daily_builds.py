"""What somebody who builds every day meets: nothing to do, cleaning, dry runs, two builds at once, one that was killed."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from small_project import ROOT, SCONS, quick_environment, run, write_deployment, write_model

from mace_core.hookspecs import GROUP

TRANSFORMS = ",".join(f"transform-{p.name}" for p in (ROOT / "plugins").iterdir() if p.is_dir())


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """One library, and a rule of the application's own beside it."""
    folder = tmp_path / "project"
    (folder / "models").mkdir(parents=True)
    write_deployment(folder / "models", "one")
    (folder / "models/SConscript").write_text(
        'Import("mace_library")\none = mace_library(name="one", deployment="one.yml")\n'
    )
    shutil.copy(ROOT / "SConstruct", folder)
    return folder


def scons(folder: Path, *arguments: str, status: int = 0, **environment: str) -> str:
    return run([*SCONS, "-Q", *arguments], folder, quick_environment(folder.parent) | environment, status)


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


@pytest.mark.exhaustive
def test_dry_run_build_again_and_clean(project: Path) -> None:
    before = files(project)
    assert "linking builds/one/bin/host/mace_run" in scons(project, "-n")
    assert files(project) == before, "a dry run wrote something"
    built = scons(project, "-j2").splitlines()
    assert built[-2] == "one for host: builds/one/lib/host"
    assert built[-1].startswith("  bytes: runtime ")
    assert scons(project).splitlines() == built[-2:]
    scons(project, "-q")
    scons(project, "-c")
    assert files(project) == sorted([*before, "builds/.sconsign.dblite"])
    assert "linking builds/one/bin/host/mace_run" in scons(project.parent, "-C", "project", "-n")


@pytest.mark.slow
def test_the_applications_own_rules_have_their_tools(project: Path) -> None:
    (project / "application.c").write_text("int main(void) { return 0; }\n")
    with (project / "SConstruct").open("a") as file:
        file.write('Program("application", "application.c")\n')
    assert "application.o" in scons(project, "-n", "application")


@pytest.mark.exhaustive
def test_a_build_that_was_killed_leaves_nothing_wrong(project: Path) -> None:
    """Killed after a product changed and before it was noted, a build that goes back to the old model must not believe the product."""
    environment = quick_environment(project.parent)
    run([*SCONS, "-Q"], project, environment)
    good = (project / "builds/one/lib/host/libone.a").read_bytes()
    write_model(project / "models/one.onnx", 5.0)
    with subprocess.Popen(
        [*SCONS, "-Q"], cwd=project, env=environment, stdout=subprocess.PIPE, text=True
    ) as build:
        assert build.stdout is not None
        assert any("linking builds/one/lib" in line for line in build.stdout)
        build.send_signal(signal.SIGKILL)
    assert (project / "builds/one/lib/host/libone.a").read_bytes() != good
    write_model(project / "models/one.onnx", 1.0)
    assert "the last build was interrupted" in scons(project)
    assert (project / "builds/one/lib/host/libone.a").read_bytes() == good
    assert "was interrupted" not in scons(project)


@pytest.mark.exhaustive
def test_two_builds_at_once_in_one_folder(project: Path) -> None:
    environment = quick_environment(project.parent)
    builds = [
        subprocess.Popen([*SCONS, "-Q"], cwd=project, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    logs = [build.communicate()[0] for build in builds]
    assert [build.returncode for build in builds] == [0, 0]
    assert sum("waiting for another build" in log for log in logs) == 1
    assert sum("generating one" in log for log in logs) == 1


@pytest.mark.slow
@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("builds=/dev/null/x",),
            "mace: builds=/dev/null/x: cannot be written: Not a directory; choose another folder",
        ),
        (("target=hos",), "mace: target=hos: no ABI 'hos'; did you mean 'host'?"),
        (
            ("build=x",),
            "mace: build=: no such option; the options are target=, toolchain=, builds=, fallback=",
        ),
    ],
)
def test_one_message_for_a_mistake(project: Path, arguments: tuple[str, ...], said: str) -> None:
    log = scons(project, *arguments, status=2)
    assert log.strip() == said


@pytest.mark.exhaustive
def test_two_libraries_of_one_name(project: Path) -> None:
    with (project / "models/SConscript").open("a") as file:
        file.write('mace_library(name="one", deployment="one.yml")\n')
    assert "mace: one.yml: another library is called 'one'; give one of them another library_name" in scons(
        project, status=2
    )


@pytest.mark.exhaustive
def test_missing_transforms_are_one_note(project: Path) -> None:
    log = scons(project, MACE_DISABLED_PLUGINS=TRANSFORMS)
    (note,) = (line for line in log.splitlines() if "no transforms are installed" in line)
    assert note.startswith("  note: ")
    assert "pip install mace-transform-standard" in note
    assert "Traceback" not in log
    assert "internal error" not in log


ACCELERATOR = """
from dataclasses import replace
from mace_core import hookimpl
from mace_target_cpu import Cpu

class Acme(Cpu):
    name = "acme"
    device = "npu"

    def lower(self, *how):
        program = super().lower(*how)
        return replace(program, calls=[replace(call, scratch=call.scratch + 4096) for call in program.calls])

class Same(Cpu):
    name = "same"
    device = "npu"

@hookimpl
def mace_targets():
    return (Acme(), Same())
"""


@pytest.mark.exhaustive
def test_choices_of_one_library_have_headers_of_their_own_where_they_differ(project: Path) -> None:
    plugins = project.parent / "plugins"
    info = plugins / "mace_target_acme-1.0.dist-info"
    info.mkdir(parents=True)
    (plugins / "mace_target_acme.py").write_text(ACCELERATOR)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mace-target-acme\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\ntarget-acme = mace_target_acme\n")
    folder = project / "builds/one"

    scons(project, "target=host,host+same,host", PYTHONPATH=str(plugins))
    assert (folder / "include/one.h").read_bytes() == (folder / "include/host/one.h").read_bytes()

    log = scons(project, "target=host,host+acme", PYTHONPATH=str(plugins))
    assert "note: one.h differs between the choices: include it from include/host or include/host+acme" in log
    assert (folder / "include/mace.h").read_bytes() == (folder / "include/host/mace.h").read_bytes()
    sizes = {choice: arena_bytes(folder, choice) for choice in ("host", "host+acme")}
    assert sizes["host+acme"] >= sizes["host"] + 4096
    done = compile_with(folder, "include")
    assert done.returncode != 0
    assert "add include/host or include/host+acme to the include path" in done.stderr


def arena_bytes(folder: Path, choice: str) -> int:
    """What the macro of a choice's header says, in an application that includes it."""
    done = compile_with(folder, f"include/{choice}")
    assert done.returncode == 0, done.stderr
    return int(subprocess.run([folder / "measure"], capture_output=True, text=True, check=True).stdout)


def compile_with(folder: Path, include: str) -> subprocess.CompletedProcess[str]:
    (folder / "measure.c").write_text(
        '#include <stdio.h>\n#include "one.h"\nint main(void) { printf("%d", (int)ONE_NET_SESSION_BYTES); return 0; }\n'
    )
    command = ["cc", "-Werror", f"-I{include}", "measure.c", "-o", "measure"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.exhaustive
def test_validation_data_of_a_test_may_be_any_path(project: Path) -> None:
    np.save(project / "models/labels $(touch pwned).npy", np.zeros(1, np.int64))
    text = 'Import("mace_library", "mace_test")\none = mace_library(name="one", deployment="one.yml")\n'
    (project / "models/SConscript").write_text(
        text + 'mace_test(library=one, labels="labels $(touch pwned).npy")\n'
    )
    assert "passed" in scons(project, "check")
    assert not list(project.parent.rglob("pwned"))

"""The rules of SConscript files: which nodes they declare, of what, and what they refuse; nothing is built."""

from __future__ import annotations

import io
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import SCons.Defaults
import SCons.Node.Alias
import SCons.Node.FS
import SCons.Node.Python
import SCons.SConsign
import SCons.Script
from SCons.Script.SConscript import SConsEnvironment

from mace_core import scons
from mace_core.build_folder import BuildFolder, lock
from mace_core.errors import MaceError
from mace_core.scons import PASSED_ON, Build, Library, exit_on_error
from mace_core.step import Step

DIGITS = Path(__file__).parents[2] / "models/digits"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An SCons that has declared nothing yet, in a project of one model."""
    shutil.copytree(DIGITS, tmp_path / "models")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(SCons.Node.FS, "default_fs", None)
    monkeypatch.setattr(SCons.Node.Alias, "default_ans", SCons.Node.Alias.AliasNameSpace())
    monkeypatch.setattr(SCons.Script, "DEFAULT_TARGETS", [])
    monkeypatch.setattr(SCons.Script, "help_text", None)
    monkeypatch.setattr(SCons.SConsign, "write", lambda: None)
    monkeypatch.setattr(SConsEnvironment, "Default", lambda self, *targets: defaults.append(targets))
    defaults.clear()
    return tmp_path


defaults: list[Any] = []


def build(**arguments: str) -> Build:
    return Build(arguments)


def paths(nodes: Any) -> list[str]:
    return [os.path.relpath(node.get_abspath()) for node in nodes if isinstance(node, SCons.Node.FS.Base)]


def step_of(node: Any) -> Step:
    step = node.get_executor().get_build_env()["MACE_STEP"]
    assert isinstance(step, Step)
    return step


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            {"taget": "host"},
            "taget=: no such option; the options are target=, toolchain=, builds=, fallback=",
        ),
        ({"fallback": "maybe"}, "fallback=maybe: is neither yes nor no; write fallback=no, or leave it out"),
        ({"target": "nowhere"}, "nowhere"),
        ({"target": "host", "toolchain": "nothing"}, "nothing"),
    ],
)
def test_mistakes_in_arguments_end_scons(
    arguments: dict[str, str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as error:
        build(**arguments)
    assert error.value.code == 2
    assert said in capsys.readouterr().err
    assert not Path("builds").exists()


def test_arguments_have_defaults(folder: Path) -> None:
    result = build()
    assert [choice.text for choice in result.choices] == ["host"]
    assert (result.no_fallback, result._folder) == (False, BuildFolder(folder / "builds"))
    assert (folder / "builds").is_dir()
    assert set(result.rules()) == {"mace_library", "mace_test", "mace_benchmark", "mace_package"}
    other = build(target="host,arm64", builds="o/p", fallback="no", toolchain="")
    assert [choice.text for choice in other.choices] == ["host", "arm64"]
    assert (other.no_fallback, build(fallback="yes").no_fallback, other._folder.path) == (
        True,
        False,
        folder / "o/p",
    )
    assert "  fallback=no      fail if" in SCons.Script.help_text


def test_the_deployment_file_names_the_target(folder: Path) -> None:
    file = folder / "models/digits.yml"
    file.write_text(file.read_text().replace("target_abis: [host]", "target_abis: [arm64, host]"))
    assert [choice.text for choice in build(deployment=str(file)).choices] == ["arm64", "host"]
    assert [choice.text for choice in build(deployment=str(file), target="armhf").choices] == ["armhf"]


def test_a_dry_run_opens_no_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SCons.Action, "execute_actions", False)
    build()
    assert not Path("builds").exists()


def test_a_library_is_declared_for_each_choice(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PASSED_ON:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("OTHER", "x")
    result = build(target="host,arm64")
    library = result.library("models/digits.yml")
    assert (library.name, library.folder, library.deployment.library) == (
        "digits",
        folder / "builds/digits",
        "digits",
    )
    assert set(library.variants) == {"host", "arm64"}
    products = {name: paths(nodes) for name, nodes in library.variants.items()}
    assert "builds/digits/lib/host/libdigits.so" in products["host"]
    assert "builds/digits/include/digits.h" in {*products["host"]} & {*products["arm64"]}
    assert not [path for path in products["arm64"] if "/host/" in path]
    node = next(node for node in library.variants["host"] if node.name == "libdigits.so")
    assert "builds/digits/obj/host/digits.o" in " ".join(paths(node.sources))
    values = [source for source in node.sources if isinstance(source, SCons.Node.Python.Value)]
    assert [value.value for value in values] == [step_of(node).signature]
    report = next(node for node in library.variants["host"] if node.name == "host.json")
    assert {"models/digits.yml", "models/digits.onnx"} <= {*paths(report.sources)}
    assert node.precious == step_of(node).replaces
    ((summary,),) = defaults[0]
    assert str(summary) == "library digits"
    assert summary.always_build
    assert step_of(summary).announcement == ""


def test_another_name_or_the_same_twice_is_refused() -> None:
    result = build()
    with pytest.raises(MaceError, match="library_name is 'digits'; call the rule with name='digits'"):
        result.mace_library(name="other", deployment="models/digits.yml")
    with pytest.raises(SystemExit):
        result.library("models/digits.yml")
    assert isinstance(build(builds="b2").mace_library(name="digits", deployment="models/digits.yml"), Library)


def test_a_question_is_about_the_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SCons.Script, "GetOption", lambda name: name == "question")
    library = build().library("models/digits.yml")
    ((*products,),) = defaults[0]
    flat = {node for nodes in products for node in nodes}
    assert {*library.variants["host"]} == flat


def test_checks_of_all_choices_end_in_one_table(folder: Path) -> None:
    result = build(target="host,arm64")
    library = result.library("models/digits.yml")
    result.mace_test(library=library, labels="models/test_labels.npy", accuracy=0.5)
    alias = result._env.Alias("check")[0]
    assert paths(alias.sources) == ["builds/digits/check/host.json", "builds/digits/check/arm64.json"]
    step = step_of(alias.sources[0])
    assert (step.announcement, step.inputs) == (
        "checking digits for host",
        (folder / "models/test_labels.npy",),
    )
    assert {*paths(library.variants["host"])} < {*paths(alias.sources[0].sources)}
    assert alias.sources[0].always_build
    assert len(alias.get_executor().get_action_list()) == 1
    result.mace_benchmark(library=library, rounds=7)
    times = result._env.Alias("benchmark")[0]
    assert paths(times.sources) == ["builds/digits/benchmark/host.json", "builds/digits/benchmark/arm64.json"]
    assert times.sources[0].always_build


def test_without_labels_nothing_more_is_read() -> None:
    result = build()
    result.mace_test(library=result.library("models/digits.yml"))
    assert step_of(result._env.Alias("check")[0].sources[0]).inputs == ()


def test_a_package_holds_the_products_of_all_choices() -> None:
    result = build()
    library = result.library("models/digits.yml")
    result.mace_package(name="all", libraries=[library])
    ((package,),) = (result._env.Alias("package")[0].sources,)
    assert paths([package]) == ["builds/all.tar.gz"]
    assert {*paths(library.variants["host"])} <= {*paths(package.sources)}


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (None, 0, ""),
        (MaceError("a", "b", "c"), 2, "a: b; c"),
        (ZeroDivisionError("z"), 3, "ZeroDivisionError"),
    ],
)
def test_a_step_that_fails_is_a_status_and_a_message(
    tmp_path: Path, error: Exception | None, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(say: Any) -> None:
        say("note: \x1b[2J")
        if error:
            raise error

    begun = SimpleNamespace(begin=(tmp_path / "mark").touch)
    env = {"MACE_STEP": Step(("p",), (), run, "making \x1b[1m p"), "MACE_FOLDER": begun}
    assert scons._perform([], [], env) == status
    printed = capsys.readouterr()
    assert printed.out == "  note: \\x1b[2J\n"
    assert said in printed.err
    assert (tmp_path / "mark").exists()
    assert scons._announce([], [], env) == "making \\x1b[1m p"


def test_rules_end_scons_by_status_and_leave_its_own_errors() -> None:
    def fail(error: Exception) -> None:
        raise error

    for error, status in ((MaceError("a", "b", "c"), 2), (KeyError("x"), 3)):
        with pytest.raises(SystemExit) as ended:
            exit_on_error(fail)(error)
        assert ended.value.code == status
    for own in (SCons.Errors.StopError("x"), SCons.Errors.UserError("x")):
        with pytest.raises(type(own)):
            exit_on_error(fail)(own)
    assert exit_on_error(lambda: 7)() == 7


def test_folders_are_shown_from_where_scons_was_called(folder: Path) -> None:
    result = build()
    assert result._path_to_show(folder / "builds/x") == "builds/x"
    assert result._path_to_show(folder.parent / "x") == str(folder.parent / "x")


def test_streams_print_what_their_encoding_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = [io.TextIOWrapper(io.BytesIO(), "ascii") for _ in range(2)]
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    scons._print_any_character()
    assert [stream.errors for stream in streams] == ["backslashreplace"] * 2


def test_tables_of_checks_give_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[Path]] = []
    monkeypatch.setattr(scons, "print_checks", lambda files: seen.append(files) or 2)
    node = SimpleNamespace(get_abspath=lambda: "/a/b.json")
    assert (scons._print_checks([], [node], None), seen) == (2, [[Path("/a/b.json")]])


def test_an_interrupted_build_leaves_no_signatures(tmp_path: Path) -> None:
    place, said = BuildFolder(tmp_path / "new/deep"), []
    place.open(said.append)
    assert (said, place.path.is_dir()) == ([], True)
    signatures = place.path / ".sconsign.dblite"
    assert str(place.signatures) + ".dblite" == str(signatures)
    signatures.touch()
    place.open(said.append)
    assert signatures.exists(), "the last build ended"
    place.begin()
    place.begin()
    assert (place.path / ".building").exists()
    place.finish()
    place.open(said.append)
    assert (said, signatures.exists()) == ([], True)
    place.begin()
    BuildFolder(tmp_path / "new/deep").open(said.append)
    assert said == ["the last build was interrupted: everything is built again"]
    assert (signatures.exists(), place.mark.exists()) == (False, False)
    place.mark.touch()
    place.open(said.append)
    assert not place.mark.exists(), "also without signatures"
    (tmp_path / "file").touch()
    with pytest.raises(MaceError, match=r"builds=.*file/x: cannot be written: .*; choose another folder"):
        BuildFolder(tmp_path / "file/x").open(print)


@pytest.mark.parametrize("failure", [MaceError("a", "b", "c"), OSError(28, "full"), KeyboardInterrupt()])
def test_a_step_that_fails_leaves_no_products(failure: BaseException, folder: Path) -> None:
    """Half of a file would count as what the step made when its inputs were last the same."""
    result = build()

    def write_half(say: object) -> None:
        Path("builds/half").touch()
        raise failure

    env = {"MACE_FOLDER": result._folder, "MACE_STEP": Step(("half", "other"), (), write_half)}
    nodes = [result._file(folder / "builds" / name) for name in ("half", "other")]
    Path("alias").touch()
    alias = SCons.Node.Alias.default_ans.Alias("alias")
    if isinstance(failure, Exception):
        assert scons._perform([*nodes, alias], [], env) == (2 if isinstance(failure, MaceError) else 3)
    else:
        with pytest.raises(KeyboardInterrupt):
            scons._perform([*nodes, alias], [], env)
    assert not Path("builds/half").exists()
    assert Path("alias").exists(), "an alias is no file"


def test_signatures_that_find_no_space_are_not_trusted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SCons.SConsign, "write", fail)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    place = build()._folder
    place.begin()
    with pytest.raises(SystemExit) as ended:
        SCons.SConsign.write()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "builds: cannot be written: No space left on device; free some disk space, and build again" in said
    assert place.mark.exists(), "the next build makes everything again"
    monkeypatch.setattr(SCons.SConsign, "write", lambda: None)
    place = build()._folder
    place.begin()
    SCons.SConsign.write()
    assert not place.mark.exists()


def test_a_folder_is_locked_once(tmp_path: Path) -> None:
    """Another open file, as another process has one, cannot lock it until the first is closed."""
    fcntl = pytest.importorskip("fcntl")
    said: list[str] = []
    lock(tmp_path, said.append)
    handle = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(handle)
    assert said == []


def test_a_second_build_says_that_it_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")
    calls: list[int] = []

    def flock(handle: int, operation: int) -> None:
        calls.append(operation)
        if operation & fcntl.LOCK_NB:
            raise BlockingIOError

    monkeypatch.setattr(fcntl, "flock", flock)
    said: list[str] = []
    lock(tmp_path, said.append)
    assert (calls, said) == (
        [fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_EX],
        [f"waiting for another build in {tmp_path}"],
    )

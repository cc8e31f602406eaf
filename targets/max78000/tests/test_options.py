"""Options that reach names of files, Makefiles, C sources or shells: each has a grammar, and what does not fit is one message."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from mace_core.commands import check_deployment, convert_files
from mace_core.deployment import load_deployment
from mace_core.errors import MaceError
from mace_core.registry import Registry
from mace_core.target_options import check_target_options
from mace_target_max78000.firmware.layout import layout
from mace_target_max78000.options import Options

FILES = ("c_filename", "api_filename", "weight_filename", "sample_filename", "sample_output_filename")
EVIL = (
    "../../x.c",
    "/tmp/x.c",
    "a/b.c",
    "a b.c",
    'a".c',
    "a\n.c",
    "$(touch x).c",
    "`x`.c",
    ";x.c",
    "-x.c",
    ".c",
    "..c/..",
)
EVIL += ("x" * 5000, "é.c", "a\0.c", "~/x.c")
WORDS = (
    "B;>/path;",
    "$(shell touch x)",
    "a b",
    "`x`",
    "a\nb",
    "../x",
    "#x",
    "a$b",
    "x" * 5000,
    "",
    'a"b',
    "a'b",
    "a\\b",
    "a%b",
    "{x}",
)
DEFINES = (
    "A;x",
    "A=$(x)",
    "A=`x`",
    "A='x'",
    'A="x"',
    "1A",
    "A=1;>x",
    "-I/x",
    "A=B\\",
    "A,x",
    "-DA=1;x",
    "A=" + "x" * 5000,
    "A=1 $(x)",
)


def of_arguments(asked: dict[str, object], place: str) -> Options:
    """Read one option as the command line has it."""
    ((name, value),) = asked.items()
    return Options.of_arguments([f"--{name}", str(value)], place)


@pytest.mark.parametrize("read", [Options.of, of_arguments])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((f, v) for f in FILES for v in EVIL),
        *((w, v) for w in ("prefix", "board_name") for v in WORDS),
        *(("define", d) for d in DEFINES),
    ],
)
def test_nothing_leaves_its_grammar(read: Callable[..., Options], name: str, value: str) -> None:
    """In a deployment file, and as an argument of the command line."""
    with pytest.raises(MaceError, match=name) as told:
        read({name: value}, "here")
    assert len(str(told.value).splitlines()) == 1
    assert len(str(told.value)) < 500


@pytest.mark.parametrize("value", [5, 1.5, None, True, ["a"], {"a": 1}])
def test_text_is_text(value: object) -> None:
    for name in (*FILES, "prefix", "board_name"):
        with pytest.raises(MaceError, match=name):
            Options.of({name: value}, "here")


def test_what_is_allowed_arrives() -> None:
    names = {"c_filename": "demo", "api_filename": "net.c", "weight_filename": "w.h"}
    options = Options.of(
        {"prefix": "int", "board_name": "FTHR_RevA-2.1", "define": "A B=1 -DC=x.y D=-0x1F E=", **names},
        "here",
    )
    assert options.define == ("A", "B=1", "C=x.y", "D=-0x1F", "E=")
    assert {"demo.c", "net.c", "net.h", "w.h", "sampledata.h"} <= set(layout(options))


@pytest.mark.parametrize(
    "asked",
    [
        {"c_filename": "a.c", "api_filename": "a.c"},
        {"c_filename": "Cnn.c"},
        {"weight_filename": "cnn.h"},
        {"sample_filename": "weights.h"},
        {"weight_filename": "main.c"},
        {"c_filename": "main.h"},
        {"weight_filename": "stdint.h"},
        {"weight_filename": "Board.h"},
        {"c_filename": "softmax.c"},
        {"riscv": True, "api_filename": "main_riscv.c"},
    ],
)
def test_two_files_of_one_name_are_refused(asked: dict[str, object]) -> None:
    with pytest.raises(MaceError):
        Options.of(asked, "here")


def deployment(folder: Path, options: dict[str, object]) -> Path:
    (folder / "m.onnx").touch()
    file = folder / "d.yml"
    file.write_text(
        yaml.safe_dump(
            {"library_name": "lib", "models": {"m": {"model_file_path": "m.onnx", "target_options": options}}}
        )
    )
    return file


def test_options_are_checked_when_the_file_is_read(tmp_path: Path) -> None:
    """Of every target that is installed, whatever is built for, and before anything is written."""
    file = deployment(
        tmp_path, {"max78000": {"c_filename": "../../x", "board_name": "B;>/path;"}, "cpu": {"fast": 1}}
    )
    for target in ("host", "max78000"):
        with pytest.raises(MaceError) as told:
            convert_files(file, target, tmp_path / "out")
        assert [
            line
            for line in ("c_filename", "board_name", "the target takes no options")
            if line not in str(told.value)
        ] == []
        with pytest.raises(MaceError, match="c_filename"):
            list(check_deployment(file, target))
    assert not (tmp_path / "out").exists()


def test_targets_that_are_not_there(tmp_path: Path) -> None:
    registry = Registry.load()
    with pytest.raises(MaceError, match=r"did you mean 'max7800[02]'"):
        check_target_options(load_deployment(deployment(tmp_path, {"max7800": {}})), registry)
    (note,) = check_target_options(load_deployment(deployment(tmp_path, {"acme": {"x": 1}})), registry).notes
    assert "'acme' is not installed" in note

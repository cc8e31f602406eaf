"""Files are whole or not there."""

import errno
import os
import re
import tempfile
from pathlib import Path

import pytest

from mace_core.api import Stream
from mace_core.errors import MaceError
from mace_core.run.files import make_folder, plain_names, write, write_all
from mace_core.testing import hostile


def test_a_full_disk_is_one_message_and_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "x.c", "old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(
        MaceError, match=r"x\.c: cannot be written: No space left on device; free some disk space"
    ):
        write(tmp_path / "x.c", "new")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("x.c", "old")]


def test_a_folder_that_takes_no_file_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a" / "b"
    make_folder(folder)
    make_folder(folder)
    assert folder.is_dir()
    assert not [*folder.iterdir()]

    def refuse(**_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(
        MaceError,
        match="a/b: no file can be written there: Read-only file system; name a folder that you may write to",
    ):
        make_folder(folder)


def test_an_interruption_leaves_nothing(tmp_path: Path) -> None:
    def pieces():  # type: ignore[no-untyped-def]  # a generator that never gets to its end
        yield b"half"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "weights.bin", Stream(pieces))
    assert list(tmp_path.iterdir()) == []


def test_the_same_content_keeps_its_date(tmp_path: Path) -> None:
    write_all(tmp_path, {"a.c": "text", "b/c.bin": b"\0"})
    os.utime(tmp_path / "a.c", (1, 1))
    write(tmp_path / "a.c", "text")
    assert (tmp_path / "a.c").stat().st_mtime == 1
    write(tmp_path / "a.c", "other")
    assert (tmp_path / "a.c").stat().st_mtime != 1


@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            "/",
            "/etc/passwd",
            "..",
            "../x",
            "a/../../x",
            "a/../b",
            "./x",
            "a//b",
            "a/",
            "//host/x",
            "~/../x/",
        ),
        *(
            "a\0b",
            "a\nb",
            "\x1b[0m",
            "a\u202eb",
            "C:/x",
            "c:x",
            "a\\..\\b",
            "\\\\host\\x",
            "a:stream",
            "a*",
            'a"b',
            "a|b",
        ),
        *("con", "CON.txt", "a/nul", "lpt1.c", "x.", "x ", ".git/hooks/pre-commit", "a/.GIT/config"),
        *("x" * 231, "é" * 116, "a/" + "x" * 5000),
    ],
)
def test_nothing_is_written_outside_or_under_names_of_others(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    with pytest.raises(MaceError, match="write only plain names") as error:
        write_all(folder, {"first.c": "text", name: "text"})
    assert len(str(error.value)) < 500
    assert list(tmp_path.iterdir()) == []  # all names are checked before the first file


@pytest.mark.parametrize("name", ["x" * 230, "é" * 115, "a/" + "x" * 230])
def test_the_longest_names_are_written(name: str, tmp_path: Path) -> None:
    write_all(tmp_path, {name: "text"})
    assert (tmp_path / name).read_text() == "text"


def test_links_that_lead_out_are_not_followed(tmp_path: Path) -> None:
    folder, outside = tmp_path / "out", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "kept").write_text("mine")
    (folder / "away").symlink_to(outside)
    (folder / "loop").symlink_to(folder / "loop")
    for name in ("away/x", "away/deep/x", "loop/x"):
        with pytest.raises(MaceError, match="link"):
            write_all(folder, {name: "text"})
    (folder / "file").symlink_to(outside / "kept")
    write_all(folder, {"file": "text"})
    assert (outside / "kept").read_text() == "mine"
    assert (folder / "file").read_text() == "text"
    (folder / "same").symlink_to(outside / "kept")
    write_all(folder, {"same": "mine"})
    assert not (folder / "same").is_symlink()
    (tmp_path / "alias").symlink_to(folder)  # the folder itself may be a link of the user's
    write_all(tmp_path / "alias", {"deep/x": "text"})
    assert (folder / "deep/x").read_text() == "text"


def test_two_names_for_one_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MaceError, match="one file on some systems"):
        write_all(tmp_path, {"a.h": "1", "A.h": "2"})
    assert list(tmp_path.iterdir()) == []


def test_a_path_too_long_is_one_message(tmp_path: Path) -> None:
    for path in (tmp_path / ("x" * 5000), tmp_path.joinpath(*["deep" * 20] * 60, "x")):
        with pytest.raises(MaceError, match="choose shorter names") as error:
            write(path, "text")
        assert len(str(error.value)) < 500


def test_names_of_tensors_as_names_of_files() -> None:
    """Different names give different files, whatever is in them and whatever the file system."""
    names = [
        "y",
        "Y",
        "a/b",
        "a:b",
        "..",
        ".hidden",
        "-rf",
        "con",
        "é",
        "x" * 10_000,
        "x" * 10_001,
        "",
        "a\0b",
        "y_2",
        *hostile.NAMES,
    ]
    result = plain_names(names)
    assert list(result) == list(dict.fromkeys(names))
    assert result["y"] == "y"
    assert len({stem.lower() for stem in result.values()}) == len(result)
    for stem in result.values():
        assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,110}", stem), stem

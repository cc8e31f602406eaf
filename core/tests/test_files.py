"""Files are whole or not there."""

import errno
import os
from pathlib import Path

import pytest

from mace_core.api import Stream
from mace_core.errors import MaceError
from mace_core.run.files import write, write_all


def test_a_full_disk_is_one_message_and_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "x.c", "old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(MaceError, match=r"x\.c: cannot be written: No space left on device; free some disk space"):
        write(tmp_path / "x.c", "new")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("x.c", "old")]


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

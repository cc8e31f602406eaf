"""What is kept in the cache folder: found again, not trusted from others, removed when it becomes too much."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mace_core.cache import CACHE
from mace_core.run import disk_cache


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE, str(tmp_path))
    return tmp_path / "things"


def test_what_is_kept_is_recalled(folder: Path) -> None:
    assert disk_cache.read_cached("things", "key") is None
    disk_cache.write_cached("things", "key", b"content")
    result = disk_cache.read_cached("things", "key")
    assert result == (folder / "key").resolve()
    assert result.read_bytes() == b"content"
    assert disk_cache.read_cached("others", "key") is None
    disk_cache.write_cached("things", "key", b"newer")
    assert result.read_bytes() == b"newer"


def test_a_link_and_another_users_file_are_not_recalled(folder: Path, tmp_path: Path) -> None:
    disk_cache.write_cached("things", "key", b"content")
    (tmp_path / "elsewhere").write_bytes(b"bad")
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    assert disk_cache.read_cached("things", "link") is None
    (folder / "key").chmod(0o666)
    assert disk_cache.read_cached("things", "key") is None
    (folder / "key").chmod(0o600)
    folder.chmod(0o777)
    assert disk_cache.read_cached("things", "key") is None
    disk_cache.write_cached("things", "more", b"")
    assert not (folder / "more").exists(), "others could replace it"


def test_the_least_used_files_go_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_cache, "MAX_BYTES", 25)
    for age, key in enumerate(("new", "old", "oldest")):
        disk_cache.write_cached("things", key, bytes(10))
        os.utime(folder / key, (1000 - age, 1000 - age))
    disk_cache.write_cached("things", "last", bytes(10))
    assert sorted(path.name for path in folder.iterdir()) == ["last", "new"]
    os.utime(folder / "last", (1, 1))
    disk_cache.read_cached("things", "last")
    disk_cache.write_cached("things", "again", bytes(10))
    assert sorted(path.name for path in folder.iterdir()) == ["again", "last"], (
        "what is recalled counts as used"
    )


def test_what_cannot_be_kept_is_no_error(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    (folder / "key").mkdir()
    disk_cache.write_cached("things", "key", b"content")
    assert disk_cache.read_cached("things", "key") is None

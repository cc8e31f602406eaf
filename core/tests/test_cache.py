"""The user's cache folder: where it is, and when nobody else can have put anything into it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mace_core.cache import CACHE, cache_folder, is_own, private_folder

not_windows = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="users and modes of files are POSIX")


def test_the_folder_follows_its_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CACHE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder("models") == tmp_path / "mace/models"
    monkeypatch.setenv(CACHE, str(tmp_path / "mine"))
    assert cache_folder("models") == tmp_path / "mine/models"


@pytest.mark.parametrize("home", ["", "relative/cache"])
def test_a_relative_xdg_folder_does_not_count(
    home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CACHE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", home)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder("kind") == tmp_path / ".cache/mace/kind"


def test_a_relative_folder_of_ours_starts_where_the_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(CACHE, "here")
    assert cache_folder("kind") == tmp_path / "here/kind"


@not_windows
def test_a_folder_is_made_for_its_user_alone(tmp_path: Path) -> None:
    folder = private_folder(tmp_path / "a/b")
    assert folder == (tmp_path / "a/b").resolve()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert private_folder(tmp_path / "a/b") == folder


@not_windows
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_write_to_is_none(mode: int, tmp_path: Path) -> None:
    for name in ("own", "above"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(mode)
    assert private_folder(tmp_path / "own") is None
    assert private_folder(tmp_path / "above/below") is None, "they could put another folder in its place"


@not_windows
def test_a_sticky_folder_above_is_no_danger(tmp_path: Path) -> None:
    """Nobody but the owner can rename what lies in it; it must be root's, as /tmp is."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    expected = os.geteuid() == 0
    assert (private_folder(tmp_path / "shared/own") is not None) is expected


@not_windows
def test_a_link_is_followed_before_it_is_trusted(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path / "open")
    assert private_folder(tmp_path / "link") is None


def test_a_file_in_the_way_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert private_folder(tmp_path / "file/folder") is None


@not_windows
def test_another_users_file_is_not_own(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = (tmp_path / "file").stat()
    assert is_own(result)
    stranger = os.stat_result([*result[:4], os.geteuid() + 1, *result[5:10]])
    assert not is_own(stranger)

"""Model files from the network, kept by checksum."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import urllib.request
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from mace_core.errors import MaceError

CACHE = "MACE_CACHE"
"""Environment variable: the folder for downloads, instead of `mace` in the user's cache folder."""

TIMEOUT = 60.0
"""Seconds without an answer after which a download fails."""


def is_url(location: str) -> bool:
    """Whether a location is to be downloaded."""
    return location.lower().startswith(("http://", "https://"))


def cached(url: str, checksum: str) -> Path:
    """Where a download is or will be kept: under its checksum, with the name that the URL ends in.

    The folder follows the XDG base directory specification unless MACE_CACHE names it.
    """
    try:
        name = PurePosixPath(unquote(urlsplit(url).path)).name
    except ValueError:  # as for an unfinished IPv6 address; `download` tells
        name = ""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[-100:].lstrip(".") or "model"
    return _cache() / "models" / checksum / name


def _cache() -> Path:
    if folder := os.environ.get(CACHE):
        return Path(folder).absolute()
    home = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(home) if os.path.isabs(home) else Path(os.path.expanduser("~"), ".cache")) / "mace"


def sha256(path: Path) -> str:
    """The SHA-256 checksum of a file, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download(url: str, checksum: str) -> Path:
    """The file at a URL, from the cache if it is there and whole.

    A file appears in the cache complete and checked, or not at all.
    Raises MaceError if the network fails or the file has another checksum.
    """
    path = cached(url, checksum)
    try:
        if path.is_file() and sha256(path) == checksum:
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix="part-") as folder:
            part = Path(folder, path.name)
            _copy(url, part)
            found = sha256(part)
            if found == checksum:
                part.replace(path)
    except (OSError, HTTPException, ValueError) as error:
        raise MaceError(url, f"cannot be downloaded: {error}", "check the URL and the network, or give a local path") from None
    if found != checksum:
        raise MaceError(url, f"has SHA-256 {found}, expected {checksum}", "correct the checksum, or find out who changed the file")
    return path


def _copy(url: str, to: Path) -> None:
    if not is_url(url):  # urllib would open local files too
        raise ValueError("not an http:// or https:// URL")
    with urllib.request.urlopen(url, timeout=TIMEOUT) as answer, to.open("wb") as file:  # noqa: S310  # the scheme is checked above
        shutil.copyfileobj(answer, file)

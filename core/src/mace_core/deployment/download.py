"""Model files from the network, kept by checksum."""

from __future__ import annotations

import hashlib
import re
import shutil
import urllib.request
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse, IncompleteRead
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit

from mace_core.cache import cache_folder
from mace_core.errors import MaceError

TIMEOUT = 60.0
"""Seconds without an answer after which a download fails."""


def is_url(location: str) -> bool:
    """Whether a location is to be downloaded."""
    return location.lower().startswith(("http://", "https://"))


def cached(url: str, checksum: str) -> Path:
    """Where a download is or will be kept: under its checksum, with the name that the URL ends in."""
    try:
        name = PurePosixPath(unquote(urlsplit(url).path)).name
    except ValueError:  # as for an unfinished IPv6 address; `download` tells
        name = ""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[-100:].lstrip(".") or "model"
    return cache_folder("models") / checksum / name


def sha256(path: Path) -> str:
    """The SHA-256 checksum of a file, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download(url: str, checksum: str) -> Path:
    """The file at a URL, from the cache if it is there and whole; what an interrupted download left is continued.

    A file appears in the cache under its name complete and checked, or not at all.
    Raises MaceError if the network fails or the file has another checksum.
    """
    path = cached(url, checksum)
    part = path.with_name(f"{path.name}.part")
    try:
        if path.is_file() and sha256(path) == checksum:
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        continued = _fetch(url, part)
        found = sha256(part)
        if found != checksum and continued:  # what was there may be of another file
            part.unlink()
            _fetch(url, part)
            found = sha256(part)
        if found == checksum:
            part.replace(path)
        else:
            part.unlink()
    except (OSError, HTTPException, ValueError) as error:
        remedy = "check the URL and the network, or give a local path; what arrived is kept and continued"
        raise MaceError(url, f"cannot be downloaded: {error}", remedy) from None
    if found != checksum:
        raise MaceError(url, f"has SHA-256 {found}, expected {checksum}", "correct the checksum, or find out who changed the file")
    return path


def _fetch(url: str, part: Path) -> bool:
    """Let a file hold all that the URL offers; whether what it held already was kept. See RFC 9110, 14 for ranges."""
    if not is_url(url):  # urllib would open local files too
        raise ValueError("not an http:// or https:// URL")
    held = part.stat().st_size if part.is_file() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={held}-"} if held else {})  # noqa: S310  # the scheme is checked above
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310
            continued = bool(answer.status == HTTPStatus.PARTIAL_CONTENT)
            with part.open("ab" if continued else "wb") as file:
                _copy(answer, file)
    except HTTPError as error:
        if error.code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            raise
        return True  # nothing is missing
    return continued


def _copy(answer: HTTPResponse, file: IO[bytes]) -> None:
    """Everything that the answer announced; IncompleteRead if the connection ends before."""
    length = answer.headers.get("Content-Length")
    start = file.tell()
    shutil.copyfileobj(answer, file)
    if length is not None and file.tell() - start < int(length):
        raise IncompleteRead(b"", int(length) - (file.tell() - start))

"""Downloads model files and keeps them by checksum."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path, PurePosixPath
from threading import Timer
from typing import IO, Any, cast
from urllib import request as web
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit

from mace_core.cache import cache_folder
from mace_core.errors import MaceError

SILENCE = 60.0
"""Seconds without a byte after which a download fails."""

PIECE = 1 << 16
MIB = 1 << 20
PROGRESS_INTERVAL = 2.0
"""Seconds between two lines of progress."""

REMEDY = "check the URL and the network, or give a local path; what arrived is kept and continued"

_log = logging.getLogger("mace.download")


@dataclass(frozen=True)
class DownloadLimits:
    """Limits of one download: seconds and bytes in total."""

    seconds: float = 3600.0
    size: int = 4096 * MIB


DEFAULT_LIMITS = DownloadLimits()


class _LimitError(Exception):
    """A limit was reached: what happened, and what to do."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.problem, self.remedy = problem, remedy


@dataclass(frozen=True)
class _Fetched:
    """The end of a request.

    continued: whether the answer was added to what the file held already.
    complete: whether as many bytes came as the server announced; None if it announced no length.
    """

    continued: bool
    complete: bool | None


def is_url(location: str) -> bool:
    """Tell whether a location is to be downloaded."""
    return location.lower().startswith(("http://", "https://"))


def cache_path(url: str, checksum: str) -> Path:
    """Return where a download is cached: under its checksum, named like the end of the URL."""
    try:
        name = PurePosixPath(unquote(urlsplit(url).path)).name
    except ValueError:  # as for an unfinished IPv6 address; `download` reports it
        name = ""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[-100:].lstrip(".") or "model"
    return cache_folder("models") / checksum / name


def sha256(path: Path) -> str:
    """The SHA-256 checksum of a file, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download(url: str, checksum: str, limits: DownloadLimits = DEFAULT_LIMITS) -> Path:
    """The file at a URL, from the cache if it is there and whole.

    Continues what an interrupted download left.

    A file appears in the cache under its name complete and checked, or not at all.
    Raises MaceError if the network fails, a limit is reached, or the file has another checksum.
    """
    path = cache_path(url, checksum)
    part = path.with_name(f"{path.name}.part")
    try:
        if path.is_file() and sha256(path) == checksum:
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + limits.seconds
        fetched = _fetch(url, part, limits, deadline)
        actual = sha256(part)
        if actual != checksum and fetched.continued:  # what was there may be of another file
            part.unlink()
            fetched = _fetch(url, part, limits, deadline)
            actual = sha256(part)
    except _LimitError as error:
        raise MaceError(url, f"cannot be downloaded: {error.problem}", error.remedy) from None
    except (OSError, HTTPException, ValueError) as error:
        raise MaceError(url, f"cannot be downloaded: {error}", REMEDY) from None
    # The checksum decides, not the announced length: a wrong Content-Length is no reason to lose a right
    # file.
    if actual == checksum:
        part.replace(path)
        return path
    _refuse(url, part, (actual, checksum), fetched)
    raise AssertionError("unreachable")


def _refuse(url: str, part: Path, checksums: tuple[str, str], fetched: _Fetched) -> None:
    """Raise the error for a file with another checksum.

    A file that may be incomplete is kept to be continued.
    """
    size = part.stat().st_size
    if fetched.complete is False:
        raise MaceError(url, f"cannot be downloaded: the connection ended after {size} bytes", REMEDY)
    if fetched.complete is None and not fetched.continued and size:
        problem = f"gave {size} bytes with SHA-256 {checksums[0]}, expected {checksums[1]}, and no length"
        raise MaceError(
            url, problem, "run it again to continue where it may have ended, or correct the checksum"
        )
    part.unlink()
    problem = f"has SHA-256 {checksums[0]}, expected {checksums[1]}"
    raise MaceError(url, problem, "correct the checksum, or find out who changed the file")


def _fetch(url: str, part: Path, limits: DownloadLimits, deadline: float) -> _Fetched:
    """Let a file hold all that the URL offers. See RFC 9110, section 14 for ranges."""
    if not is_url(url):
        raise ValueError("not an http:// or https:// URL")
    if "@" in urlsplit(url).netloc:
        raise ValueError("a URL with a user name or password; no secret is sent")
    with _open_plain(part) as file:
        size = file.seek(0, os.SEEK_END)
        headers = {"Range": f"bytes={size}-"} if size else {}
        try:
            with _Watch(limits, deadline) as watch:
                answer = watch.open(web.Request(url, headers=headers))  # noqa: S310  # scheme checked above
                continued = bool(answer.status == HTTPStatus.PARTIAL_CONTENT)
                if not continued:
                    file.truncate(0)
                    file.seek(0)
                with answer:
                    return _Fetched(continued, _copy(answer, file, watch))
        except HTTPError as error:
            error.close()
            if error.code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not size:
                raise
            return _Fetched(continued=True, complete=True)  # nothing is missing


@contextmanager
def _open_plain(part: Path) -> Iterator[IO[bytes]]:
    """A regular file of our own, for reading and writing; anything else of that name is removed first.

    A symbolic or hard link that somebody left in a shared cache would let the download overwrite another
    file.
    """
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    if part.is_symlink() or (part.exists() and not _is_plain(part.lstat())):
        part.unlink()
    handle = os.open(part, flags, 0o600)
    with os.fdopen(handle, "r+b") as file:
        if not _is_plain(os.fstat(handle)):
            raise OSError(f"{part} is not a plain file")
        yield file


def _is_plain(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


class _Watch:
    """Opens a URL, and ends its connection when the time is up, whatever it waits for.

    A timeout of the socket does not help against a server that sends a byte now and then.
    """

    def __init__(self, limits: DownloadLimits, deadline: float) -> None:
        self.limits = limits
        self._deadline = deadline
        self.sockets: list[socket.socket] = []
        self._timer = Timer(max(0.0, deadline - time.monotonic()), self._end)
        self._timer.daemon = True

    def __enter__(self) -> _Watch:
        self.check()
        self._timer.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._timer.cancel()
        if isinstance(error, (OSError, HTTPException)):
            self.check()

    def check(self) -> None:
        """Raise _LimitError if the time is up."""
        if time.monotonic() >= self._deadline:
            remedy = "run it again to continue, raise download_max_seconds, or download it by hand"
            raise _LimitError(f"it takes longer than {self.limits.seconds:g} seconds", remedy)

    def open(self, request: web.Request) -> HTTPResponse:
        """The answer to a request.

        Redirects lead to http:// and https:// alone: no handler for another scheme is there.
        """
        opener = web.OpenerDirector()
        for handler in (
            web.ProxyHandler(),
            web.HTTPDefaultErrorHandler(),
            web.HTTPRedirectHandler(),
            web.HTTPErrorProcessor(),
            web.UnknownHandler(),
            _Http(self),
            _Https(self),
        ):
            opener.add_handler(handler)
        return cast(HTTPResponse, opener.open(request, timeout=min(SILENCE, self.limits.seconds)))

    def _end(self) -> None:
        for connected in self.sockets:
            with suppress(OSError):  # it may have ended already
                connected.shutdown(socket.SHUT_RDWR)


class _WatchedHttp(HTTPConnection):
    """An HTTP connection that ends with its watch; urllib releases the socket before the body is read."""

    def __init__(self, *arguments: Any, watch: _Watch, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._watch = watch

    def connect(self) -> None:
        super().connect()
        self._watch.sockets.append(self.sock)


class _WatchedHttps(HTTPSConnection):
    """An HTTPS connection that ends with its watch."""

    def __init__(self, *arguments: Any, watch: _Watch, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._watch = watch

    def connect(self) -> None:
        super().connect()
        self._watch.sockets.append(self.sock)


class _Http(web.HTTPHandler):
    """Opens http:// URLs under a watch."""

    def __init__(self, watch: _Watch) -> None:
        super().__init__()
        self._watch = watch

    def http_open(self, req: web.Request) -> HTTPResponse:
        return self.do_open(cast(Any, partial(_WatchedHttp, watch=self._watch)), req)


class _Https(web.HTTPSHandler):
    """Opens https:// URLs under a watch, with the certificates of this machine."""

    def __init__(self, watch: _Watch) -> None:
        super().__init__()
        self._watch = watch

    def https_open(self, req: web.Request) -> HTTPResponse:
        return self.do_open(cast(Any, partial(_WatchedHttps, watch=self._watch)), req)


def _copy(answer: HTTPResponse, file: IO[bytes], watch: _Watch) -> bool | None:
    """Write what the answer holds.

    Whether that is as much as it announced, None if it announced no number.
    """
    start = size = file.tell()
    announced = _announced_length(answer)
    max_size = watch.limits.size
    too_large = f"it is larger than {max_size / MIB:g} MiB"
    remedy = "raise download_max_mib in the deployment file, or download it by hand"
    if announced is not None and start + announced > max_size:
        raise _LimitError(too_large, remedy)
    last_report = time.monotonic()
    while piece := answer.read1(PIECE):
        size += len(piece)
        if size > max_size:
            file.truncate(0)  # a body without end is no beginning of a file
            raise _LimitError(too_large, remedy)
        file.write(piece)
        watch.check()
        if time.monotonic() - last_report >= PROGRESS_INTERVAL:
            last_report = time.monotonic()
            _log.info("%s: %s", answer.url, _progress(size, announced and start + announced))
    watch.check()  # a connection that the watch has ended looks like one that is complete
    return None if announced is None else size - start >= announced


def _announced_length(answer: HTTPResponse) -> int | None:
    """The number of bytes that the server announced, if it is a number."""
    text = (answer.headers.get("Content-Length") or "").strip()
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None


def _progress(size: int, total: int | None) -> str:
    return f"{size / MIB:.1f} MiB" + (f" of {total / MIB:.1f} MiB ({size / total:.0%})" if total else "")

"""Downloads from a server on this machine."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from mace_core.deployment.download import cached, download
from mace_core.errors import MaceError

CONTENT = bytes(range(256)) * 1000
CHECKSUM = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Server:
    """What it answers with, and what it was asked for.

    most: bytes after which it hangs up; ranges: whether it continues where it is asked to.
    """

    url: str
    content: bytes = CONTENT
    most: int = len(CONTENT)
    ranges: bool = True
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("MACE_CACHE", str(tmp_path / "cache"))
    made = Server("")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # http.server's name
            wanted = self.headers.get("Range", "")
            made.asked.append(wanted)
            start = int(found[1]) if made.ranges and (found := re.fullmatch(r"bytes=(\d+)-", wanted)) else 0
            if start >= len(made.content):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(made.content) - start))
            self.end_headers()
            self.wfile.write(made.content[start : start + made.most])

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # http.server's name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        Thread(target=http.serve_forever, daemon=True).start()
        made.url = f"http://127.0.0.1:{http.server_address[1]}/models/net.onnx"
        yield made
        http.shutdown()


def test_a_download_is_kept_under_its_checksum(server: Server) -> None:
    path = download(server.url, CHECKSUM)
    assert path.name == "net.onnx"
    assert path.read_bytes() == CONTENT
    assert download(server.url, CHECKSUM) == path
    assert server.asked == [""]


def test_an_interrupted_download_is_continued(server: Server) -> None:
    server.most = 1000
    with pytest.raises(MaceError, match="cannot be downloaded"):
        download(server.url, CHECKSUM)
    assert not cached(server.url, CHECKSUM).exists()
    server.most = len(CONTENT)
    assert download(server.url, CHECKSUM).read_bytes() == CONTENT
    assert server.asked == ["", "bytes=1000-"]


def test_a_server_without_ranges_sends_everything_again(server: Server) -> None:
    server.most = 1000
    with pytest.raises(MaceError):
        download(server.url, CHECKSUM)
    server.most, server.ranges = len(CONTENT), False
    assert download(server.url, CHECKSUM).read_bytes() == CONTENT


def test_a_continued_download_of_a_file_that_changed_starts_anew(server: Server) -> None:
    part = cached(server.url, CHECKSUM).with_name("net.onnx.part")
    part.parent.mkdir(parents=True)
    part.write_bytes(b"of another file")
    assert download(server.url, CHECKSUM).read_bytes() == CONTENT
    assert server.asked == ["bytes=15-", ""]


def test_a_file_that_is_all_there_is_not_fetched_again(server: Server) -> None:
    part = cached(server.url, CHECKSUM).with_name("net.onnx.part")
    part.parent.mkdir(parents=True)
    part.write_bytes(CONTENT)
    assert download(server.url, CHECKSUM).read_bytes() == CONTENT


def test_another_checksum_leaves_nothing(server: Server) -> None:
    server.content = b"something else"
    with pytest.raises(MaceError, match="has SHA-256"):
        download(server.url, CHECKSUM)
    assert not list(cached(server.url, CHECKSUM).parent.iterdir())


def test_no_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MACE_CACHE", str(tmp_path))
    with pytest.raises(MaceError, match=r"cannot be downloaded.*check the URL"):
        download("http://127.0.0.1:9/net.onnx", CHECKSUM)

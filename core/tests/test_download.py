"""Downloads from a server on this machine."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from mace_core.deployment import download as download_module
from mace_core.deployment import load_deployment
from mace_core.deployment.download import DownloadLimits, cache_path, download
from mace_core.errors import MaceError

CONTENT = bytes(range(256)) * 1000
CHECKSUM = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Server:
    """What it answers with, and what it was asked for.

    most: bytes after which it hangs up; ranges: whether it continues where it is asked to.
    length: the Content-Length that it states; None for the right one, "" for none.
    drip: seconds between two bytes.  endless: whether the body is repeated without end.  redirect: where it
    sends everybody.
    """

    url: str
    content: bytes = CONTENT
    most: int = len(CONTENT)
    ranges: bool = True
    length: str | None = None
    drip: float = 0.0
    endless: bool = False
    redirect: str = ""
    status: int = 200
    asked: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    def bodies(self, start: int) -> Iterator[bytes]:
        body = self.content[start : start + self.most]
        if self.drip:
            for i in range(len(body)):
                time.sleep(self.drip)
                yield body[i : i + 1]
            return
        yield body
        while self.endless:
            yield body


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("MACE_CACHE", str(tmp_path / "cache"))
    made = Server("")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # http.server's name
            expected = self.headers.get("Range", "")
            made.asked.append(expected)
            made.paths.append(self.path)
            start = int(found[1]) if made.ranges and (found := re.fullmatch(r"bytes=(\d+)-", expected)) else 0
            if made.redirect:
                self.send_response(302)
                self.send_header("Location", made.redirect)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if start >= len(made.content) or made.status != 200:
                self.send_error(416 if made.status == 200 else made.status)
                return
            self.send_response(206 if start else 200)
            if made.length != "":
                self.send_header("Content-Length", made.length or str(len(made.content) - start))
            self.end_headers()
            with suppress(OSError):  # the client may have had enough
                for piece in made.bodies(start):
                    self.wfile.write(piece)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # http.server's name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
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
    assert not cache_path(server.url, CHECKSUM).exists()
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
    part = cache_path(server.url, CHECKSUM).with_name("net.onnx.part")
    part.parent.mkdir(parents=True)
    part.write_bytes(b"of another file")
    assert download(server.url, CHECKSUM).read_bytes() == CONTENT
    assert server.asked == ["bytes=15-", ""]


def test_a_file_that_is_all_there_is_not_fetched_again(server: Server) -> None:
    part = cache_path(server.url, CHECKSUM).with_name("net.onnx.part")
    part.parent.mkdir(parents=True)
    part.write_bytes(CONTENT)
    assert download(server.url, CHECKSUM).read_bytes() == CONTENT


def test_another_checksum_leaves_nothing(server: Server) -> None:
    server.content = b"something else"
    with pytest.raises(MaceError, match="has SHA-256"):
        download(server.url, CHECKSUM)
    assert not list(cache_path(server.url, CHECKSUM).parent.iterdir())


def test_no_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MACE_CACHE", str(tmp_path))
    with pytest.raises(MaceError, match=r"cannot be downloaded.*check the URL"):
        download("http://127.0.0.1:9/net.onnx", CHECKSUM)


def part_of(server: Server) -> Path:
    path = cache_path(server.url, CHECKSUM).with_name("net.onnx.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def test_a_slow_drip_ends_with_the_total_time_and_is_continued(server: Server) -> None:
    server.drip = 0.05
    with pytest.raises(
        MaceError,
        match=r"takes longer than 0\.4 seconds; run it again to continue, raise download_max_seconds",
    ):
        download(server.url, CHECKSUM, DownloadLimits(seconds=0.4))
    kept = part_of(server).read_bytes()
    # The whole content would take hours.
    assert kept == CONTENT[: len(kept)]
    assert 0 < len(kept) < len(CONTENT)
    server.drip = 0
    assert download(server.url, CHECKSUM).read_bytes() == CONTENT
    assert server.asked == ["", f"bytes={len(kept)}-"]


@pytest.mark.timeout(60)  # without a limit it waits for ever
def test_a_server_that_never_ends_its_headers_ends_with_the_total_time(
    server: Server, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            client, _ = listener.accept()
            with suppress(OSError), client:
                client.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                while True:
                    client.sendall(b"a")
                    time.sleep(0.05)

        Thread(target=answer, daemon=True).start()
        with pytest.raises(MaceError, match="takes longer than"):
            download(
                f"http://127.0.0.1:{listener.getsockname()[1]}/net.onnx",
                CHECKSUM,
                DownloadLimits(seconds=0.4),
            )


@pytest.mark.parametrize("length", ["", None])
def test_a_body_without_end_or_an_announced_size_above_the_limit_is_refused(
    server: Server, length: str | None
) -> None:
    server.endless, server.length = length == "", length
    with pytest.raises(MaceError, match=r"is larger than 0\.1[0-9]* MiB; raise download_max_mib"):
        download(server.url, CHECKSUM, DownloadLimits(size=110_000))
    assert part_of(server).stat().st_size <= len(CONTENT)


@pytest.mark.parametrize("length", ["", "abc", "-5", "99999999", "256000, 256000"])
def test_a_wrong_length_does_not_lose_a_right_file(server: Server, length: str) -> None:
    server.length = length
    assert download(server.url, CHECKSUM).read_bytes() == CONTENT


@pytest.mark.parametrize("length", ["", "abc", "-5", "99999999"])
def test_what_arrived_before_a_cut_is_kept_whatever_the_length(server: Server, length: str) -> None:
    server.length, server.most = length, 1000
    with pytest.raises(MaceError, match="continue"):
        download(server.url, CHECKSUM)
    assert part_of(server).read_bytes() == CONTENT[:1000]
    server.length, server.most = None, len(CONTENT)
    assert download(server.url, CHECKSUM).read_bytes() == CONTENT
    assert server.asked == ["", "bytes=1000-"]


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_link_in_place_of_the_part_is_not_followed(
    server: Server, tmp_path: Path, link: Callable[[Path, Path], None]
) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    link(victim, part_of(server))
    assert download(server.url, CHECKSUM).read_bytes() == CONTENT
    assert victim.read_bytes() == b"precious"


def test_a_dangling_link_and_a_pipe_in_place_of_the_part_are_replaced(server: Server, tmp_path: Path) -> None:
    part_of(server).symlink_to(tmp_path / "elsewhere")
    assert download(server.url, CHECKSUM).read_bytes() == CONTENT
    assert not (tmp_path / "elsewhere").exists()
    cache_path(server.url, CHECKSUM).unlink()
    os.mkfifo(part_of(server))
    assert download(server.url, CHECKSUM).read_bytes() == CONTENT


@pytest.mark.parametrize(
    "target", ["file:///etc/hostname", "ftp://127.0.0.1/x", "data:text/plain,x", "gopher://127.0.0.1/"]
)
def test_a_redirect_to_another_scheme_is_refused(server: Server, target: str) -> None:
    server.redirect = target
    with pytest.raises(MaceError, match="cannot be downloaded"):
        download(server.url, CHECKSUM)
    assert part_of(server).stat().st_size == 0


def test_a_loop_of_redirects_ends(server: Server) -> None:
    server.redirect = "/models/net.onnx"
    with pytest.raises(MaceError, match="infinite loop"):
        download(server.url, CHECKSUM)


@pytest.mark.parametrize("status", [404, 500])
def test_an_error_of_the_server_is_told(server: Server, status: int) -> None:
    server.status = status
    with pytest.raises(MaceError, match=f"HTTP Error {status}"):
        download(server.url, CHECKSUM)


def test_a_url_with_a_password_is_not_asked(server: Server) -> None:
    with pytest.raises(MaceError, match="no secret is sent"):
        download(server.url.replace("http://", "http://me:secret@"), CHECKSUM)
    assert server.asked == []


def test_progress_is_told(
    server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mace_core.deployment.download.PROGRESS_INTERVAL", 0.0)
    with caplog.at_level(logging.INFO, "mace"):
        download(server.url, CHECKSUM)
    assert re.search(r"net\.onnx: [0-9.]+ MiB of 0\.2 MiB \(\d+%\)", caplog.text)


def deployment(folder: Path, url: str, more: str = "") -> Path:
    (folder / "net.yml").write_text(
        f"library_name: net\nmodels:\n  net:\n    model_file_path: {url}\n    model_sha256_checksum: {CHECKSUM}\n{more}"
    )
    return folder / "net.yml"


@pytest.mark.parametrize(
    "path",
    [
        "{server}?key=${{SECRET}}",
        "${{SECRET}}/net.onnx",
        "http${{EMPTY}}://{host}/${{SECRET}}",
        "${{SERVER}}",
    ],
)
def test_no_variable_of_the_environment_reaches_a_url(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("SECRET", "s3cret" if not path.startswith("${{SECRET") else server.url)
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.setenv("SERVER", server.url)
    text = path.format(server=server.url, host=server.url.removeprefix("http://"))
    with pytest.raises(MaceError, match=r"net\.yml:4: .*a URL takes no environment variables") as error:
        load_deployment(deployment(tmp_path, text))
    assert "s3cret" not in str(error.value)
    assert server.asked == []


def test_a_file_with_other_faults_asks_no_host(server: Server, tmp_path: Path) -> None:
    with pytest.raises(MaceError, match="unknown key"):
        load_deployment(deployment(tmp_path, server.url, "    winogrd: 1\n"))
    assert server.asked == []


@pytest.mark.slow
def test_the_limits_are_keys_of_the_deployment_file(server: Server, tmp_path: Path) -> None:
    server.content *= 8
    with pytest.raises(MaceError, match=r"net\.yml:4: model_file_path: .* is larger than 1 MiB"):
        load_deployment(deployment(tmp_path, server.url, "    download_max_mib: 1\n"))
    server.content, server.drip = CONTENT, 0.2
    with pytest.raises(MaceError, match="takes longer than 1 seconds"):
        load_deployment(deployment(tmp_path, server.url, "    download_max_seconds: 1\n"))
    server.drip = 0.0
    (model,) = load_deployment(deployment(tmp_path, server.url, "    download_max_seconds: 60\n")).models
    assert model.files[0].read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("fetched", "size", "said", "stays"),
    [
        ((False, False), 3, "cannot be downloaded: the connection ended after 3 bytes; check the URL and the network", True),
        ((True, False), 3, "cannot be downloaded: the connection ended after 3 bytes", True),
        ((False, None), 3, "gave 3 bytes with SHA-256 aa, expected bb, and no length; run it again to continue where", True),
        ((False, None), 0, "has SHA-256 aa, expected bb; correct the checksum, or find out who changed the file", False),
        ((True, None), 3, "has SHA-256 aa, expected bb", False), ((False, True), 3, "has SHA-256 aa, expected bb", False),
    ],
)  # fmt: skip
def test_a_file_of_another_checksum_stays_where_it_may_be_continued(
    tmp_path: Path, fetched: tuple[bool, bool | None], size: int, said: str, stays: bool
) -> None:
    part = tmp_path / "net.part"
    part.write_bytes(bytes(size))
    with pytest.raises(MaceError) as error:
        download_module._refuse("http://a", part, ("aa", "bb"), download_module._Fetched(*fetched))
    assert str(error.value).startswith(f"http://a: {said}")
    assert part.exists() == stays

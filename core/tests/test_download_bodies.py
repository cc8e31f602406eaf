"""Bodies of answers piece by piece, names in the cache, and files of another checksum, without a server."""

from __future__ import annotations

import io
import logging
import os
from types import SimpleNamespace

import pytest

from mace_core.deployment import download as download_module
from mace_core.deployment.download import DownloadLimits, cache_path, is_url

CHECKSUM = "0123456789abcdef" * 4


class Answer:
    """The answer of a server: pieces of a body, and what it announced."""

    url = "http://h.example/net.onnx"

    def __init__(self, length: str | None, *pieces: bytes) -> None:
        self.headers = {} if length is None else {"Content-Length": length}
        self.pieces = [*pieces, b""]

    def read1(self, size: int) -> bytes:
        assert size == 1 << 16
        return self.pieces.pop(0)


def copy(answer: Answer, held: bytes, most: int) -> tuple[bool | None, bytes]:
    """What `_copy` says, and what the file holds after it; a message where a limit is reached."""
    file = io.BytesIO(held)
    file.seek(0, os.SEEK_END)
    return copy_to(file, answer, most), file.getvalue()


def copy_to(file: io.BytesIO, answer: Answer, most: int) -> bool | None:
    watch = SimpleNamespace(limits=DownloadLimits(9, most), check=lambda: None)
    return download_module._copy(answer, file, watch)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("length", "complete"),
    [
        ("4", True),
        (" 4 ", True),
        ("3", True),
        ("5", False),
        (None, None),
        ("", None),
        ("x", None),
        ("-4", None),
        ("9" * 19, None),
    ],
)
def test_a_body_is_complete_if_as_much_came_as_was_announced(
    length: str | None, complete: bool | None
) -> None:
    assert copy(Answer(length, b"ab", b"cd"), b"", 1 << 62) == (complete, b"abcd")
    assert copy(Answer(length, b"ab", b"cd"), b"before", 1 << 62) == (complete, b"beforeabcd")


@pytest.mark.parametrize(("most", "fits"), [(10, True), (9, False)])
@pytest.mark.parametrize("length", ["4", None])
def test_the_largest_size_counts_what_was_there(length: str | None, most: int, fits: bool) -> None:
    if fits:
        assert copy(Answer(length, b"ab", b"cd"), b"before", most)[1] == b"beforeabcd"
        return
    file = io.BytesIO(b"before")
    file.seek(0, os.SEEK_END)
    with pytest.raises(download_module._LimitError) as error:
        copy_to(file, Answer(length, b"ab", b"cd"), most)
    # What was announced as too large never began; what turns out so is no beginning of a file.
    assert file.getvalue() == (b"before" if length else b"")
    assert error.value.problem == f"it is larger than {9 / (1 << 20):g} MiB"
    assert error.value.remedy == "raise download_max_mib in the deployment file, or download it by hand"


def test_progress_counts_what_was_there(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    times = iter([10.0, 11.9, 12.0, 12.0, 13.9, 14.0, 14.0])
    monkeypatch.setattr(download_module.time, "monotonic", lambda: next(times))
    quarter = bytes(1 << 18)
    with caplog.at_level(logging.INFO, "mace"):
        copy(Answer(str(1 << 20), *[quarter] * 4), bytes(1 << 20), 1 << 30)
    assert [record.getMessage() for record in caplog.records] == [
        "http://h.example/net.onnx: 1.5 MiB of 2.0 MiB (75%)", "http://h.example/net.onnx: 2.0 MiB of 2.0 MiB (100%)"
    ]  # fmt: skip
    assert download_module._progress(1 << 19, None) == "0.5 MiB"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://h.example/a/net%20x.onnx?key=1#f", "net_x.onnx"), ("http://h.example/", "model"), ("http://h.example/..", "model"),
        ("http://h.example/.hidden", "hidden"), (f"http://h.example/{'n' * 101}", "n" * 100), ("http://[::1", "model"),
        ("http://h.example/ü-1_b.c", "_-1_b.c"),
    ],
)  # fmt: skip
def test_names_in_the_cache(url: str, name: str) -> None:
    path = cache_path(url, CHECKSUM)
    assert (path.name, path.parent.name, path.parents[1].name) == (name, CHECKSUM, "models")


def test_what_is_downloaded() -> None:
    assert [is_url(text) for text in ("http://a", "HTTPS://a", "ftp://a", "/http://a", "http:/a", "a")] == [
        True,
        True,
        *[False] * 4,
    ]

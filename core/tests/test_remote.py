"""Programs on a board over ssh: a script in the place of ssh runs the board's side here."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from mace_core.errors import MaceError
from mace_core.run.remote import LOST, Parcel, Remote, find_board, run_remotely

SSH = """#!/bin/sh
[ "$1 $2 $3 $4" = "-o BatchMode=yes -- pi@board" ] || exit 3
shift 4
exec sh -c "$1"
"""
PROGRAM = """#!/bin/sh
echo "arguments: $*"
echo "level: $MACE_CPU_LEVEL"
echo "wrong" >&2
for word; do case $word in --output=*) folder=${word#--output=};; file_*) input=$word;; esac; done
cat "$input" "$input" > "$folder/output_0.bin"
[ -e "$PWD/program" ] && exit 7
"""


@pytest.fixture
def board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of tools, with an ssh that answers as the board would."""
    tools = tmp_path / "tools"
    tools.mkdir()
    write_tool(tools / "ssh", SSH)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tools


def write_tool(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def test_a_program_runs_with_its_files(
    board: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    program = write_tool(board / "mace_run", PROGRAM)
    source, results = tmp_path / "in put.bin", tmp_path / "results"
    source.write_bytes(b"\x00abc'")
    results.mkdir()
    monkeypatch.setenv("MACE_CPU_LEVEL", "a b")
    before = set(tmp_path.iterdir())
    words = ["--model=it's $HOME", "--threads=2", f"--output={results}", str(source)]
    assert run_remotely("pi@board", program, words) == 7
    printed = capfd.readouterr()
    assert printed.out.splitlines() == [
        "arguments: --model=it's $HOME --threads=2 --output=results/0 file_1",
        "level: a b",
    ]
    assert printed.err == "wrong\n"
    assert (results / "output_0.bin").read_bytes() == b"\x00abc'\x00abc'"
    assert set(tmp_path.iterdir()) == before, "nothing stays on the board"


def test_the_runner_gives_the_command_of_the_module(board: Path, tmp_path: Path) -> None:
    program = write_tool(board / "mace_run", "#!/bin/sh\necho $1\n")
    command = Remote("pi@board").command(program, ["--version"])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "--version\n")


def test_the_environment_names_the_board(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("MACE_BOARD", raising=False)
    assert find_board() is None
    monkeypatch.setenv("MACE_BOARD", "pi@board")
    runner = find_board()
    assert isinstance(runner, Remote)
    assert (runner.address, runner.timing) == ("pi@board", "measured")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert runner.missing() == "ssh is not in PATH: apt-get install openssh-client"
    for address in ("-oProxyCommand=x", "a b", "a;b", "a\nb"):
        monkeypatch.setenv("MACE_BOARD", address)
        with pytest.raises(MaceError, match="is no address of a board; write USER@HOST or HOST"):
            find_board()


@pytest.mark.parametrize(
    ("ssh", "status", "text"),
    [
        ("#!/bin/sh\necho refused >&2\nexit 255\n", 255, "ssh pi@board: refused"),
        ("#!/bin/sh\nexit 0\n", LOST, "ssh pi@board: no answer"),
        ("#!/bin/sh\necho no archive\n", LOST, "the board answered with no archive"),
    ],
)
def test_a_board_that_does_not_answer_is_told(
    ssh: str, status: int, text: str, board: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_tool(board / "ssh", ssh)
    assert run_remotely("pi@board", write_tool(board / "mace_run", PROGRAM), []) == status
    assert text in capfd.readouterr().err


def pack(files: Mapping[str, bytes], link: str = "") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, data in files.items():
            described = tarfile.TarInfo(name)
            described.size = len(data)
            archive.addfile(described, io.BytesIO(data))
        if link:
            described = tarfile.TarInfo(link)
            described.type, described.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(described)
    return stream.getvalue()


def test_a_program_on_the_board_sees_what_lies_in_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "compiled"
    (folder / "inner").mkdir(parents=True)
    (folder / "a.bin").write_bytes(b"kernels")
    (tmp_path / "program").write_bytes(b"")
    parcel = Parcel.of(tmp_path / "program", [f"--compiled={folder}"])
    assert parcel.words == ("--compiled=results/0",)
    with tarfile.open(fileobj=io.BytesIO(parcel.archive())) as archive:
        assert archive.getnames() == ["program", "results/0/a.bin", "script"]
        content = archive.extractfile("results/0/a.bin")
        assert content is not None
        assert content.read() == b"kernels"


def test_a_board_writes_only_into_the_folders_of_results(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "results"
    folder.mkdir(parents=True)
    parcel = Parcel.of(tmp_path / "program", [f"--output={folder}"])
    hostile = {
        "results/status": b"0",
        "results/0/good": b"1",
        "results/0/../evil": b"2",
        "results/0/..": b"3",
        f"{tmp_path}/evil": b"4",
        "../evil": b"5",
        "results/other": b"6",
        "results/1/evil": b"7",
    }
    assert parcel.unpack(pack(hostile, link="results/0/link")) == {"status": b"0"}
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["good"]

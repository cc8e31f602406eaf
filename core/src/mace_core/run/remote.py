"""Runs the programs of a build on a board that is reached over ssh; no file stays there.

Program and inputs go to the board as one archive, and what the program wrote comes back as one, so that a run
needs one connection. The board needs a shell, `tar` and `mktemp`.

`python -m mace_core.run.remote ADDRESS PROGRAM [ARGUMENT]...` is the command of the runner.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mace_core.errors import MaceError
from mace_core.toolchain import Runner

BOARD = "MACE_BOARD"
"""The environment variable that names the board: USER@HOST, or a host of ssh's configuration."""
ADDRESS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:-]*")
FORWARDED = ("MACE_CPU_LEVEL",)
"""Variables that programs see on the board as here."""
STANDARD = ("status", "output", "errors")
"""What the script writes besides the program's own files: exit status, standard output and errors."""
SCRIPT = " && ".join(
    (
        "d=$(mktemp -d)",
        "trap 'rm -rf \"$d\"' EXIT",
        'cd "$d"',
        "tar -xf -",
        "sh ./script",
        "tar -cf - results",
    )
)
LOST = 70
"""The exit status where the board gives no results: EX_SOFTWARE of sysexits.h."""


class Remote(Runner):
    """Executes a program on a board.  address: as ssh takes it."""

    name = "ssh"

    def __init__(self, address: str) -> None:
        if not ADDRESS.fullmatch(address):
            raise MaceError(f"{BOARD}={address!r:.80}", "is no address of a board", "write USER@HOST or HOST")
        self.address = address

    def missing(self) -> str | None:
        """None if ssh is in PATH."""
        return None if shutil.which("ssh") else "ssh is not in PATH: apt-get install openssh-client"

    def command(self, program: Path, arguments: Sequence[str]) -> list[str]:
        """Give the command of this module."""
        return [
            sys.executable,
            "-P",
            "-m",
            "mace_core.run.remote",
            self.address,
            str(program.absolute()),
            *arguments,
        ]


def find_board() -> Runner | None:
    """Return the runner of the board whose address MACE_BOARD states, if any; MaceError for a wrong one."""
    address = os.environ.get(BOARD)
    return Remote(address) if address else None


@dataclass(frozen=True)
class Parcel:
    """What goes to the board, and where its results come back to.

    files: by name in the archive.  folders: of results, by name there.  words: the program's arguments there.
    """

    files: Mapping[str, Path]
    folders: Mapping[str, Path]
    words: tuple[str, ...]

    @classmethod
    def of(cls, program: Path, arguments: Sequence[str]) -> Parcel:
        """Collect the files that the arguments name; a folder after `=` is one for results.

        What lies in it is there as well, because programs may read results of earlier ones.
        """
        files, folders = {"program": program}, dict[str, Path]()
        words: list[str] = []
        for argument in arguments:
            option, equals, value = argument.partition("=")
            path = Path(value if equals else argument)
            if equals and path.is_dir():
                name = f"results/{len(folders)}"
                folders[name] = path
                files |= {f"{name}/{file.name}": file for file in sorted(path.iterdir()) if file.is_file()}
                words.append(f"{option}={name}")
            elif path.is_file():
                name = f"file_{len(files)}"
                files[name] = path
                words.append(f"{option}={name}" if equals else name)
            else:
                words.append(argument)
        return cls(files, folders, tuple(words))

    def script(self) -> str:
        """Return the shell script that runs the program and writes its exit status to a file."""
        variables = [f"{name}={shlex.quote(os.environ[name])}" for name in FORWARDED if name in os.environ]
        words = " ".join([*variables, "./program", *map(shlex.quote, self.words)])
        folders = " ".join(["results", *self.folders])
        return (
            f"mkdir -p {folders} && chmod +x program || exit {LOST}\n"
            f"{words} > results/output 2> results/errors < /dev/null\necho $? > results/status\n"
        )

    def archive(self) -> bytes:
        """Return the archive for the board."""
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as archive:
            for name, path in self.files.items():
                archive.addfile(_describe(name, path.stat().st_size), io.BytesIO(path.read_bytes()))
            script = self.script().encode()
            archive.addfile(_describe("script", len(script)), io.BytesIO(script))
        return stream.getvalue()

    def unpack(self, content: bytes) -> dict[str, bytes]:
        """Write the results into their folders, and return the standard ones.

        What a board answers is not trusted: only plain files directly in a folder that was asked for count.
        """
        standard: dict[str, bytes] = {}
        for member, data in _read_members(content):
            folder, _, name = member.rpartition("/")
            if folder == "results" and name in STANDARD:
                standard[name] = data
            elif folder in self.folders and name not in ("", ".", ".."):
                (self.folders[folder] / name).write_bytes(data)
        return standard


def _describe(name: str, size: int) -> tarfile.TarInfo:
    described = tarfile.TarInfo(name)
    described.size = size
    described.mode = 0o700
    return described


def _read_members(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each plain file."""
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isreg() else None
            if file is not None:
                yield member.name, file.read()


def run_remotely(address: str, program: Path, arguments: Sequence[str]) -> int:
    """Run a program on the board, write what it printed, and return its exit status."""
    parcel = Parcel.of(program, arguments)
    command = ["ssh", "-o", "BatchMode=yes", "--", address, SCRIPT]
    done = subprocess.run(command, input=parcel.archive(), capture_output=True, check=False)  # noqa: S603
    try:
        results = parcel.unpack(done.stdout) if done.stdout else {}
    except tarfile.TarError as error:
        results = {}
        done.stderr += f"the board answered with no archive: {error}\n".encode()
    if set(STANDARD) - set(results) or not results["status"].strip().isdigit():
        sys.stderr.write(f"ssh {address}: {done.stderr.decode(errors='replace').strip() or 'no answer'}\n")
        return done.returncode or LOST
    sys.stdout.write(results["output"].decode(errors="replace"))
    sys.stderr.write(results["errors"].decode(errors="replace"))
    return int(results["status"])


if __name__ == "__main__":
    raise SystemExit(run_remotely(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
